# SPDX-License-Identifier: Apache-2.0
"""What `adapt` finds from encoders and an IMU alone, beside the truth and beside the same log with motion capture.

    python benchmarks/onboard.py adapt --robot ant --seed 0 --folder runs/onboard --json onboard.json
    python benchmarks/onboard.py adapt --robot go1 --asset go1.xml --folder runs/onboard

makes the log of a stand-in in plain MuJoCo (`_sensed_robots.py`), adapts the declared robot to it, and prints
quantities beside the truth, the share of 90 % intervals that hold it, errors of the base's states, and CPU time.
`--tracked` adapts to the same log with motion capture.

    python benchmarks/onboard.py own --robot ant --seed 0 --folder runs/onboard

then compares what gyroscope and accelerometer would read after .1, .5 and 1 s by the adapted model with what the robot
itself shows, both from the estimated starts of held-out windows.

    python benchmarks/onboard.py fit --robot go1 --asset go1.xml --episodes 0 2 3 4 --folder runs/onboard --settings
        '{"substeps": 4, "structures": false, "stages": [{"seconds": 0.06, "windows": 250, "iterations": 8},
          {"seconds": 0.12, "windows": 150, "iterations": 5}]}'

only estimates and fits, twice, with some episodes, and prints what was found: no intervals, no ladder. With
`--true-states` it fits once, to windows that begin at the true states of the base. With
`"parameters": ["base.mass_scale"]` the mass of the base is free, too.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import mujoco
import numpy as np
import torch

import _sensed_robots as sensed
from _common import result_parser, write_result
from neurodyn.core.artifacts import read_tree
from neurodyn.core.description.sensors import Sensor, Stream
from neurodyn.data import StoreHeader
from neurodyn.data.header import Split, Status, episode_table
from neurodyn.data.split import assign_splits
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.data.writer import StoreWriter
from neurodyn.dynamics.artifact import load as load_model
from neurodyn.dynamics.hybrid.declared import declared_mechanism
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.estimate import BaseEstimate, EstimatedRun
from neurodyn.geometry import rotation
from neurodyn.identify import AdaptationSettings, adapt
from neurodyn.identify.base_states import BaseEstimates, with_base, with_one_mass
from neurodyn.identify.ladder.rungs import held_out_errors, held_out_windows
from neurodyn.identify.ladder.structures import FitModel, structures
from neurodyn.identify.motors import with_motors
from neurodyn.identify.settings import FitStage
from neurodyn.identify.stages.growing_windows import Fitting
from neurodyn.robots import Robot, load
from neurodyn.sim.declaration.declare import declare

STREAMS = (
    Stream(name="imu", kind="imu", averaged=("specific_force",)),
    Stream(name="attitude", kind="orientation"),
)
_TRACKED = {"position": 1e-3, "rotation": 3e-3, "linear": 0.02, "angular": 0.05}
"""Noise of motion capture, and of velocities from it."""

ANT_TRUTH = {
    "payload.mass": 25.0, "payload.x": 0.08, "payload.y": 0.05, "payload.z": 0.1, "contact.friction": 0.45,
    "contact.solref.timeconst": 0.05,
    **{f"actuator.{part}_{leg}.gain": 0.92 for leg in range(1, 5) for part in ("hip", "ankle")},
    **{f"actuator.{part}_{leg}.lag": 0.02 for leg in range(1, 5) for part in ("hip", "ankle")},
    **{f"{part}_{leg}.friction": 6.0 for leg in range(1, 5) for part in ("hip", "ankle")},
    **{f"{part}_{leg}.armature": 0.06 for leg in range(1, 5) for part in ("hip", "ankle")},
    "actuator.ankle_3.gain": 0.7,
}  # fmt: skip


@dataclass(frozen=True)
class StandIn:
    """A stand-in robot: its name or folder and declaration, IMU, what is true of it, and its log."""

    name: str
    robot: Robot
    imu: sensed.Mounting
    truth: dict[str, float]
    logs: Callable[[], list[dict[str, np.ndarray]]]


def stand_in(args: argparse.Namespace) -> StandIn:
    """Return a stand-in, and declare it where it has no declaration yet."""
    if args.robot == "ant":
        return StandIn("ant", load("ant"), sensed.ANT_IMU, ANT_TRUTH, lambda: sensed.ant(args.seed, runs=args.runs))
    truth: dict[str, float] = {}
    sensed.go1_text(args.asset, args.seed, truth)
    folder = args.folder / "go1" / "declared"
    if not (folder / "robot.yaml").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        path = folder.parent / "go1.xml"
        path.write_text(sensed.go1_text(args.asset, args.seed, worn=False), encoding="utf-8")
        declare(path, folder, dt=0.02)
    return StandIn(str(folder), load(str(folder)), sensed.GO1_IMU, truth,
                   lambda: sensed.go1(args.asset, args.seed, runs=args.runs)[1])  # fmt: skip


def write_logs(one: StandIn, seed: int, folder: Path) -> tuple[Path, Path, Path]:
    """Write the log of a stand-in: with sensors alone, with motion capture, and the true states of its base."""
    robot = one.robot
    paths = tuple(
        folder / f"{kind}_{seed}{end}" for kind, end in (("sensors", ".h5"), ("tracked", ".h5"), ("truth", ".npz"))
    )
    if all(path.exists() for path in paths):
        return paths
    folder.mkdir(parents=True, exist_ok=True)
    logs, rng = one.logs(), np.random.default_rng([11, seed])
    spec = robot.spec
    splits = assign_splits(len(logs), seed, test=0.2)
    header = StoreHeader(spec=spec, source="log", runs=tuple(f"run {k}" for k in range(len(logs))))
    alone = msgspec.structs.replace(header, streams=STREAMS, base="unmeasured")
    truth: dict[str, list[np.ndarray]] = {}
    with StoreWriter(paths[0], alone) as without, StoreWriter(paths[1], header) as tracked:
        for k, log in enumerate(logs):
            count = len(log["q"])
            states = np.concatenate([log["position"], log["quaternion"], log["q"]], 1)
            com = center_velocity(robot, log)
            rates = np.concatenate([com, log["angular"], log["qd"]], 1)
            noisy_q, noisy_qd = states.copy(), rates.copy()
            noisy_q[:, :3] += rng.normal(0.0, _TRACKED["position"], (count, 3))
            off = rng.normal(0.0, _TRACKED["rotation"], (count, 3))
            noisy_q[:, 3:7] = sensed.turned(states[:, [6, 3, 4, 5]], off)[:, [1, 2, 3, 0]]
            noisy_qd[:, :3] += rng.normal(0.0, _TRACKED["linear"], (count, 3))
            noisy_qd[:, 3:6] += rng.normal(0.0, _TRACKED["angular"], (count, 3))
            force = np.concatenate([log["specific_force"][1:], np.full((1, 3), np.nan)])
            read = np.concatenate([log["gyroscope"], force, log["attitude"]], 1)
            labels = {"run": [k], "split": [int(splits[k])]}
            unknown = np.full((count, 7), np.nan), np.full((count, 6), np.nan)
            write(without, np.concatenate([unknown[0], log["q"]], 1), np.concatenate([unknown[1], log["qd"]], 1),
                  log["control"], labels, read)  # fmt: skip
            write(tracked, noisy_q, noisy_qd, log["control"], labels, None)
            for name_, values in (("q", states), ("qd", rates)):
                truth.setdefault(name_, []).append(values)
    np.savez(paths[2], **{name_: np.concatenate(values) for name_, values in truth.items()})
    return paths


def write(writer: StoreWriter, q, qd, control, labels, read) -> None:
    """Append a run."""
    table = episode_table([len(q) - 1], status=Status.LOG, **labels)
    writer.append_rows(
        q.astype(np.float32), qd.astype(np.float32), control.astype(np.float32), table,
        measured=None if read is None else read.astype(np.float32),
    )  # fmt: skip


def center_velocity(robot: Robot, log: dict[str, np.ndarray]) -> np.ndarray:
    """Return velocities of the declared centre of mass of the base, in world axes."""
    com = np.array(declared_mechanism(robot, "soft")[0].links[0].com)
    x, y, z, w = log["quaternion"].T
    arm = np.einsum("tij,j->ti", sensed.matrices(np.stack([w, x, y, z], 1)), com)
    return log["velocity"] + np.cross(log["angular"], arm)


def base_errors(run: Path, truth: Path, store: Store) -> dict[str, float]:
    """Return mean errors of the base's states as the adaptation estimated them."""
    known, frames = np.load(truth), read_tree(run / "state", "base")["frames"].numpy()
    nq = store.header.spec.nq
    speed = np.linalg.norm(frames[:, nq : nq + 3] - known["qd"][:, :3], axis=1)
    turned = rotations(frames[:, 3:7], known["q"][:, 3:7])
    return {
        "velocity [m/s]": float(speed.mean()), "median velocity [m/s]": float(np.median(speed)),
        "height [m]": float(np.abs(frames[:, 2] - known["q"][:, 2]).mean()), "tilt [rad]": float(turned.mean()),
    }  # fmt: skip


