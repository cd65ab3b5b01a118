# SPDX-License-Identifier: Apache-2.0
"""Push a block over a table, log it, and identify from the log how it slides.

The truth is a simulated pusher: a round tip on a prescribed path, a block with off-centre pressure, on a table with a
grain, and a sticky patch missing in all models here. The log has the measurements of a camera and a robot: poses of tip
and block at 100 Hz, with noise. It identifies the friction at the tip and the distribution of pressure and friction
under the block; held-out pushes show the improvement.

    python examples/pushing.py --pushes 24 --film push.gif
"""

import argparse
import math
import tempfile
from pathlib import Path

import msgspec
import numpy as np
import torch

from neurodyn.core import Support
from neurodyn.data import Split, Store, import_logs, read_column_map
from neurodyn.dynamics import HybridDynamics, State, declared_hybrid, load
from neurodyn.identify import identify
from neurodyn.robots import load as load_robot

FRAMES, SPEED, REACH, TOUCH = 80, 0.1, 0.05, 0.045 + 0.00475
NOISE = (2e-4, 2e-4, 2e-3)  # camera noise: m, m, rad
COLUMN_MAP = """
robot: planar-push
format: npz
period: 0.01
q:
  tip_x: {column: "tip[0]"}
  tip_y: {column: "tip[1]"}
  object_x: {column: "block[0]"}
  object_y: {column: "block[1]"}
  object: {column: "block[2]"}
qd: differentiate
control: differentiate        # the tip follows its path, whatever it touches
control_kind: velocity
alignment: 0.0
episodes: offsets
split: split
"""


def truth() -> HybridDynamics:
    """Return the true pusher."""
    values = ["contact.tip.friction=.4", "support.block.anisotropy=1.5", "support.block.centre.x=.008"]
    known = declared_hybrid("planar-push", contact="force", substeps=10, parameters=values)
    corner = ((0.015, -0.04), (0.04, -0.04), (0.04, -0.015), (0.015, -0.015))
    patch = Support(name="patch", link="object", outline=corner, friction=0.06)
    mechanism = msgspec.structs.replace(known.mechanism, supports=(*known.mechanism.supports, patch))
    return HybridDynamics(known.spec, mechanism, known.config, known.physical.specs)


def pushes(count: int, random: np.random.Generator) -> tuple[State, torch.Tensor]:
    """Return starts and tip velocities: anywhere on a side, at up to 50 degrees from its normal."""
    turn, side = random.uniform(-math.pi, math.pi, count), random.integers(4, size=count) * math.pi / 2
    place, attack = random.uniform(-0.035, 0.035, count), random.uniform(-0.9, 0.9, count)
    at, way = turn + side, turn + side + math.pi + attack
    tip = np.stack([TOUCH * np.cos(at) - place * np.sin(at), TOUCH * np.sin(at) + place * np.cos(at)], 1)
    q = torch.from_numpy(np.concatenate([tip, np.zeros((count, 2)), turn[:, None]], 1))
    going = (np.arange(FRAMES) < REACH / SPEED / 0.01)[None, :, None]
    velocity = SPEED * np.stack([np.cos(way), np.sin(way)], 1)[:, None] * going
    return State(q, torch.zeros_like(q)), torch.from_numpy(velocity)


def logged(model: HybridDynamics, count: int, folder: Path) -> Store:
    """Push, write the measurements as a log, and import it."""
    random = np.random.default_rng(0)
    q = model.rollout(*pushes(count, random)).q.numpy()
    block = q[..., 2:] + random.normal(size=(count, FRAMES + 1, 3)) * NOISE
    split = np.array([0, 0, 1, 2])[np.arange(count) % 4]
    np.savez(
        folder / "pushes.npz", tip=q[..., :2].reshape(-1, 2), block=block.reshape(-1, 3), split=split,
        offsets=np.arange(count + 1) * (FRAMES + 1),
    )  # fmt: skip
    (folder / "map.yaml").write_text(COLUMN_MAP, encoding="utf-8")
    robot = load_robot("planar-push")
    return import_logs([folder / "pushes.npz"], read_column_map(folder / "map.yaml"), robot.spec, folder / "pushes.h5")


def draw(path: Path, models: dict[str, HybridDynamics]) -> None:
    """Film one push with several models."""
    from matplotlib.animation import FuncAnimation, PillowWriter
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle, Polygon

    start, velocity = pushes(40, np.random.default_rng(3))
    paths = {name: model.rollout(start, velocity).q.numpy() for name, model in models.items()}
    off = np.abs(paths["nominal"] - paths["real"])[:, -1, 2:] @ (1.0, 1.0, 0.04)
    push = int(np.argsort(off)[30])  # one that the nominal parameters get wrong
    axes = (figure := Figure(figsize=(3.2, 3.2), layout="constrained")).subplots()
    axes.set(xlim=(-0.12, 0.12), ylim=(-0.12, 0.12), aspect="equal", xticks=[], yticks=[])
    square = np.array(models["real"].mechanism.body_contacts[0].second.vertices)
    colours = {"real": "#343a40", "nominal": "#ff922b", "identified": "#4dabf7"}
    blocks = {name: Polygon(square, fill=False, edgecolor=colours[name], label=name, linewidth=1.5) for name in paths}
    tip = Circle((0, 0), 0.00475, color="#868e96")
    for patch in (tip, *blocks.values()):
        axes.add_patch(patch)
    axes.legend(loc="upper right", fontsize=7)

    def show(frame: int) -> None:
        for name, block in blocks.items():
            x, y, angle = paths[name][push, frame, 2:]
            c, s = math.cos(angle), math.sin(angle)
            block.set_xy(square @ np.array([[c, s], [-s, c]]) + (x, y))
        tip.set_center(tuple(paths["real"][push, frame, :2]))

    FuncAnimation(figure, show, range(0, FRAMES + 1, 2)).save(path, PillowWriter(fps=25))


def final_errors(model: HybridDynamics, store: Store, split: Split) -> tuple[float, float]:
    """Return mean errors of the final position [mm] and angle [degrees]."""
    off = []
    for episode in store.episodes(split):
        begin = int(store.table["start"][episode])
        rows = slice(begin, begin + int(store.table["length"][episode]) + 1)
        q, qd, control = (torch.from_numpy(np.array(x[rows])).double() for x in (store.q, store.qd, store.control))
        off.append((model.rollout(State(q[:1], 0 * qd[:1]), control[None, :-1]).q[0, -1] - q[-1])[2:])
    each = torch.stack(off)
    return 1e3 * float(each[:, :2].norm(dim=1).mean()), math.degrees(float(each[:, 2].abs().mean()))


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pushes", type=int, default=24)
    parser.add_argument("--film", type=Path, help="write a film of a held-out push (.gif)")
    asked = parser.parse_args()
    real, nominal = truth(), declared_hybrid("planar-push", contact="force", substeps=10)
    with tempfile.TemporaryDirectory() as name:
        store = logged(real, asked.pushes, Path(name))
        with torch.enable_grad():
            found = identify("planar-push", store, Path(name) / "run")
        for one in found.figures.parameters:
            print(f"{one.name:28s} {one.value:8.4f}")
        identified = load(Path(name) / "run")
        assert isinstance(identified, HybridDynamics)
        for title, model in (("nominal", nominal), ("identified", identified)):
            place, angle = final_errors(model, store, Split.TEST)
            print(f"{title:12s} held-out pushes end {place:.2f} mm and {angle:.2f} degrees off")
    if asked.film is not None:
        draw(asked.film, {"real": real, "nominal": nominal, "identified": identified})


if __name__ == "__main__":
    main()
