# SPDX-License-Identifier: Apache-2.0
"""Real tosses of a cube: open-loop errors of runs, of the analytic cube, nominal and fitted, and of baselines.

Needs the tosses (an npz in the layout declared for robot cube). Every figure is a mean over 80 frames and over all
windows of the test tosses (every start with 80 frames after it, one starting state, no warm-up), and over the releases
alone. The contact of the fitted cube is searched on the training tosses, unless given.

--folds N identifies the cube N times, each time without an Nth of all tosses, on which it is then tested: tosses differ
so much that 60 of them say little (a model's errors in five folds differ by a third). Seeds differ too.
"""

import argparse
import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from _analytic_cube import Candidate, dynamics, search
from _common import require, result_parser, single_thread, write_result
from neurodyn.data import Split, Store
from neurodyn.dynamics import load
from neurodyn.evaluate import beside_log
from neurodyn.identify import changed, identify, load_identification
from neurodyn.robots import Robot, open_robot_data
from neurodyn.robots import load as load_robot

TOSSES = Path(__file__).resolve().parents[2] / "shared/data/cube_toss/cube_toss.npz"
ERRORS = ("base_position_m", "base_orientation_rad")
BASELINES = ("hold_last", "constant_velocity")


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="run directories, or pretrained:NAME")
    parser.add_argument("--data", type=Path, default=TOSSES)
    parser.add_argument("--contact", type=Path, help="JSON of fitted contact parameters; searched anew without it")
    parser.add_argument("--candidates", type=int, default=50, help="candidates of the search; 0 for no fitted cube")
    parser.add_argument("--no-analytic", action="store_true", help="leave the simulator out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folds", type=int, default=0, help="identify in so many folds of all tosses, nothing else")
    parser.add_argument("--settings", help="settings of that identification; the robot's own without it")
    parser.add_argument("--parameters", nargs="+", default=[], help="free quantities instead of those of the settings")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        print(f"skipped: there is no {arguments.data}")
        return
    single_thread()
    robot = load_robot("cube")
    store = open_robot_data(robot, arguments.data)
    if arguments.folds:
        write_result(arguments.json, "cube_toss_folds", folded(robot, store, arguments), {})
        return
    tests = Split.TEST if len(store.episodes(Split.TEST)) else None
    models: dict[str, Any] = {run: load(run) for run in arguments.runs}
    figures: dict[str, float] = {}
    if not arguments.no_analytic:
        nominal = Candidate()
        models["analytic nominal"] = dynamics(robot, nominal)
        fitted = None
        if arguments.contact is not None:
            fitted = Candidate(**json.loads(arguments.contact.read_text(encoding="utf-8")))
        elif arguments.candidates:
            first = arguments.candidates * 2 // 5
            fitted, found = search(
                robot, store, nominal, first=first, then=arguments.candidates - first, seed=arguments.seed
            )
            figures |= found
        if fitted is not None:
            models["analytic fitted"] = dynamics(robot, fitted)
            figures |= {f"fitted_{name}": value for name, value in asdict(fitted).items()}
    report: dict[str, Any] = {}
    for name, model in models.items():
        report = beside_log(model, robot, store, split=tests).plain()
        require(report["finite_fraction"] == 1.0, f"a roll-out of {name} is not finite")
        figures |= _figures(name, *_both(report))
    for name in BASELINES if report else ():
        horizon = str(report["horizon"])
        beside = report["baselines"][name][horizon], report["releases"]["baselines"][name][horizon]
        figures |= _figures(name, *beside)
    figures |= {"starts": report["rollouts"], "releases": report["releases"]["rollouts"]} if report else {}
    write_result(arguments.json, "cube_toss", figures, {})


def folded(robot: Robot, store: Store, asked: argparse.Namespace) -> dict[str, float]:
    """Return errors of cubes identified without a fold of the tosses, on that fold, and their mean."""
    settings = load_identification(robot, asked.settings)
    groups = np.load(asked.data)["group_id"]
    kinds, member = np.unique(groups, return_inverse=True)
    part = np.random.default_rng(asked.seed).permutation(len(kinds))[member] % asked.folds
    figures: dict[str, float] = {}
    for fold in range(asked.folds):
        store.table["split"] = np.where(part == fold, Split.TEST, Split.TRAIN)
        begin = time.process_time()
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / "run"
            identify(
                robot, store, out, parameters=tuple(asked.parameters), settings=changed(settings, seed=fold, threads=1)
            )
            spent, model = time.process_time() - begin, load(out)
        found = _figures(f"fold_{fold}", *_both(beside_log(model, robot, store, split=Split.TEST).plain()))
        figures |= {**found, f"fold_{fold}_cpu_s": spent}
        print({key: round(value, 4) for key, value in found.items()}, f"{spent:.0f} CPU-s", flush=True)
    for key in ERRORS:
        figures[f"mean_{key}"] = float(np.mean([figures[f"fold_{fold}_{key}"] for fold in range(asked.folds)]))
    print({key: round(figures[f"mean_{key}"], 5) for key in ERRORS})
    return figures


def _both(report: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return report, report["releases"]


def _figures(name: str, everywhere: dict[str, Any], released: dict[str, Any]) -> dict[str, float]:
    where = {"": everywhere, "_release": released}
    return {f"{name}{suffix}_{key}": found[key] for suffix, found in where.items() for key in ERRORS}


if __name__ == "__main__":
    main()