def rotations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the angles between the vertical axes of two orientations [rad]."""
    ups = [sensed.matrices(q[:, [3, 0, 1, 2]])[:, 2] for q in (a, b)]
    return np.arccos(np.clip((ups[0] * ups[1]).sum(1), -1.0, 1.0))


STEPS = {"ant": 4, "go1": sensed.GO1_STEPS}
"""Simulation steps of a frame."""
_PAST, _EACH, _SECONDS = 6, 60, (0.1, 0.5, 1.0)


def adapted(run: Path, data: Path, one: StandIn) -> tuple[HybridDynamics, Store]:
    """Return the model of an adaptation, and its log with the estimated states."""
    logged, tree = Store.open(data), read_tree(run / "state", "base")
    sensors = {
        "imu": Sensor(kind="imu", position=one.imu.position, quaternion=one.imu.quaternion),
        "attitude": Sensor(kind="orientation"),
    }
    header = msgspec.structs.replace(logged.header, base="estimated", sensors=sensors)
    model = load_model(str(run))
    assert isinstance(model, HybridDynamics)
    return model, replace(logged, header=header, **{name: value.numpy() for name, value in tree.items()})


def own_errors(
    args: argparse.Namespace, one: StandIn, model: HybridDynamics, store: Store
) -> dict[str, list[float | None]]:
    """Return mean errors of held-out readings at horizons: by a model, and by the robot itself."""
    text = sensed.ant_text() if args.robot == "ant" else sensed.go1_text(args.asset, args.seed)
    plant, split = mujoco.MjModel.from_xml_string(text), Split.TEST
    split = split if len(store.episodes(split)) else Split.VALIDATION
    windows, frames = held_out_windows(store, split, _PAST, _SECONDS, _EACH)
    by_model = held_out_errors(model, store, windows).by_group(frames)
    com = np.array(declared_mechanism(one.robot, "soft")[0].links[0].com)
    off: dict[str, list[np.ndarray]] = {"imu.angular_velocity [rad/s]": [], "imu.specific_force [m/s^2]": []}
    assert windows.readings is not None
    for k in range(windows.count):
        path = own_path(plant, windows.rows(torch.tensor([k])), com, STEPS[args.robot])
        none, rng = sensed.Noise(0.0, 0.0, (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)), np.random.default_rng(0)
        seen, read = sensed.readings(plant, path, STEPS[args.robot], one.imu, none, rng), windows.readings[k].numpy()
        rows = np.array(frames)
        for parts, first, later in zip(off.values(), (0, 3), (0, 1), strict=True):
            felt = seen["gyroscope" if later == 0 else "specific_force"][rows - 1 + later]
            parts.append(np.linalg.norm(felt - read[rows - 1, first : first + 3], axis=1))
    errors: dict[str, list[float | None]] = {}
    for name, parts in off.items():
        errors[f"model {name}"], errors[f"robot {name}"] = by_model[name], np.nanmean(parts, 0).tolist()
    for key, values in errors.items():
        print(f"{key:38}", *(f"{value:8.3g} after {at:g} s" for value, at in zip(values, _SECONDS, strict=False)))
    return errors


def fit(args: argparse.Namespace, one: StandIn, data: Path, settings: AdaptationSettings, known: Any) -> None:
    """Print quantities by fits to the states of the declared and of the fitted model, and errors of these states."""
    whole, episodes = Store.open(data), args.episodes
    store, nq = whole.select(episodes) if episodes else whole, whole.header.spec.nq
    rows = np.concatenate(
        [np.arange(whole.offsets[k], whole.offsets[k + 1]) for k in episodes or range(len(whole.table))]
    )
    robot = with_motors(one.robot, store)
    declared = FitModel.declared(robot, one.name, settings)
    settings = with_one_mass(settings, declared.mechanism, settings.parameters)
    model = structures(declared, settings, settings.parameters)[0]
    estimates = BaseEstimates(store, {**robot.sensors, **settings.sensors})
    if args.true_states:
        estimates.store = true_states(store, known, rows, estimates.sensors)
    fitting: Fitting | None = None
    for turn in ("true",) if args.true_states else ("declared", "fitted"):
        if not args.true_states:
            estimates.update(model.dynamics(None, 1) if fitting is None else fitting.current())
        frames = np.asarray(estimates.store.frames)
        speed = np.linalg.norm(frames[:, nq : nq + 3] - known["qd"][rows, :3], axis=1).mean()
        height = np.abs(frames[:, 2] - known["q"][rows, 2]).mean()
        print(f"states by the {turn} model: {speed:.3g} m/s, {1000 * height:.3g} mm; {time.process_time():.0f} CPU-s")
        before, fitting = fitting, Fitting(model, estimates.store, settings, 1)
        if before is not None:
            fitting.consider(before)
        fitting.run()
        alike: dict[str, list[tuple[float, float]]] = {}
        for k, coordinate in enumerate(fitting.space.coordinates):
            value, true = float(coordinate.value(fitting.x[k])), one.truth.get(coordinate.name)
            if coordinate.name.startswith(("payload", "contact", "motors", "base.mass")):
                print(f"  {coordinate.name:28} {value:10.4g}" + ("" if true is None else f"  true {true:.4g}"))
            elif true is not None:
                alike.setdefault(coordinate.name.rpartition(".")[2], []).append((value, true))
        for what, pairs in alike.items():
            found, true = np.array(pairs).T
            shares = f"off by {np.abs(found / true - 1.0).mean():.1%} (mean {(found / true - 1.0).mean():+.1%})"
            print(f"  {what}: {shares}, {found.mean():.4g} for {true.mean():.4g}", flush=True)
    if args.true_states:
        return
    assert fitting is not None
    own_errors(args, one, fitting.current(), estimates.store)


_SPREAD = (*(0.006, 0.006, 0.02), *(0.02,) * 3, 0.003, *(0.02,) * 3, *(0.002,) * 3, *(0.02,) * 3)
"""Standard deviations of windows' starts at the true states, in the order of `estimate.ERRORS`."""


