# SPDX-License-Identifier: Apache-2.0
"""A two-joint arm with position servos on a post, its logs in plain MuJoCo, and what a motion does to it."""

from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from neurodyn.data.header import Split, StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter
from neurodyn.robots import Robot, load

XML = """<mujoco model="arm">
  <compiler angle="radian"/>
  <option integrator="implicitfast"/>
  <worldbody>{extra}
    <body name="upper" pos="0 0 {height}">
      <joint name="shoulder" axis="0 1 0" range="-2.5 2.5" damping=".2" armature=".05" frictionloss="{friction}"/>
      <geom type="capsule" fromto="0 0 0 0 0 .3" size=".03" mass="1"/>
      <body name="lower" pos="0 0 .3">
        <joint name="elbow" axis="0 1 0" range="-2.8 2.8" damping=".1" armature=".02" frictionloss="{friction}"/>
        <geom type="capsule" fromto="0 0 0 0 0 .25" size=".025" mass=".6"/>
        <body name="tool" pos="0 0 .25"><geom type="sphere" size=".04" mass="{load}"/></body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position name="shoulder" joint="shoulder" kp="{kp}" kv="6" forcerange="-40 40"/>
    <position name="elbow" joint="elbow" kp="80" kv="2" forcerange="-15 15"/>
  </actuator>
</mujoco>"""
DECLARATION = """
name: arm
asset: robot.xml
joints:
  - {name: shoulder, kind: revolute, lower: -2.5, upper: 2.5}
  - {name: elbow, kind: revolute, lower: -2.8, upper: 2.8}
actuated: {shoulder: 40, elbow: 15}
dt: 0.01
simulator: {solver: mujoco-c, substeps: 5}
drives:
  shoulder: {kind: servo, kp: 200, kd: 6, effort_limit: 40}
  elbow: {kind: servo, kp: 80, kd: 2, effort_limit: 15}
"""


def text(*, friction: float = 0.0, load: float = 0.1, kp: float = 200.0, height: float = 0.3, extra: str = "") -> str:
    return XML.format(friction=friction, load=load, kp=kp, height=height, extra=extra)


def declared(folder: Path, **numbers: Any) -> Robot:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "robot.xml").write_text(text(**numbers))
    (folder / "robot.yaml").write_text(DECLARATION)
    return load(str(folder))


def plant(**numbers: Any) -> mujoco.MjModel:
    model = mujoco.MjModel.from_xml_string(text(**numbers))
    model.opt.timestep = 0.001
    return model


def played(model: mujoco.MjModel, targets: np.ndarray, dt: float, rest: np.ndarray) -> dict[str, np.ndarray]:
    """Return positions, velocities, torques and the number of contacts in each frame of a motion, from rest."""
    data = mujoco.MjData(model)
    data.qpos[:] = rest
    data.ctrl[:] = targets[0]
    substeps = round(dt / model.opt.timestep)
    mujoco.mj_step(model, data, 1500)
    rows: dict[str, list[np.ndarray]] = {"q": [], "qd": [], "torque": [], "contacts": []}
    for target in targets:
        for name, value in (("q", data.qpos), ("qd", data.qvel), ("torque", data.actuator_force)):
            rows[name].append(value.copy())
        rows["contacts"].append(np.array(data.ncon))
        data.ctrl[:] = target
        mujoco.mj_step(model, data, substeps)
    return {name: np.array(values) for name, values in rows.items()}


def write_log(path: Path, robot: Robot, model: mujoco.MjModel, *, episodes: int = 8, size: float = 0.4) -> Store:
    """Write a log of slow motions about the upright pose, with noise of the encoders."""
    rng, frames = np.random.default_rng(0), 150
    q, qd, control = (np.zeros((episodes, frames + (name != "u"), 2), np.float32) for name in ("q", "v", "u"))
    t = np.arange(frames + 1)[:, None] * robot.dt
    for episode in range(episodes):
        wave = sum(
            rng.uniform(-size, size, 2) * np.sin(2 * np.pi * rate * t + rng.uniform(0, 6, 2)) for rate in (0.4, 1.1)
        )
        path_ = played(model, wave, robot.dt, wave[0])
        q[episode], qd[episode], control[episode] = path_["q"], path_["qd"], wave[:-1]
    q += rng.normal(0, 2e-4, q.shape)
    qd += rng.normal(0, 2e-3, qd.shape)
    split = np.full(episodes, Split.TRAIN, np.int8)
    split[-3:-1], split[-1:] = Split.VALIDATION, Split.TEST
    with StoreWriter(path, StoreHeader(spec=robot.spec, source="log")) as writer:
        writer.append(q, qd, control, lengths=np.full(episodes, frames), split=split)
    return Store.open(path)
