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
from numpy.random import Generator

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
    import worn_ants  # a sibling
    from neurodyn.policy.evaluation import load_policy
    from neurodyn.tasks import load

    rng, task = np.random.default_rng([7, seed]), load("ant-run")
    from neurodyn.control import SampledStarts
    from neurodyn.policy.evaluation import play

    noisy = rng.choice((0.0, 0.3, 0.6), runs)
    random = rng.random(runs) < 0.25

    class Recorded(worn_ants.AntInMujoco):
        def step(self, carry, state, control):
            torque = worn_ants.frame_command(self.spec, state, control).detach().double().numpy()
            most = 400.0
            drift[:] = 0.8 * drift + 0.6 * rng.normal(0.0, 1.0, drift.shape)
            torque = np.where(random[:, None], 0.5 * most * drift, torque + noisy[:, None] * 0.5 * most * drift)
            torque = np.clip(torque, -most, most)
            held = np.repeat(torque[:, None], self._substeps, 1)
            full = self._runner.rollout(self._model, self._data, carry, held)[0]
            if len(paths) < frames:
                first = carry[:, None] if not paths else full[:, :0]
                paths.append(np.concatenate([first, full], 1)[..., 1 : 1 + self._model.nq + self._model.nv])
                controls.append(torque)
            after = full[:, -1]
            import torch

            return after, worn_ants.Step(state=self._seen(torch.from_numpy(after), state.q))

        def reset(self, carry, context, mask):
            ended.append(mask.numpy().astype(bool).copy())
            return super().reset(carry, context, mask)

    drift = np.zeros((runs, 8))
    paths: list[np.ndarray] = []
    controls: list[np.ndarray] = []
    ended: list[np.ndarray] = []
    plant = Recorded("WornAnt")
    policy = load_policy("pretrained-policy:ant-run")[1]
    import msgspec

    play(policy, task, plant, SampledStarts(task, seed=seed), runs, seed=seed)
    del msgspec
    path, control = np.concatenate(paths, 1), np.stack(controls, 1)
    model = plant._model
    logs = []
    for run in range(runs):
        jumps = np.abs(np.diff(path[run, ::4, :3], axis=0)).max(1) > 0.5  # restarted
        length = int(np.argmax(jumps)) if jumps.any() else control.shape[1]
        if length < 30:
            continue
        log = readings(model, path[run, : 4 * length + 1], 4, ANT_IMU, noise, rng)
        logs.append(log | {"control": np.concatenate([control[run, :length], control[run, length - 1 : length]])})
    return logs