def true_states(store: Store, known: Any, rows: np.ndarray, sensors: Mapping[str, Sensor]) -> Store:
    """Return a log with the true states of its base, and readings without the mean bias of the gyroscope in a run."""
    runs, first = [], 0
    spread = torch.diag(torch.tensor(_SPREAD, dtype=torch.float64).square())
    for episode in range(len(store.table)):
        own = slice(int(store.offsets[episode]), int(store.offsets[episode + 1]))
        count = own.stop - own.start
        q, qd = (torch.from_numpy(known[name][rows[first : first + count]]) for name in ("q", "qd"))
        first += count
        assert store.measured is not None
        read = torch.from_numpy(np.asarray(store.measured[own, :3], float))
        off = read - rotation.rotate(rotation.conjugate(q[:, 3:7]), qd[:, 3:6])
        nothing = torch.zeros(count, 3, dtype=torch.float64)
        runs.append(
            EstimatedRun(
                q[:, :3], q[:, 3:7], qd[:, :3], qd[:, 3:6], spread.expand(count, -1, -1),
                torch.zeros(count, 1, dtype=torch.bool), off.nanmean(0).expand(count, 3), nothing,
            )
        )  # fmt: skip
    return with_base(store, BaseEstimate(tuple(runs), ("foot",)), sensors)


