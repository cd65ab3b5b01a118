# SPDX-License-Identifier: Apache-2.0
"""Real planar pushes: final pose of the block, for identified, augmented, tuned and neural models and persistence.

Needs the pushes of MIT's MCube lab (an npz in the layout declared for robot planar-push), 20 for training, 12 for
validation, 12 for testing. A push is rolled out from its first to its last frame along the tip's path. The error of the
final pose is sqrt(position^2 + (r angle)^2) with r the block's radius of gyration. "tuned" has the coefficients of
friction at the tip and under the block fitted, with uniform pressure; "identified" also the distributions of pressure
and friction; "hybrid" adds the network of the blueprint; "neural" has no mechanics.

--floor compares pushes that are equal up to a symmetry of the square: no model of an ideal square can distinguish them.
With --test and the kind tuned, errors of the others are also given relative to its own, with 95 % intervals over the
pushes (bootstrap).
"""

import argparse
import itertools
import math
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from _common import require, result_parser, single_thread, write_result
from neurodyn.core import Blueprint, read_config
from neurodyn.data import Split, Store
from neurodyn.dynamics import Dynamics, State, declared_hybrid, load
from neurodyn.identify import changed, identify, load_identification
from neurodyn.learn import train
from neurodyn.robots import Robot, open_robot_data
from neurodyn.robots import load as load_robot

PUSHES = Path(__file__).resolve().parents[2] / "shared/data/mcube_push/mcube_push.npz"
TUNED = ("contact.tip.friction", "support.block.friction=0.05:1.5")
GYRATION = 0.09 / math.sqrt(6)
KINDS = ("persistence", "nominal", "tuned", "identified", "hybrid", "neural")
SEEDED = ("hybrid", "neural")


def main() -> None:
    """Fit and evaluate the requested kinds."""
    parser = result_parser(__doc__)
    parser.add_argument("--data", type=Path, default=PUSHES)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--blueprint", type=Path, help="networks of the hybrid model; the robot's own without it")
    parser.add_argument("--settings", help="settings of identification; the robot's own without it")
    parser.add_argument("--minutes", type=float, default=1.0, help="CPU time of a neural model")
    parser.add_argument("--test", action="store_true", help="measure on test pushes too")
    parser.add_argument("--floor", action="store_true", help="compare pushes that are equal but for a symmetry")
    parser.add_argument("--keep", type=Path, help="folder of runs; one that is there is not fitted again")
    asked = parser.parse_args()
    if not asked.data.exists():
        print(f"skipped: there is no {asked.data}")
        return
    single_thread()
    robot = load_robot("planar-push")
    store = open_robot_data(robot, asked.data)
    splits = [Split.TRAIN, Split.VALIDATION, *([Split.TEST] if asked.test else [])]
    figures = symmetric(asked.data, store) if asked.floor else {}
    poses: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as scratch:
        keep = asked.keep or Path(scratch)
        for kind in asked.kinds:
            for seed in asked.seeds if kind in SEEDED else [0]:
                begin = time.process_time()
                model = fitted(kind, robot, store, keep / f"{kind}-{seed}", seed, asked)
                spent = time.process_time() - begin
                name = f"{kind}_s{seed}" if kind in SEEDED else kind
                found = {f"{name}_cpu_s": spent}
                for split in splits:
                    errors, each = finals(model, store, split)
                    if split == Split.TEST and errors["finite"] == 1.0:
                        poses[name] = each
                    found |= {f"{name}_{split.name.lower()}_{what}": value for what, value in errors.items()}
                print({key: round(value, 2) for key, value in found.items()}, flush=True)
                figures |= found
    figures |= shares(poses)
    write_result(asked.json, "pushing", figures, {})


def fitted(kind: str, robot: Robot, store: Store, out: Path, seed: int, asked: argparse.Namespace) -> Dynamics | None:
    """Return a model of a kind; None for persistence."""
    if kind == "persistence":
        return None
    settings = changed(load_identification(robot, asked.settings), seed=seed, threads=1)
    if kind == "nominal":
        engine = settings.engine(robot)
        return declared_hybrid(robot, contact=engine.contact, substeps=engine.substeps)
    if not out.exists() and kind == "neural":
        train(robot, store, out, minutes=asked.minutes, seed=seed)
    elif not out.exists():
        own = asked.blueprint or Path(robot.folder) / "blueprint.yaml"
        blueprint = read_config(own, Blueprint) if kind == "hybrid" else None
        identify(robot, store, out, parameters=TUNED if kind == "tuned" else (), blueprint=blueprint, settings=settings)
    return load(out)


