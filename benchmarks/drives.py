# SPDX-License-Identifier: Apache-2.0
"""Drives: parameters identified from logs of known drives, and torques of a real one.

Synthetic: two minutes of one joint's encoder and targets (`examples/own_drive`); identified against true values. Real:
DFKI's double pendulum C.1, commanded and reported torques at 400 Hz (--dfki FILE); networks against the best parametric
drive, and the hybrid model with a memory (--hybrid) against the identified one.
"""

import subprocess
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import numpy as np

from _common import require, result_parser, single_thread, write_result
from neurodyn.core import Augmentation, Blueprint
from neurodyn.data import Store, import_logs, open_data, read_column_map
from neurodyn.identify import (
    DriveNetworkSettings,
    changed,
    identify,
    identify_drive_network,
    load_identification,
)
from neurodyn.robots import load

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "own_drive"
DFKI = ROOT.parent / "shared" / "data" / "dfki_double_pendulum" / "dfki_double_pendulum.npz"
TRUTH = {"knee.armature": 0.016, "knee.damping": 0.09, "knee.friction": 0.22, "actuator.knee.delay": 0.0087,
         "actuator.knee.effort_limit": 6.5, "actuator.knee.bias": 0.03}  # fmt: skip
FAST = ("sysid_*", "*_ilqr_*", "*_sac_*")
PERIOD = 0.0025
AGES = (0.0, 0.0025, 0.005, 0.0075, 0.01, 0.0125, 0.015, 0.02, 0.03, 0.04)
NETWORKS = {
    "mlp": DriveNetworkSettings(),
    "mlp_long": DriveNetworkSettings(history=AGES, hidden=(64, 64)),
    "gru": DriveNetworkSettings(network="gru", hidden=(48,), steps=1200, batch=4096, length=80),
}
SEEN = ("sin(q.shoulder)", "cos(q.shoulder)", "sin(q.elbow)", "cos(q.elbow)", "qd.shoulder", "qd.elbow",
        "control.shoulder", "control.elbow", "innovation.qd.shoulder", "innovation.qd.elbow", "innovation.q.shoulder",
        "innovation.q.elbow")  # fmt: skip
MEMORY = Blueprint(
    augmentations=(
        Augmentation(
            quantities=("actuator.shoulder", "actuator.elbow"), inputs=SEEN, hidden=(24, 24), memory=8,
            memory_time=0.005, input_scale=(1, 1, 1, 1, 5, 8, 2, 1, 0.3, 0.5, 0.003, 0.005),
        ),
    )
)  # fmt: skip


def main() -> None:
    """Measure the requested parts, and write the result."""
    parser = result_parser(__doc__)
    parser.add_argument("--dfki", type=Path, default=DFKI, help="npz file of DFKI's pendulum")
    parser.add_argument("--only", nargs="+", choices=("synthetic", *NETWORKS, "hybrid"), default=("synthetic", "mlp"))
    parser.add_argument("--steps", type=int, default=5000, help="optimiser steps of the hybrid model's network")
    options = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if "synthetic" in options.only:
            figures |= _synthetic(folder)
        for name in options.only:
            if name in NETWORKS:
                figures |= _networks(options.dfki, name, folder)
        if "hybrid" in options.only:
            figures |= _hybrid(options.dfki, options.steps, folder)
    write_result(options.json, "drives", figures, {})


def _synthetic(folder: Path) -> dict[str, float]:
    """Return relative errors of a drive's parameters."""
    script = EXAMPLE / "make_logs.py"
    subprocess.run([sys.executable, script, "--out", folder / "logs"], check=True)
    robot = load(str(EXAMPLE))
    logs = sorted((folder / "logs").glob("*.csv"))
    store = import_logs(logs, read_column_map(EXAMPLE / "log.yaml"), robot.spec, folder / "drive.h5")
    found = {p.name: p.value for p in identify(str(EXAMPLE), store, folder / "run").figures.parameters}
    errors = {f"{name}_error": found[name] / true - 1.0 for name, true in TRUTH.items()}
    require(all(abs(error) < 0.1 for error in errors.values()), f"numbers of the drive are off: {errors}")
    late = 1e3 * (found["actuator.knee.delay"] - TRUTH["actuator.knee.delay"])
    return {**errors, "delay_error_ms": late}


def _dfki(log: Path, columns: str, period: float | None = None) -> tuple[str, Store]:
    robot = load("dfki-c1")
    spec = robot.spec if period is None else msgspec.structs.replace(robot.spec, dt=period)
    store = open_data(log, spec, Path(robot.folder) / columns)
    kept = [k for k, name in enumerate(store.header.groups) if any(fnmatchcase(name, pattern) for pattern in FAST)]
    return robot.name, store.select(np.flatnonzero(np.isin(store.group, kept)))


def _networks(log: Path, name: str, folder: Path) -> dict[str, float]:
    """Return torque errors [N m], root mean squares over test runs."""
    robot, store = _dfki(log, "log_drive.yaml", PERIOD)
    declared = msgspec.structs.replace(load(robot), dt=PERIOD)
    result = identify_drive_network(declared, store, folder / name, NETWORKS[name])
    figures = {}
    for joint, errors in result.joints.items():
        figures |= {
            f"{name}_{joint}_Nm": errors.network,
            f"drive_{joint}_Nm": errors.drive,
            f"{name}_{joint}_ratio": errors.network / errors.drive,
        }
    return figures


def _hybrid(log: Path, steps: int, folder: Path) -> dict[str, float]:
    """Return angle errors [rad] of the identified model and of one with a network with memory."""
    robot, store = _dfki(log, "log_measured.yaml")
    settings = load_identification(load(robot))
    network = msgspec.structs.replace(settings.network, steps=steps, validations=20, windows=16_000)
    found = identify(robot, store, folder / "hybrid", blueprint=MEMORY, settings=changed(settings, network=network))
    errors = found.figures.errors
    return {
        f"{name}_{seconds}s_rad": errors[name][seconds].errors.q_mean or 0.0
        for name in ("identified", "hybrid")
        for seconds in ("0.1", "0.25", "0.5", "1")
    }


if __name__ == "__main__":
    main()