def own_path(plant: mujoco.MjModel, window: Windows, com: np.ndarray, steps: int) -> np.ndarray:
    """Return positions and velocities of the robot itself from the start of a window, after each simulation step."""
    data, past = mujoco.MjData(plant), window.past
    q, qd, control = window.q[0, 0].numpy(), window.qd[0, 0].numpy(), window.control[0].numpy()
    turn = sensed.matrices(q[[6, 3, 4, 5]])
    data.qpos[:] = [*q[:3], *q[[6, 3, 4, 5]], *q[7:]]
    data.qvel[:] = [*(qd[:3] - np.cross(qd[3:6], turn @ com)), *(turn.T @ qd[3:6]), *qd[6:]]
    if plant.na and past is not None:  # what lag makes of the commands before
        before = past.control[0].numpy()
        data.act[:] = before[0]
        for command in before:
            gone = np.exp(-steps * plant.opt.timestep / np.maximum(plant.actuator_dynprm[:, 0], 1e-9))
            data.act[:] = command + (data.act - command) * gone
    path = [np.concatenate([data.qpos, data.qvel])]
    for command in control:
        data.ctrl[:] = command
        for _ in range(steps):
            mujoco.mj_step(plant, data)
            path.append(np.concatenate([data.qpos, data.qvel]))
    return np.array(path)


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("what", choices=("adapt", "own", "fit"))
    parser.add_argument("--robot", default="ant", choices=("ant", "go1"))
    parser.add_argument("--asset", type=Path, default=Path("go1.xml"), help="go1.xml of mjlab's asset zoo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=0, help="of 6 s, by default 60; of the Go1 of 20 s, 9")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--tracked", action="store_true", help="with motion capture")
    parser.add_argument("--name", default="", help="of the run in the folder")
    parser.add_argument("--settings", default="{}", help="changes of the adaptation's settings, as JSON")
    parser.add_argument("--true-states", action="store_true", help="`fit` begins windows at the true states")
    parser.add_argument("--episodes", nargs="*", type=int, default=[], help="of `fit`, by default all")
    args = parser.parse_args()
    args.runs = args.runs or {"ant": 60, "go1": 9}[args.robot]
    one = stand_in(args)
    imu, truth = one.imu, one.truth
    paths = write_logs(one, args.seed, args.folder / args.robot)
    data = paths[1] if args.tracked else paths[0]
    sensors = {
        "imu": Sensor(kind="imu", position=imu.position, quaternion=imu.quaternion),
        "attitude": Sensor(kind="orientation"),
    }
    changes = json.loads(args.settings)
    if "stages" in changes:
        changes["stages"] = tuple(FitStage(**one) for one in changes["stages"])
    settings = AdaptationSettings(
        networks=False, refits=0, proposals=0, threads=1, sensors={} if args.tracked else sensors,
        reference_steps=0, **changes,
    )  # fmt: skip
    name = args.name or ("tracked" if args.tracked else "sensors")
    out = args.folder / args.robot / f"{name}_{args.seed}"
    if args.what == "fit":
        fit(args, one, data, settings, np.load(paths[2]))
        return
    if args.what == "own":
        errors = own_errors(args, one, *adapted(out, data, one))
        if args.json:
            write_result(args.json, "onboard own", {f"{key} {k}": values[k] for key, values in errors.items()
                                                    for k in range(len(values))}, {})  # fmt: skip
        return
    began = time.process_time()
    found = adapt(one.name, data, out, settings=settings)
    figures: dict[str, Any] = {"cpu [s]": time.process_time() - began}
    told = inside = 0
    for found_one in found.figures.parameters:
        if found_one.name not in truth:
            continue
        true, interval = truth[found_one.name], found_one.interval
        held = interval is not None and interval[0] <= true <= interval[1]
        if found_one.determined:
            told, inside = told + 1, inside + held
        figures[found_one.name] = found_one.value
        text = "" if interval is None else f"({interval[0]:.4g} to {interval[1]:.4g})"
        text += "" if found_one.determined else "  not told"
        print(f"{found_one.name:32} {found_one.value:10.4g}  true {true:8.4g}  {text}{'' if held else '  missed'}")
    print(f"{inside} of {told} intervals hold the truth; {figures['cpu [s]']:.0f} CPU-s")
    figures |= {"told": told, "inside": inside}
    for rung in found.figures.rungs:
        print(rung.name, rung.kept, rung.reason, rung.errors, rung.test)
    if not args.tracked:
        errors = base_errors(out, paths[2], Store.open(data))
        figures |= errors
        print("base:", ", ".join(f"{key} {value:.4g}" for key, value in errors.items()))
    if args.json:
        write_result(args.json, "onboard", figures, {})


if __name__ == "__main__":
    main()
