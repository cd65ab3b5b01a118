# SPDX-License-Identifier: Apache-2.0
"""Every kind of dynamics on the same real logs, with equal CPU time, cell by cell: the basis of "which dynamics?".

A cell is a log, a kind and a seed: "identified" (parameters alone), "hybrid" (plus the networks of a blueprint), "mlp"
and "gru" (neural dynamics). Each has --minutes of CPU time. All are evaluated on the same windows, with an equal past
for every model: open-loop errors of positions by horizon, on validation and on test runs. Blueprints are chosen by the
validation error (--blueprint NAME=FILE adds some; the robot's own is "robot"). For arms, torque errors are also
measured.

Cells in --keep are read and not recomputed; --collect only reads. IBM's film is calibrated first (see _film.py),
`ibm-raw` is the uncalibrated log. Missing logs are left out.
"""

import itertools
import shutil
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from msgspec import UNSET

import _schmidt_lipson
from _common import require, result_parser, single_thread, write_result
from _film import calibrated
from neurodyn.core import Blueprint, read_config, read_json, write_json
from neurodyn.data import Split, Store, import_logs, read_column_map
from neurodyn.data.windows import select_windows
from neurodyn.dynamics import HybridDynamics, declared_hybrid, load
from neurodyn.dynamics.batch import RecordedEnvironments
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.dynamics.rollouts import truth_of
from neurodyn.identify import IdentificationSettings, changed, identify, load_identification
from neurodyn.identify.fit.readings import noise_of
from neurodyn.identify.ladder.held_out import Forecast, horizon_errors, hybrid_forecast, model_forecast
from neurodyn.identify.ladder.initial_states import start_of
from neurodyn.learn import load_settings, with_budget
from neurodyn.learn.neural.train import train
from neurodyn.robots import Robot
from neurodyn.robots import load as load_robot

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
SECONDS = (0.1, 0.25, 0.5, 1.0)
KINDS = ("nominal", "identified", "hybrid", "mlp", "gru")
PAST = 20
"""Frames of past available to every model."""
WINDOWS = {Split.VALIDATION: 400, Split.TEST: 1000}


