# SPDX-License-Identifier: Apache-2.0
"""Real arms reach for goals by plans in a world model of their logs; models of other runs of the same arm judge.

The runs of a log are dealt in turn: a world model, an ensemble of GRUs without any mechanics, learns from one half, and
`adapt` fits the declared robot to the other. On the adapted robot the cross-entropy planner brings the end effector to
the goals of the task reach@ROBOT, with plans in the world model, in the declared robot, and in the judge itself. A
corrected planner adds the model's last errors over one frame to each frame that it predicts.

    python benchmarks/real_reach.py --data LOGS --keep reach
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from msgspec import UNSET

from _common import board_parser, kept_rows, require, single_thread, write_result
from board import ROBOTS, ROWS, SHARED, Parts, command, prepared
from neurodyn.control.planning.closed_loop import run as act
from neurodyn.control.planning.planner import Planner
from neurodyn.control.resolve import open_dynamics
from neurodyn.tasks import load as load_task
from world_board import train

NAMES = ("so101", "xl330")
PAST, HORIZON = 20, 40
"""Frames of memory, and of the forecasts by which a world model is validated."""
PLANS = {
    "world": ("world model", {}),
    "corrected": ("world model, corrected", {"correction": 0.2}),
    "penalised": ("world model, penalised", {"penalty": 1.0}),
    "declared": ("declared robot", {}),
    "judge": ("judge itself", {}),
}
"""Title of each model in which plans are made, and settings of the planner."""


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
    parser.add_argument("--judge-minutes", type=float, help="time budget of the judge; by default none")
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--frames", type=int, help="length of an episode; by default the task's")
    parser.add_argument("--plans", nargs="+", default=list(PLANS), choices=PLANS, help="where plans are made")
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
        words = ["adapt", str(ROBOTS / name), "--data", str(logs[1]), "--out", str(judge), "--threads", "1"]
        words += [] if asked.judge_minutes is None else ["--minutes", str(asked.judge_minutes)]
        told = command(*words, fresh=judge)
        require((judge / "model").is_dir(), told)
    task = load_task(f"reach@{ROBOTS / name}")
    plant = open_dynamics(task, str(judge))
    found = {}
    models = {"declared": "hybrid", "judge": str(judge)}
    for name_of_plan in asked.plans:
        title, settings = PLANS[name_of_plan]
        where = open_dynamics(task, models.get(name_of_plan, str(world)))
        planner = Planner(where.dynamics, task, "cem", seed=1, **settings)
        result, _ = act(planner, "cem", where, plant, episodes=asked.episodes, seed=500, frames=asked.frames)
        way = next(iter(result.result.commands.values()))
        found[title] = {
            "from [mm]": 1e3 * way.commanded, "to [mm]": 1e3 * (way.commanded - way.achieved),
            "within [share]": float(result.result.success), "too fast [share]": result.result.implausible,
            "decision [ms]": result.decision_ms, "of": result.frame_ms,
        } | ({} if result.refused is UNSET else {"refused [share]": result.refused})  # fmt: skip
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
