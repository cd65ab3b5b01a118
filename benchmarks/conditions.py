# SPDX-License-Identifier: Apache-2.0
"""One network for a family of cartpoles that differ in five quantities, and one for only the declared cartpole.

Writes data and runs into a folder, unless they exist, and prints the errors of both networks over a second and 100
frames for the declared cartpole, those of the family's network for cartpoles drawn from its range, and how well
quantities of random cartpoles are identified from 60 s of their logs. Example:

    python benchmarks/conditions.py --out runs/conditions
"""

import argparse
import shutil
from pathlib import Path

import torch

from neurodyn import load, robots
from neurodyn.data import Split, Store, StoreHeader
from neurodyn.dynamics import AnalyticDynamics, Environment
from neurodyn.dynamics.batch import WorldParameters
from neurodyn.identify import identify_conditions
from neurodyn.learn import train
from neurodyn.sim import generate

RANGES = {
    "slider.mass": "x.6:1.6", "hinge.mass": "x.5:2", "hinge.com.z": ".35:.65", "slider.damping": "0:40",
    "hinge.damping": "0:.5",
}  # fmt: skip
TEXTS = tuple(f"{name}={text}" for name, text in RANGES.items())
DECLARATION = """
name: cartpole
asset: {asset}
joints:
  - {{name: slider, kind: prismatic, lower: -4.0, upper: 4.0, armature: 0.01, damping: 0.0, friction: 0.0}}
  - {{name: hinge, kind: revolute, continuous: true, armature: 0.01, damping: 0.0, friction: 0.0}}
actuated: {{slider: 1500.0}}
dt: 0.016666666666666666
simulator: {{solver: mujoco-c, substeps: 5}}
sampling:
  q: {{slider: [-3.5, 3.5], hinge: [-3.141592653589793, 3.141592653589793]}}
  qd: {{slider: [-10.0, 10.0], hinge: [-10.0, 10.0]}}
  control: {{slider: [-1500.0, 1500.0]}}
frames: 100
passive_fraction: 0.5
"""


def declared(out: Path) -> Path:
    """Write the declaration of a cartpole in plain MuJoCo, and return its path."""
    folder = out / "robot"
    folder.mkdir(parents=True, exist_ok=True)
    shipped = Path(robots.load("cartpole").folder) / "cartpole.urdf"
    shutil.copy(shipped, folder / shipped.name)
    path = folder / "robot.yaml"
    path.write_text(DECLARATION.format(asset=shipped.name), "utf-8")
    return path


def made(out: Path, robot: Path, transitions: int, minutes: float) -> dict[str, Path]:
    """Return the runs by name, generated and trained if missing."""
    found = {}
    for name, texts in (("alone", ()), ("family", TEXTS)):
        data, found[name] = out / f"{name}.h5", out / name
        if not data.exists():
            generate(robot, transitions, data, randomise=texts, threads=1)
        if not (found[name] / "model").is_dir():
            train(robot, data, found[name], minutes=minutes, conditions=tuple(RANGES) if texts else ())
    return found


def rollouts(robot: Path, worlds: int, frames: int, seed: int, numbers: torch.Tensor | None = None):
    """Return starts, controls, environment and true path of roll-outs, half of them driven."""
    from neurodyn.evaluate.simulated import draw_starts

    declaration = robots.load(robot)
    starts = draw_starts(declaration, frames, worlds, seed, driven=True)
    controls = starts.drive.torque
    controls[::2] = 0.0
    around = Environment(parameters=None if numbers is None else WorldParameters(tuple(RANGES), numbers))
    truth = AnalyticDynamics(declaration).rollout(starts.past, controls, around)
    return starts.past, controls, around, truth


def errors(model, robot: Path, numbers: torch.Tensor | None = None, worlds: int = 256) -> tuple[float, float]:
    """Return mean errors of cart [m] and pole [rad] over 100 frames; pole angles are compared modulo 2 pi."""
    start, controls, around, truth = rollouts(robot, worlds, 100, 7, numbers)
    path = model.rollout(start, controls, around if numbers is not None else None)
    apart = path.q - truth.q
    angle = torch.atan2(apart[..., 1].sin(), apart[..., 1].cos()).abs()
    return float(apart[..., 0].abs().mean()), float(angle.mean())


def drawn(data: Path, worlds: int) -> torch.Tensor:
    """Return quantities of the data's held-out robots, shape [worlds, quantities]."""
    store = Store.open(data)
    return torch.from_numpy(store.parameters[store.split == 2][:worlds])


def log_of(robot: Path, numbers: torch.Tensor, seed: int, noise: float) -> Store:
    """Return 60 s of logs of one cartpole: 36 episodes of 100 frames."""
    import numpy as np

    from neurodyn.data.header import episode_table

    _, controls, _, truth = rollouts(robot, 36, 100, seed, numbers[None].repeat(36, 1))
    controls = torch.cat([controls, torch.zeros(36, 1, 1)], 1)
    generator = torch.Generator().manual_seed(seed)
    rows = torch.cat([truth.q, truth.qd], -1)
    rows = torch.cat([rows + noise * torch.randn(rows.shape, generator=generator), controls], -1)
    table = episode_table(np.full(36, 100), split=np.array([Split.TRAIN] * 30 + [Split.TEST] * 6))
    header = StoreHeader(spec=robots.load(robot).spec, source="log")
    return Store(header, rows.flatten(0, 1).numpy(), table)


def main() -> None:
    """Train, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/conditions"))
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=8.0, help="of each training")
    parser.add_argument("--robots", type=int, default=10, help="robots whose quantities are looked for")
    parser.add_argument("--noise", type=float, default=1e-3, help="noise of logged positions and velocities")
    given = parser.parse_args()
    robot = declared(given.out)
    runs = {name: load(run) for name, run in made(given.out, robot, given.transitions, given.minutes).items()}
    for name, model in runs.items():
        cart, pole = errors(model, robot)
        print(f"declared cartpole, network of {name}: cart {cart:.4f} m, pole {pole:.4f} rad")
    numbers = drawn(given.out / "family.h5", 256)
    cart, pole = errors(runs["family"], robot, numbers, len(numbers))
    print(f"{len(numbers)} cartpoles of the range, network of family: cart {cart:.4f} m, pole {pole:.4f} rad")
    widths = torch.tensor([one.upper - one.lower for one in runs["family"].conditions])
    found, covered = [], 0
    for number, own in enumerate(numbers[: given.robots]):
        result = identify_conditions(runs["family"], log_of(robot, own, 100 + number, given.noise))
        values = torch.tensor([result.values[name] for name in RANGES])
        found.append(((values - own) / widths).abs())
        covered += sum(low <= float(x) <= high for x, (low, high) in zip(own, result.intervals.values(), strict=True))
    shares = torch.stack(found)
    for name, share, worst in zip(RANGES, shares.mean(0).tolist(), shares.max(0).values.tolist(), strict=True):
        print(f"{name}: found within {100 * share:.1f} % of the range in the mean, {100 * worst:.1f} % at worst")
    within, held = (100 * float(x) for x in ((shares <= 0.1).double().mean(), covered / shares.numel()))
    print(f"within 10 %: {within:.0f} % of {shares.numel()} values; 90 % intervals hold {held:.0f} %")


if __name__ == "__main__":
    main()