def main() -> None:
    """Measure the requested cells, and write the table."""
    parser = result_parser(__doc__)
    parser.add_argument("--logs", nargs="+", default=["ur10"], choices=list(LOGS))
    parser.add_argument("--kinds", nargs="+", default=["nominal", "identified", "gru"], choices=KINDS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--minutes", type=float, default=0.5, help="CPU time of a cell")
    parser.add_argument("--blueprint", nargs="+", default=[], metavar="NAME=FILE", help="besides the robot's own")
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the logs")
    parser.add_argument("--keep", type=Path, default=Path("real-logs"), help="folder of stores, runs and cells")
    parser.add_argument("--collect", action="store_true", help="read the cells that are there, compute none")
    asked = parser.parse_args()
    single_thread()
    blueprints = {"robot": "robot", **dict(text.split("=", 1) for text in asked.blueprint)}
    figures: dict[str, float] = {}
    for log, kind, seed in itertools.product(asked.logs, asked.kinds, asked.seeds):
        for name in blueprints if kind == "hybrid" else ["robot"]:
            cell = f"{log}-{kind}" + (f"-{name}" if name != "robot" else "") + f"-{seed}"
            kept = asked.keep / cell / "cell.json"
            if kept.is_file():
                found = read_json(kept)
                require(found["minutes"] == asked.minutes, f"{kept} had {found['minutes']} min; give --keep another")
            elif asked.collect or not (asked.data / LOGS[log].file).is_file():
                continue
            else:
                shutil.rmtree(kept.parent, ignore_errors=True)  # an interrupted cell starts over
                found = measured(log, kind, blueprints[name], seed, asked.minutes, asked.data, asked.keep, kept.parent)
                write_json(kept, found)
            flat = {key: value for key, value in found.items() if key != "minutes"}
            print(cell, {key: round(value, 4) for key, value in flat.items()}, flush=True)
            figures |= {f"{cell}_{key}": value for key, value in flat.items()}
    write_result(asked.json, "real_logs", figures, {})


class Log(msgspec.Struct, frozen=True):
    """A log.

    Attributes:
        robot: Name or folder of its robot.
        file: Its file in the folder of logs.
        columns: The column map, if it is not the robot's.
        settings: Settings of the identification beside the robot, if they are not `identify.yaml`.
        seconds: Horizons; windows are as long as the longest.
        prepare: Writes the file to import from the log's file, if they differ.
    """

    robot: str
    file: str
    columns: str | None = None
    settings: str | None = None
    seconds: tuple[float, ...] = SECONDS
    prepare: Callable[[Path, Path], object] | None = None


_FAST = ("sysid_*", "*_ilqr_*", "*_sac_*")
"""Groups logged at 400 Hz and more."""
_DFKI = "dfki_double_pendulum/dfki_double_pendulum.npz"
_IBM = "ibm_double_pendulum/ibm_double_pendulum.npz"
_ARMS = "arm_logs/arm_logs.npz"
_EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
LOGS = {
    "ur10": Log(str(_EXAMPLES / "arms" / "ur10"), _ARMS),
    "panda": Log(str(_EXAMPLES / "arms" / "panda"), _ARMS),
    "cube": Log("cube", "cube_toss/cube_toss.npz", settings="identify-soft.yaml", seconds=(0.1, 0.25, 0.5)),
    "schmidt-lipson": Log(
        str(_EXAMPLES / "schmidt_lipson"), "schmidt_lipson/schmidt_lipson.npz", prepare=_schmidt_lipson.unpack
    ),
    "ibm": Log("ibm-pendulum", _IBM, prepare=calibrated),
    "ibm-raw": Log("ibm-pendulum", _IBM),
    "dfki-c1": Log("dfki-c1", _DFKI, "log_measured.yaml"),
    "dfki-c0": Log("dfki-c0", _DFKI, "log_measured.yaml"),
    "dfki-a0": Log("dfki-a0", _DFKI, "log_measured.yaml"),
}


def opened(log: str, data: Path, keep: Path) -> tuple[Robot, Store]:
    """Return the robot of a log and its cached store."""
    entry = LOGS[log]
    robot, file = load_robot(entry.robot), data / entry.file
    keep.mkdir(parents=True, exist_ok=True)
    kept = keep / f"{log}.h5"
    if not kept.is_file():
        if entry.prepare is not None:
            file = keep / f"{log}.npz"
            entry.prepare(data / entry.file, file)
        columns = robot.log_path if entry.columns is None else Path(robot.folder) / entry.columns
        assert columns is not None
        import_logs([file], read_column_map(columns), robot.spec, kept)
    return robot, _fast(Store.open(kept)) if log.startswith("dfki") else Store.open(kept)


def _fast(store: Store) -> Store:
    """Return a store without groups logged too slowly."""
    kept = [k for k, name in enumerate(store.header.groups) if any(fnmatchcase(name, pattern) for pattern in _FAST)]
    table = store.table[[int(group) in kept for group in store.table["group"]]]
    return Store(store.header, store.frames, table, store.ground)


def measured(
    log: str, kind: str, blueprint: str, seed: int, minutes: float, data: Path, keep: Path, out: Path
) -> dict[str, float]:
    """Fit a cell and return its errors by split and horizon, its cost, and torque errors."""
    robot, store = opened(log, data, keep)
    named = LOGS[log].settings
    file = None if named is None else str(Path(robot.folder) / named)
    settings = changed(load_identification(robot, file), seed=seed, minutes=minutes, clock="cpu", threads=1)
    environments, start = RecordedEnvironments(store), start_of(store, settings.start)
    past = max(PAST, settings.context)
    found: dict[str, float] = {"minutes": minutes}
    begin = time.process_time()
    if kind in ("mlp", "gru"):
        asked = load_settings(robot, "small", log=True)  # a GRU, as for logs
        asked = msgspec.structs.replace(asked, net=msgspec.structs.replace(asked.net, kind=kind))
        train(
            robot, LOGS[log].robot, log, store, out / "run",
            msgspec.structs.replace(with_budget(asked, minutes, None, seed), clock="cpu"),
        )  # fmt: skip
        forecast = model_forecast(load(out / "run"), environments)
    else:
        if kind != "nominal":
            chosen = None if kind == "identified" else _blueprint(robot, blueprint)
            figures = identify(robot, store, out / "run", blueprint=chosen, settings=settings).figures
            if figures.torque is not UNSET:
                for name, misses in (("nominal", figures.torque.nominal), ("identified", figures.torque.identified)):
                    found |= {f"torque_{name}_{joint}_nm": size for joint, size in misses.items()}
        model = declared(robot, settings) if kind == "nominal" else load(out / "run")
        assert isinstance(model, HybridDynamics)
        windows = select_windows(store, Split.TRAIN, past, most=200)
        noise = noise_of(robot.spec, settings.noise_q, settings.noise_qd, windows)
        forecast = hybrid_forecast(model, start, settings.context if start == "past" else 0, noise, environments)
    found["cpu_s"] = time.process_time() - begin
    for split, most in WINDOWS.items():
        found |= errors(forecast, store, split, past, most, LOGS[log].seconds)
    return found


def declared(robot: Robot, settings: IdentificationSettings) -> HybridDynamics:
    """Return the initial model of a robot's identification."""
    engine = settings.engine(robot)
    return declared_hybrid(robot, contact=engine.contact, substeps=engine.substeps)


def _blueprint(robot: Robot, name: str) -> Blueprint:
    return read_config(Path(robot.folder) / "blueprint.yaml" if name == "robot" else Path(name), Blueprint)


def errors(
    forecast: Forecast, store: Store, split: Split, past: int, most: int, horizons: tuple[float, ...]
) -> dict[str, float]:
    """Return mean absolute errors of positions by horizon [s] over windows of a split, and the finite fraction."""
    spec = store.header.spec
    longest = int(store.lengths[store.episodes(split)].max())
    seconds = tuple(s for s in horizons if past + round(s / spec.dt) < longest)
    windows = select_windows(store, split, past + round(seconds[-1] / spec.dt), most=most).after(past)
    name = split.name.lower()
    found: dict[str, float] = {}
    compared = RolloutErrors(spec, forecast(windows), truth_of(windows))
    for mark, entry in horizon_errors(compared, seconds).items():
        if entry.errors.q_mean is not None and all(joint.scalar for joint in spec.joints):
            found[f"{name}_{mark}s"] = entry.errors.q_mean
        elif entry.errors.q_mean is not None:  # metres and radians cannot be averaged
            found |= {f"{name}_{mark}s_{what}": error for what, error in entry.errors.q.items()}
        found[f"{name}_{mark}s_finite"] = entry.finite_fraction
    return found


if __name__ == "__main__":
    main()
