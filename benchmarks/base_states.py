# SPDX-License-Identifier: Apache-2.0
"""Errors of the states of a floating base that are estimated from encoders and an IMU, on robots in plain MuJoCo.

    python benchmarks/base_states.py --robots ant go1 --seeds 0 1 2 --folder runs/base_states --json base_states.json
    python benchmarks/base_states.py --robots ant --models runs/worn     # an adapted model

The robots are those of `_sensed_robots`. Models are "right", the plant's own MJCF; "declared", the one without wear;
or run folders. Errors are means over all frames; velocities are those of the base's centre of mass, in axes of its
heading. `z` is the error over its own standard deviation (root mean square): 1 is right.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import torch
from torch import Tensor

import _sensed_robots as sensed_robots
import neurodyn
from _common import result_parser, single_thread, write_result
from neurodyn.core.description.sensors import Sensor
from neurodyn.dynamics import Dynamics
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.estimate import BaseEstimate, EstimatedRun, EstimationSettings, SensedRun, filter_base, smooth_base
from neurodyn.estimate.robust import ModelScatter
from neurodyn.geometry import rotation
from neurodyn.sim.declaration.declare import declare

Log = dict[str, np.ndarray]
MOUNTINGS = {"ant": sensed_robots.ANT_IMU, "go1": sensed_robots.GO1_IMU}
RATES = {"ant": 60.0, "go1": 50.0}
SUBSTEPS = {"ant": 4, "go1": 4}


def logs_of(robot: str, seed: int, folder: Path, asset: Path) -> tuple[str, list[Log]]:
    """Return the MJCF of a robot and its log, made once."""
    text, path = folder / f"{robot}{seed}.xml", folder / f"{robot}{seed}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = (sensed_robots.ant_text(), sensed_robots.ant(seed)) if robot == "ant" else sensed_robots.go1(asset, seed)
        text.write_text(made[0], encoding="utf-8")
        np.savez(path, **{f"{k}.{name}": x for k, log in enumerate(made[1]) for name, x in log.items()})  # pyright: ignore[reportArgumentType]
    with np.load(path) as arrays:
        logs: dict[str, Log] = {}
        for name in arrays.files:
            run, _, what = name.partition(".")
            logs.setdefault(run, {})[what] = arrays[name]
    return text.read_text(encoding="utf-8"), list(logs.values())


def model_of(name: str, robot: str, text: str, folder: Path) -> Dynamics:
    """Return a model of a robot."""
    if name == "declared":
        if robot != "ant":
            raise SystemExit("--models declared: valid with --robots ant")
        return declared_hybrid("ant", contact="soft")
    if name != "right":
        return neurodyn.load(name)
    declaration = folder / "right"
    if not declaration.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{robot}.xml").write_text(text, encoding="utf-8")
        declare(folder / f"{robot}.xml", declaration, dt=1.0 / RATES[robot])
        path = declaration / "robot.yaml"
        lines = path.read_text(encoding="utf-8").splitlines()
        keys = {"simulator:": f"simulator: {{solver: mujoco-c, substeps: {SUBSTEPS[robot]}}}"}
        if robot == "ant":  # its motors have no limits in the asset
            keys["actuated:"] = "actuated: {" + ", ".join(f"actuator{k}: 400" for k in range(8)) + "}"
        kept = [next((new for key, new in keys.items() if line.startswith(key)), line) for line in lines]
        path.write_text("\n".join(kept), encoding="utf-8")
    return declared_hybrid(declaration, contact="soft")


def sensed(log: Log, imu: Sensor) -> SensedRun:
    """Return what the robot sensed."""
    turn = torch.tensor(imu.quaternion, dtype=torch.float64)
    attitude = torch.from_numpy(log["attitude"])
    names = ("q", "qd", "control", "gyroscope", "specific_force")
    return SensedRun(
        *[torch.from_numpy(log[name]) for name in names],
        attitude=rotation.multiply(attitude, turn.expand(attitude.shape)),
    )


def level(quaternion: Tensor, vector: Tensor) -> Tensor:
    """Return vectors in axes of the heading."""
    ahead = rotation.matrix(quaternion)
    angle = -torch.atan2(ahead[:, 1, 0], ahead[:, 0, 0])
    return rotation.rotate(rotation.exponential(torch.stack([0 * angle, 0 * angle, angle], -1)), vector)


def errors(run: EstimatedRun, log: Log, dynamics: Dynamics) -> dict[str, Tensor]:
    """Return errors in each frame."""
    quaternion, spin = (torch.from_numpy(log[name]) for name in ("quaternion", "angular"))
    centre = dynamics.base_com
    assert centre is not None
    arm = rotation.rotate(quaternion, centre.double().expand(len(quaternion), 3))
    linear = torch.from_numpy(log["velocity"]) + torch.linalg.cross(spin, arm)
    off = level(run.quaternion, run.linear) - level(quaternion, linear)
    height = run.position[:, 2] - torch.from_numpy(log["position"])[:, 2]
    up = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand(len(off), 3)
    tilt = torch.linalg.cross(
        rotation.rotate(rotation.conjugate(run.quaternion), up), rotation.rotate(rotation.conjugate(quaternion), up)
    )
    spread = 0.5 * (run.deviation("linear.x").square() + run.deviation("linear.y").square())
    return {
        "velocity [m/s]": off.norm(dim=1),
        "height [m]": height.abs(),
        "tilt [rad]": tilt.norm(dim=1),
        "spin [rad/s]": (level(run.quaternion, run.angular) - level(quaternion, spin)).norm(dim=1),
        "z velocity": 0.5 * off[:, :2].square().sum(1) / spread,
        "z height": (height / run.deviation("height")).square(),
    }


def measure(robot: str, seed: int, name: str, args: argparse.Namespace) -> dict[str, float]:
    """Return the figures of a robot, a log and a model."""
    text, logs = logs_of(robot, seed, args.folder, args.asset)
    logs = logs[: args.runs]
    dynamics = model_of(name, robot, text, args.folder / f"{robot}{seed}")
    place = MOUNTINGS[robot]
    settings = EstimationSettings(
        imu=Sensor(kind="imu", position=place.position, quaternion=place.quaternion), specific_force="before"
    )
    runs = [sensed(log, settings.imu) for log in logs if settings.imu is not None]
    ways: dict[str, Callable[[], BaseEstimate]] = {
        "legs alone": lambda: smooth_base(dynamics, runs, msgspec.structs.replace(settings, rounds=0)),
        "smoother": lambda: smooth_base(dynamics, runs, settings),
        "filter": lambda: filter_base(dynamics, runs, settings),
        "filter by legs alone": lambda: filter_base(
            dynamics, runs, settings, scatter=ModelScatter.of((20.0, 50.0, 100.0), dynamics.spec.nv)
        ),
    }
    figures: dict[str, float] = {}
    for way in args.ways:
        began = time.process_time()
        estimate = ways[way]()
        spent = time.process_time() - began
        parts = []
        for run, log in zip(estimate, logs, strict=True):
            parts.append(errors(run.after(args.after), {key: x[args.after :] for key, x in log.items()}, dynamics))
        means = {key: float(torch.cat([part[key] for part in parts]).mean()) for key in parts[0]}
        found = {key: mean**0.5 if key.startswith("z ") else mean for key, mean in means.items()}
        found["cpu_seconds"] = spent
        words = ", ".join(f"{key} {value:.3g}" for key, value in found.items())
        print(f"{robot} {seed}, {name} model, {way}, {len(runs)} runs: {words}", flush=True)
        figures |= {f"{way}: {key}": value for key, value in found.items()}
    return figures


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--robots", nargs="+", default=["ant"], choices=sorted(MOUNTINGS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--models", nargs="+", default=["right"])
    parser.add_argument("--ways", nargs="+", default=["legs alone", "smoother", "filter"])
    parser.add_argument("--after", type=int, default=0, help="first frame that counts, such as that of the landing")
    parser.add_argument("--runs", type=int, default=1000, help="most runs of a log")
    parser.add_argument("--folder", type=Path, default=Path("runs/base_states"))
    parser.add_argument("--asset", type=Path, default=Path("go1.xml"), help="go1.xml of mjlab's asset zoo")
    args = parser.parse_args()
    single_thread()
    figures = {
        f"{robot} {seed} {name}: {key}": value
        for robot in args.robots
        for seed in args.seeds
        for name in args.models
        for key, value in measure(robot, seed, name, args).items()
    }
    write_result(args.json, "base_states", figures, {"runs": args.runs})


if __name__ == "__main__":
    main()