def shares(poses: dict[str, np.ndarray]) -> dict[str, float]:
    """Return mean errors of models relative to the tuned one's, with 95 % intervals over the test pushes."""
    found: dict[str, float] = {}
    for name, each in poses.items() if "tuned" in poses else ():
        rows = np.random.default_rng(0).integers(len(each), size=(10_000, len(each)))
        drawn = each[rows].mean(1) / poses["tuned"][rows].mean(1)
        low, high = np.percentile(drawn, (2.5, 97.5))
        found |= {f"{name}_share": float(each.mean() / poses["tuned"].mean()), f"{name}_low": low, f"{name}_high": high}
        print(name, "of tuned", f"{found[f'{name}_share']:.2f} ({low:.2f} to {high:.2f})")
    return found


def finals(model: Dynamics | None, store: Store, split: Split) -> tuple[dict[str, float], np.ndarray]:
    """Return figures of the final poses of roll-outs, and the error of each pose [mm].

    The figures are the fraction that stays finite, and mean and median errors in mm and degrees.
    """
    places, angles = [], []
    for episode in store.episodes(split):
        q, qd, control = (torch.from_numpy(np.array(x)).double() for x in run_of(store, episode))
        end = q[0]
        if model is not None:
            kind = next(model.parameters()).dtype  # networks compute in single precision
            with torch.no_grad():
                end = model.rollout(State(q[:1].to(kind), qd[:1].to(kind)), control[None].to(kind)).q[0, -1]
            if not end.isfinite().all():
                require(model.kind == "neural", "a roll-out with mechanics is not finite")
                continue
        off = (end - q[-1])[2:]
        places.append(1e3 * float(off[:2].norm()))
        angles.append(math.degrees(abs(math.remainder(float(off[2]), math.tau))))
    poses = np.hypot(places, 1e3 * GYRATION * np.radians(angles))
    found = {"finite": len(places) / len(store.episodes(split))}
    for what, values in (("pose_mm", poses), ("position_mm", places), ("angle_deg", angles)):
        found |= {what: float(np.mean(values)), f"{what}_median": float(np.median(values))}
    return found, poses


def run_of(store: Store, episode: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions [T + 1, nq], velocities [T + 1, nv] and controls [T, nu] of a push."""
    begin, length = int(store.table["start"][episode]), int(store.table["length"][episode])
    rows = slice(begin, begin + length + 1)
    return store.q[rows], store.qd[rows], store.control[rows][:-1]


def symmetric(data: Path, store: Store) -> dict[str, float]:
    """Return the final distance between pushes that are equal up to a rotation or reflection of the square.

    Their own differences are removed to first order: positions on the edge are at most .1 of its length apart, angles
    of attack equal, and final poses are compared in the frame of the block and its edge.
    """
    packed = np.load(data)
    rows = [k for k, shape in enumerate(packed["shape"]) if shape == "rect1"]
    require(len(rows) == len(store.table), "the log holds other pushes")
    ends, params = [], packed["params"][rows]
    for episode in range(len(rows)):
        q = run_of(store, episode)[0]
        x, y = (q[-1] - q[0])[2:4]
        # Edge 0 is at +y, 1 at -x, 2 at -y, 3 at +x: rotate until the push is along +x.
        turn = float(q[0, 4]) + {0: -math.pi / 2, 1: 0.0, 2: math.pi / 2, 3: math.pi}[int(params[episode, 2])]
        along = math.cos(turn) * x + math.sin(turn) * y
        across = -math.sin(turn) * x + math.cos(turn) * y
        ends.append((along, across, float(q[-1, 4] - q[0, 4])))
    apart = []
    for a, b in itertools.combinations(range(len(rows)), 2):
        for mirror in (1.0, -1.0):
            s, t = params[b, 3], params[b, 4]
            s, t = (s, t) if mirror > 0 else (1.0 - s, -t)
            if abs(params[a, 3] - s) < 0.101 and abs(params[a, 4] - t) < 1e-3:
                x, y, turn = np.array(ends[a]) - np.array(ends[b]) * (1.0, mirror, mirror)
                apart.append((abs(params[a, 3] - s), 1e3 * math.hypot(x, y), abs(math.degrees(turn))))
    found: dict[str, float] = {}
    for name, most in (("same_place", 1e-3), ("within_tenth", 1.0)):
        close = np.array([row[1:] for row in apart if row[0] <= most])
        if len(close):
            pose = np.hypot(close[:, 0], 1e3 * GYRATION * np.radians(close[:, 1]))
            found |= {
                f"symmetric_{name}_pairs": len(close), f"symmetric_{name}_pose_mm": float(pose.mean()),
                f"symmetric_{name}_position_mm": float(close[:, 0].mean()),
                f"symmetric_{name}_angle_deg": float(close[:, 1].mean()),
            }  # fmt: skip
    return found


if __name__ == "__main__":
    main()
