# SPDX-License-Identifier: Apache-2.0
"""Stand-in robots in plain MuJoCo, with faults that no declaration has, and logs of them."""

from pathlib import Path

import mujoco
import numpy as np

from neurodyn.data.header import Split, StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter
from neurodyn.robots import ROBOTS, load

GAIN, LAG, DAMPING = 0.8, 0.03, 0.4


def worn_cartpole(*, gain: float = GAIN, lag: float = LAG, damping: float = DAMPING) -> mujoco.MjModel:
    """Return the cartpole with a weak and slow motor, and a hinge that rubs."""
    spec = mujoco.MjSpec.from_file(str(ROBOTS["cartpole"].parent / "cartpole.urdf"))
    robot = load("cartpole")
    spec.option.timestep = robot.dt / 20
    for joint in spec.joints:
        joint.armature = 0.01 if joint.name == "slider" else 0.0
        joint.limited = False
        joint.damping = [damping if joint.name == "hinge" else 0.0, 0, 0]
    motor = spec.add_actuator(name="motor", target="slider", trntype=mujoco.mjtTrn.mjTRN_JOINT)
    motor.gainprm[0] = gain
    if lag:
        motor.dyntype, motor.dynprm[0] = mujoco.mjtDyn.mjDYN_FILTEREXACT, lag
    return spec.compile()


def cartpole_log(
    path: Path, model: mujoco.MjModel, *, episodes: int = 16, frames: int = 120, seed: int = 0, noise: float = 1e-3
) -> Store:
    """Write a log of random forces on a cartpole, with noise of the sensors [rad, m; tenfold for velocities]."""
    robot, rng, data = load("cartpole"), np.random.default_rng(seed), mujoco.MjData(model)
    substeps = round(robot.dt / model.opt.timestep)
    q, qd, control = (
        np.zeros((episodes, frames + 1 - last, width), np.float32) for last, width in ((0, 2), (0, 2), (1, 1))
    )
    for episode in range(episodes):
        mujoco.mj_resetData(model, data)
        data.qpos[:] = rng.uniform(-1, 1), rng.uniform(-np.pi, np.pi)
        data.qvel[:] = rng.uniform(-1, 1, 2)
        force = 0.0
        for frame in range(frames):
            q[episode, frame], qd[episode, frame] = data.qpos, data.qvel
            force = 0.8 * force + rng.normal(0, 300)
            control[episode, frame] = force = float(np.clip(force - 400 * data.qpos[0], -1500, 1500))
            data.ctrl[0] = force
            mujoco.mj_step(model, data, substeps)
        q[episode, -1], qd[episode, -1] = data.qpos, data.qvel
    q += rng.normal(0, noise, q.shape)
    qd += rng.normal(0, 10 * noise, qd.shape)
    split = np.full(episodes, Split.TRAIN, np.int8)
    split[-6:-3], split[-3:] = Split.VALIDATION, Split.TEST
    with StoreWriter(path, StoreHeader(spec=robot.spec, source="log")) as writer:
        writer.append(q, qd, control, lengths=np.full(episodes, frames), split=split)
    return Store.open(path)
