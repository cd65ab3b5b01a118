# SPDX-License-Identifier: Apache-2.0
"""Real double pendulums: nominal, identified, hybrid and neural models of the same logs, and their noise floor.

IBM's free pendulum (400 Hz) and DFKI's driven one, design by design, over runs logged at 400 Hz and more, with measured
torques and with the command. Forecasts of hybrid models start from past positions alone. Needs the logs;
`benchmarks/real_pendulums.py --only ibm-pendulum` measures one of them. Trained models can be kept (--keep) and are
then not trained again.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from _common import require, result_parser, single_thread, write_result
from neurodyn.core import read_json, write_json
from neurodyn.data import Store, open_data
from neurodyn.identify import IdentificationSettings, changed, identify, load_identification
from neurodyn.learn import load_settings, with_budget
from neurodyn.learn.neural.train import train
from neurodyn.robots import Robot
from neurodyn.robots import load as load_robot

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
FILES = {"ibm": SHARED / "ibm_double_pendulum" / "ibm_double_pendulum.npz",
         "dfki": SHARED / "dfki_double_pendulum" / "dfki_double_pendulum.npz"}  # fmt: skip
MAPS = {"measured": "log_measured.yaml", "command": "log.yaml"}
FAST = ("sysid_*", "*_ilqr_*", "*_sac_*")
"""Groups logged at 400 Hz and more, among the logs in a robot's column map."""


def main() -> None:
    """Measure all, or the requested parts, and write the result."""
    parser = result_parser(__doc__)
    parser.add_argument("--ibm", type=Path, default=FILES["ibm"], help="npz file of IBM's pendulum")
    parser.add_argument("--dfki", type=Path, default=FILES["dfki"], help="npz file of DFKI's pendulum")
    parser.add_argument("--only", nargs="+", default=["ibm-pendulum", "dfki-c1", "dfki-c0", "dfki-a0"])
    parser.add_argument("--torques", nargs="+", choices=tuple(MAPS), default=["measured", "command"])
    parser.add_argument("--steps", type=int, help="optimiser steps of the networks; by default the robots' own")
    parser.add_argument("--neural-steps", type=int, default=0, help="steps of a GRU on the same store; 0 for none")
    parser.add_argument("--keep", type=Path, help="folder for runs")
    options = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        for name in options.only:
            free = name.startswith("ibm")
            log = options.ibm if free else options.dfki
            if not log.exists():
                print(f"{name} skipped: there is no {log}")
                continue
            for torque in ["measured"] if free else options.torques:
                robot = load_robot(name)
                store = open_data(log, robot.spec, robot.log_path if free else Path(robot.folder) / MAPS[torque])
                label = name if torque == "measured" else f"{name}_{torque}"
                found = _measured(robot, store if free else _fast(store), str(log), folder / label, options)
                figures |= {f"{label}_{key}": value for key, value in _figures(found).items()}
    write_result(options.json, "real_pendulums", figures, {})


def _fast(store: Store) -> Store:
    """Return a store without groups logged too slowly."""
    from fnmatch import fnmatchcase

    kept = [k for k, name in enumerate(store.header.groups) if any(fnmatchcase(name, pattern) for pattern in FAST)]
    table = store.table[[int(group) in kept for group in store.table["group"]]]
    return Store(store.header, store.frames, table, store.ground)


def _settings(robot: Robot, steps: int | None) -> IdentificationSettings:
    settings = load_identification(robot)
    if steps is None:
        return settings
    return changed(settings, network=msgspec.structs.replace(settings.network, steps=steps))


def _measured(robot: Robot, store: Store, data: str, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of a robot's identification, with the CPU times of it and of a GRU."""
    if (out / "found.json").is_file():
        return read_json(out / "found.json")
    beside, cpu = [], 0.0
    if options.neural_steps:
        settings = with_budget(load_settings(robot, "small", None, log=True), None, options.neural_steps, 0)
        cpu = train(robot, robot.name, data, store, out / "neural", settings).cpu_seconds
        beside = [str(out / "neural")]
    start = time.process_time()
    settings = _settings(robot, options.steps)
    found = identify(robot, store, out / "hybrid", blueprint="robot", settings=settings, beside=beside).figures.plain()
    found["cpu_s"], found["neural_cpu_s"] = time.process_time() - start, cpu
    write_json(out / "found.json", found)
    return found


def _figures(found: dict[str, Any]) -> dict[str, float]:
    errors = found["errors"]
    require(all(entry["finite_fraction"] == 1.0 for entry in errors["hybrid"].values()), "a roll-out is not finite")
    rows = {**errors, "noise_floor": found["noise_floor"]}
    figures = {"cpu_s": found["cpu_s"], "starts": found["held_out"]["starts"]}
    if found["neural_cpu_s"]:
        figures["neural_cpu_s"] = found["neural_cpu_s"]
    for model, by_horizon in rows.items():
        name = "neural" if model.endswith("neural") else model.replace("-", "_")
        for mark, entry in by_horizon.items():
            figures[f"{name}_{mark}s_rad"] = entry["q_mean"]
            if entry["moving"]["q_mean"] is not None:
                figures[f"{name}_{mark}s_moving_rad"] = entry["moving"]["q_mean"]
    for mark in ("0.1", "0.25", "1"):
        for what, pick in (("", lambda e: e["q_mean"]), ("_moving", lambda e: e["moving"]["q_mean"])):
            if mark in errors["hybrid"] and pick(errors["hybrid"][mark]):
                ratio = pick(errors["hybrid"][mark]) / pick(errors["identified"][mark])
                figures[f"hybrid_over_identified_{mark}s{what}"] = ratio
    return figures


if __name__ == "__main__":
    main()
