# SPDX-License-Identifier: Apache-2.0
"""Stand-in robots in plain MuJoCo that log what is on board: encoders, an IMU and commands, with the truth beside it.

`ant` is the worn ant of examples/worn_ant.py under a policy and random torques. `go1` is mjlab's Unitree Go1 with a
payload, worn and late motors and a softer floor, which trots, turns, squats and stands under position targets.
"""

import runpy
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import torch
from numpy.random import Generator

import worn_ants
from neurodyn.control import SampledStarts
from neurodyn.dynamics.batch import Control, State, Step
from neurodyn.policy.episodes.evaluation import load_policy, play
from neurodyn.tasks import load

GRAVITY = np.array([0.0, 0.0, -9.81])


@dataclass(frozen=True)
class Noise:
    """Standard deviations of the sensors.

    Attributes:
        encoder: Of joint positions [rad].
        rate: Of joint velocities [rad/s].
        gyroscope: Of a reading, and of the bias of a run [rad/s].
        accelerometer: The same of specific force [m/s^2].
        attitude: Of the IMU's own attitude [rad], and of the change of its heading in a frame [rad].
    """

    encoder: float = 2e-3
    rate: float = 0.05
    gyroscope: tuple[float, float] = (0.02, 0.01)
    accelerometer: tuple[float, float] = (0.2, 0.1)
    attitude: tuple[float, float] = (8e-3, 2e-3)


@dataclass(frozen=True)
class Mounting:
    """Place of an IMU in the base [m], and rotation from its axes to the base's, as a quaternion [x, y, z, w]."""

    position: tuple[float, float, float]
    quaternion: tuple[float, float, float, float]

    @property
    def matrix(self) -> np.ndarray:
        """Rotation from the axes of the IMU to those of the base."""
        x, y, z, w = self.quaternion
        return matrices(np.array([w, x, y, z]))


def matrices(quaternions: np.ndarray) -> np.ndarray:
    """Return rotation matrices, shape [..., 3, 3], of quaternions as MuJoCo's, w first, shape [..., 4]."""
    w, x, y, z = np.moveaxis(quaternions, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array([[np.asarray(one) for one in row] for row in rows]), (0, 1), (-2, -1))


