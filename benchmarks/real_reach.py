# SPDX-License-Identifier: Apache-2.0
"""Real arms reach for goals by plans in a world model of their logs; models of other runs of the same arm judge.

The runs of a log are dealt in turn: a world model, an ensemble of GRUs without any mechanics, learns from one half, and
`adapt` fits the declared robot to the other. On the adapted robot the cross-entropy planner brings the end effector to
the goals of the task reach@ROBOT, with plans in the world model, in the declared robot, and in the judge itself.

    python benchmarks/real_reach.py --data LOGS --keep reach
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from _common import board_parser, kept_rows, require, single_thread, write_result
from board import ROBOTS, ROWS, SHARED, Parts, command, prepared
from neurodyn.control.planning.closed_loop import run as act
from neurodyn.control.planning.planner import Planner
from neurodyn.control.resolve import open_dynamics
from neurodyn.tasks import load as load_task
from world_board import train

NAMES = ("so101",)
FRAMES = 100
"""Length of an episode."""
PAST, HORIZON = 20, 40
"""Frames of memory, and of the forecasts by which a world model is validated."""
PENALTY = 1.0
"""Weight of the members' disagreement in plans that are penalised (lambda)."""


def dealt(first: int) -> Parts:
    """Return every second run from `first` on for training, a quarter of these for validation, and the others."""

    def parts(log: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        runs = np.arange(len(log["offsets"]) - 1)
        own = np.flatnonzero(runs % 2 == first)
        split = np.full(len(runs), 2, np.int8)
        split[own], split[own[::4]] = 0, 1
        return log["offsets"], split

    return parts


def main() -> None:
    """Measure the robots that are not kept, and print the errors at the end of an episode."""
    parser = board_parser(__doc__, NAMES, SHARED, Path("reach"))
    parser.add_argument("--minutes", type=float, default=2.0, help="CPU time of a world model")
    parser.add_argument("--episodes", type=int, default=16)
    asked = parser.parse_args()
    single_thread()
    rows = kept_rows(asked, "reach.json", lambda name: measured(name, asked.data, asked.keep / name, asked))
    figures = {}
    for name, row in rows.items():
        for model, found in row.items():
            print(f"{name:8} {model:28} " + ", ".join(f"{key} {value:.3g}" for key, value in found.items()))
            figures |= {f"{name} {model} {key}": value for key, value in found.items()}
    write_result(asked.json, "real_reach", figures, {})


def measured(name: str, data: Path, keep: Path, asked: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return how near the end effector comes to its goals, by the model in which plans are made."""
    logs = list(halves(name, data, keep))
    world, judge = keep / "world-model", keep / "judge"
    if not (world / "model").is_dir():
        train(name, logs[0], world, PAST, HORIZON, asked.minutes)
    if not (judge / "model").is_dir():
        words = ("adapt", str(ROBOTS / name), "--data", str(logs[1]), "--out", str(judge), "--threads", "1")
        told = command(*words, fresh=judge)
        require((judge / "model").is_dir(), told)
    task = load_task(f"reach@{ROBOTS / name}")
    plant = open_dynamics(task, str(judge))
    found = {}
    models = (("world model", str(world), 0.0), ("world model, penalised", str(world), PENALTY),
              ("declared robot", "hybrid", 0.0), ("judge itself", str(judge), 0.0))  # fmt: skip
    for title, model, penalty in models:
        where = open_dynamics(task, model)
        planner = Planner(where.dynamics, task, "cem", seed=1, penalty=penalty)
        result, _ = act(planner, "cem", where, plant, episodes=asked.episodes, seed=500, frames=FRAMES)
        way = next(iter(result.result.commands.values()))
        found[title] = {
            "from [mm]": 1e3 * way.commanded, "to [mm]": 1e3 * (way.commanded - way.achieved),
            "within [share]": float(result.result.success), "too fast [share]": result.result.implausible,
            "decision [ms]": result.decision_ms,
        }  # fmt: skip
    return found


def halves(name: str, data: Path, keep: Path) -> Iterator[Path]:
    """Yield the stores of the two halves of a robot's runs."""
    keep.mkdir(parents=True, exist_ok=True)
    for number in (0, 1):
        row = replace(ROWS[name], parts=dealt(number))
        log, store = prepared(row, data, keep / f"half_{number}.npz"), keep / f"half_{number}.h5"
        told = command(
            "import", str(log), "--reader", str(ROBOTS / name / "map.yaml"), "--out", str(store), fresh=store
        )
        require(store.is_file(), told)
        yield store


if __name__ == "__main__":
    main()