def turned(quaternions: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return quaternions (w first) turned by small rotation vectors in world axes."""
    half = 0.5 * vectors
    w, v = quaternions[..., :1], quaternions[..., 1:]
    scalar = w - (half * v).sum(-1, keepdims=True)
    both = np.concatenate([scalar, v + w * half + np.cross(half, v)], -1)
    return both / np.linalg.norm(both, axis=-1, keepdims=True)


def readings(
    model: mujoco.MjModel, path: np.ndarray, steps: int, mounting: Mounting, noise: Noise, rng: Generator
) -> dict[str, np.ndarray]:
    """Return what is on board along a path of a floating robot, and the truth.

    Args:
        model: The robot; its first joint is free.
        path: Positions and velocities after each simulation step, shape [frames * steps + 1, nq + nv].
        steps: Simulation steps of a frame.
        mounting: The IMU.
        noise: Of the sensors.
        rng: Random numbers.

    Returns:
        Joint positions `q` and velocities `qd`, `gyroscope`, `specific_force` (mean over the frame that ends in a row,
        in axes of the IMU), `attitude` of the base and true `position`, `quaternion` (x, y, z, w), `velocity` of the
        base's origin and `angular` velocity, in world axes; one row a frame, and the first.
    """
    nq = model.nq
    rotation = matrices(path[:, 3:7])
    spin = path[:, nq + 3 : nq + 6]
    arm = np.array(mounting.position)
    at_imu = path[:, nq : nq + 3] + np.einsum("tij,tj->ti", rotation, np.cross(spin, arm))
    felt = np.diff(at_imu, axis=0) / model.opt.timestep - GRAVITY
    middle = 0.5 * (rotation[1:] + rotation[:-1]) @ mounting.matrix
    felt = np.einsum("tji,tj->ti", middle, felt).reshape(-1, steps, 3).mean(1)
    felt = np.concatenate([felt[:1], felt])
    rows = path[::steps]
    count = len(rows)
    heading = np.zeros((count, 3))
    heading[:, 2] = np.cumsum(rng.normal(0.0, noise.attitude[1], count))
    attitude = turned(rows[:, 3:7], heading + rng.normal(0.0, noise.attitude[0], (count, 3)))
    gyroscope = rows[:, nq + 3 : nq + 6] @ mounting.matrix
    joints = rows[:, 7:nq], rows[:, nq + 6 :]
    turn = rotation[::steps]
    return {
        "q": joints[0] + rng.normal(0.0, noise.encoder, joints[0].shape),
        "qd": joints[1] + rng.normal(0.0, noise.rate, joints[1].shape),
        "gyroscope": gyroscope + rng.normal(0.0, noise.gyroscope[0], (count, 3)) + rng.normal(0, noise.gyroscope[1], 3),
        "specific_force": felt
        + rng.normal(0.0, noise.accelerometer[0], (count, 3))
        + rng.normal(0, noise.accelerometer[1], 3),
        "attitude": attitude[:, [1, 2, 3, 0]],
        "position": rows[:, :3],
        "quaternion": rows[:, [4, 5, 6, 3]],
        "velocity": rows[:, nq : nq + 3],
        "angular": np.einsum("tij,tj->ti", turn, rows[:, nq + 3 : nq + 6]),
    }


ANT_IMU = Mounting((0.1, -0.06, 0.12), (0.0, 0.0, 0.38268343, 0.92387953))


def ant_model(wear: float = 1.0) -> mujoco.MjModel:
    """Return the ant of examples/worn_ant.py."""
    return mujoco.MjModel.from_xml_string(ant_text(wear))


def ant_text(wear: float = 1.0) -> str:
    """Return the MJCF of the ant of examples/worn_ant.py."""
    return runpy.run_path(str(Path(__file__).parents[1] / "examples" / "worn_ant.py"))["model_text"](wear, None)


def ant(seed: int, runs: int = 60, frames: int = 360, noise: Noise = Noise()) -> list[dict[str, np.ndarray]]:
    """Return a log of the worn ant at 60 Hz: a policy with and without noise, and random torques."""
    rng, task, most = np.random.default_rng([7, seed]), load("ant-run"), 400.0
    noisy, random = rng.choice((0.0, 0.3, 0.6), runs), rng.random(runs) < 0.25
    drift, paths, controls = np.zeros((runs, 8)), [], []

    class Recorded(worn_ants.AntInMujoco):
        """The worn ant, which keeps its path and gets other torques than the policy's."""

        def step(self, carry: np.ndarray, state: State, control: Control) -> tuple[np.ndarray, Step]:
            torque = worn_ants.frame_command(self.spec, state, control).detach().double().numpy()
            drift[:] = 0.8 * drift + 0.6 * rng.normal(0.0, 1.0, drift.shape)
            torque = np.where(random[:, None], 0.5 * most * drift, torque + noisy[:, None] * 0.5 * most * drift)
            torque = np.clip(torque, -most, most)
            held = np.repeat(torque[:, None], self._substeps, 1)
            full = self._runner.rollout(self._model, self._data, carry, held)[0]
            if len(paths) < frames:
                whole = full if paths else np.concatenate([carry[:, None], full], 1)
                paths.append(whole[..., 1 : 1 + self._model.nq + self._model.nv])
                controls.append(torque)
            return full[:, -1], Step(state=self._seen(torch.from_numpy(full[:, -1]), state.q))

    starts = SampledStarts(task, seed=seed)
    play(load_policy("pretrained-policy:ant-run")[1], task, Recorded("WornAnt"), starts, runs, seed=seed)
    path, control, model = np.concatenate(paths, 1), np.stack(controls, 1), ant_model()
    logs = []
    for run in range(runs):
        jumps = np.abs(np.diff(path[run, ::4, :3], axis=0)).max(1) > 0.5  # begins anew
        length = int(np.argmax(jumps)) if jumps.any() else control.shape[1]
        if length < 30:
            continue
        log = readings(model, path[run, : 4 * length + 1], 4, ANT_IMU, noise, rng)
        logs.append(log | {"control": np.concatenate([control[run, :length], control[run, length - 1 : length]])})
    return logs


GO1_IMU = Mounting((-0.01592, -0.06659, -0.00617), (0.0, 0.0, 0.0, 1.0))
GO1_STEPS = 10
"""Simulation steps of a frame of 20 ms."""
_LEGS = ("FR", "FL", "RR", "RL")
_LINK = 0.213


def go1_text(asset: Path, seed: int, truth: dict[str, float] | None = None, *, worn: bool = True) -> str:
    """Return the MJCF of a Go1 that carries a payload, with worn, late servos and a softer floor, or as declared.

    `truth` gets the drawn quantities, by the names of an adaptation.
    """
    rng, spec = np.random.default_rng([8, seed]), mujoco.MjSpec.from_file(str(asset))
    truth = {} if truth is None else truth

    def drawn(name: str, low: float, high: float, declared: float) -> float:
        value = rng.uniform(low, high)
        truth[name] = value
        return value if worn else declared

    for geom in list(spec.geoms):
        if geom.type == mujoco.mjtGeom.mjGEOM_MESH:
            spec.delete(geom)
    for one in [*spec.meshes, *spec.lights, *spec.cameras]:
        spec.delete(one)
    spec.option.timestep = 0.02 / GO1_STEPS
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.worldbody.add_geom(
        name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[20, 20, 0.1],
        friction=[drawn("contact.friction", 0.4, 0.8, 0.6), 0.005, 1e-4],
        solref=[drawn("contact.solref.timeconst", 0.02, 0.04, 0.02), 1.0],
    )  # fmt: skip
    truth["contact.solref.timeconst"] = 0.5 * (0.02 + truth["contact.solref.timeconst"])  # with that of the feet
    for geom in spec.geoms:
        if geom.name != "floor" and "foot" not in geom.name:
            geom.contype = geom.conaffinity = 0
        elif geom.name != "floor":
            geom.friction[0], geom.priority = 0.1, 0
            geom.solref = [0.02, 1.0]
    place = [drawn(f"payload.{axis}", -0.06, 0.06, 0.0) for axis in "xy"]
    mass, truth["payload.z"] = drawn("payload.mass", 1.5, 3.0, 0.0), 0.09
    if worn:
        spec.body("trunk").add_body(name="payload", pos=[*place, 0.09]).add_geom(
            type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.04, 0, 0], mass=mass, contype=0, conaffinity=0
        )
    for joint in spec.joints:
        if joint.type != mujoco.mjtJoint.mjJNT_HINGE:
            continue
        joint.armature, joint.frictionloss = 0.006, drawn(f"{joint.name}.friction", 0.1, 0.4, 0.2)
        joint.damping = [drawn(f"{joint.name}.damping", 0.05, 0.3, 0.1), 0, 0]
        truth[f"actuator.{joint.name}.kd"], truth[f"{joint.name}.armature"] = 1.5, joint.armature
        kp, kd = 60.0 * drawn(f"actuator.{joint.name}.kp", 0.75, 1.0, 1.0), 1.5
        truth[f"actuator.{joint.name}.kp"] *= 60.0
        motor = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        motor.set_to_position(kp=kp, kv=kd)
        if worn:
            motor.dyntype = mujoco.mjtDyn.mjDYN_FILTEREXACT
            motor.dynprm[0] = truth["motors.lag"] = 0.012
        motor.forcerange, motor.forcelimited = [-23.7, 23.7], 1
    return spec.to_xml()


def _stance(x: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return thigh and calf angles that place a foot x ahead of and z below its hip [m]."""
    reach = np.clip(np.hypot(x, z), 0.05, 2 * _LINK - 1e-3)
    calf = -2.0 * np.arccos(reach / (2 * _LINK))
    return np.arctan2(-x, z) - 0.5 * calf, calf


def _gait(rng: Generator, frames: int) -> np.ndarray:
    """Return targets of a run, shape [frames, 12]: trots at drawn speeds and turns, squats and rests."""
    t = np.arange(frames) * 0.02
    parts = (t / 2.0).astype(int)

    def smooth(values: np.ndarray) -> np.ndarray:
        return np.convolve(np.pad(values[parts], 7, mode="edge"), np.ones(15) / 15, mode="valid")

    def drawn(low: float, high: float) -> np.ndarray:
        return smooth(rng.uniform(low, high, parts[-1] + 1))

    moving = smooth((rng.random(parts[-1] + 1) < 0.8).astype(float))
    ahead, turn, side, height = drawn(-0.3, 0.6), drawn(-0.8, 0.8), drawn(-0.12, 0.12), drawn(0.24, 0.31)
    phase = 2 * np.pi * rng.uniform(1.7, 2.4) * t
    targets = np.zeros((frames, 12))
    for k, leg in enumerate(_LEGS):
        own = phase + (np.pi if leg in ("FR", "RL") else 0.0)
        left = 1.0 if leg[1] == "L" else -1.0
        stride = 0.22 * (ahead - 0.13 * left * turn) * moving
        lift = 0.06 * np.clip(np.sin(own), 0.0, None) * moving
        targets[:, 3 * k] = 0.5 * side * moving * np.cos(own)
        targets[:, 3 * k + 1], targets[:, 3 * k + 2] = _stance(stride * np.cos(own), height - lift)
    return targets


def go1(
    asset: Path, seed: int, runs: int = 9, frames: int = 1000, noise: Noise = Noise(attitude=(5e-3, 1e-3))
) -> tuple[str, list[dict[str, np.ndarray]]]:
    """Return the MJCF of a Go1 and its log at 50 Hz; see `readings`."""
    text = go1_text(asset, seed)
    model, rng = mujoco.MjModel.from_xml_string(text), np.random.default_rng([9, seed])
    joints = [f"{leg}_{part}_joint" for leg in _LEGS for part in ("hip", "thigh", "calf")]
    order = [int(model.joint(name).qposadr[0]) - 7 for name in joints]
    logs = []
    while len(logs) < runs:
        data, targets = mujoco.MjData(model), np.zeros((frames + 1, 12))
        targets[:, order] = _gait(rng, frames + 1)
        data.qpos[:3], data.qpos[7:] = (0.0, 0.0, 0.32), targets[0]
        data.act[:] = targets[0]
        path = [np.concatenate([data.qpos, data.qvel])]
        for frame in range(frames):
            data.ctrl[:] = targets[frame]
            for _ in range(GO1_STEPS):
                mujoco.mj_step(model, data)
                path.append(np.concatenate([data.qpos, data.qvel]))
            if matrices(data.qpos[3:7])[2, 2] < 0.7:
                break
        whole = (len(path) - 1) // GO1_STEPS
        if whole > 100:
            log = readings(model, np.array(path), GO1_STEPS, GO1_IMU, noise, rng)
            logs.append(log | {"control": targets[: whole + 1]})
    return text, logs
