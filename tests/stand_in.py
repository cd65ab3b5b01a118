# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a robot: a cartpole in plain MuJoCo that no declaration describes, and logs of it.

The cart is a fifth heavier than declared, the rail brakes, the pole is longer and its joint rubs. Logs hold torques, or
position targets of a PD controller that acts in every millisecond.
"""

import mujoco
import numpy as np

from neurodyn.core.description.drive import Drive
from neurodyn.data.header import Split, StoreHeader, episode_table
from neurodyn.data.store import Store
from neurodyn.robots import load

WORN = """
<mujoco>
  <option timestep=".0008333333333333334" gravity="0 0 -9.81"/>
  <worldbody>
    <body name="cart">
      <inertial pos="0 0 0" mass="60" diaginertia="1.2 1.2 2.1"/>
      <joint name="slider" type="slide" axis="1 0 0" damping="40"/>
      <body name="pole">
        <inertial pos="0 0 .6" mass="2.5" diaginertia=".3 .3 .011"/>
        <joint name="hinge" type="hinge" axis="0 1 0" damping=".15"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="slider"/></actuator>
</mujoco>
"""
KP, KD = 800.0, 250.0
DRIVES = {"*": Drive(kind="pd", kp=KP, kd=KD, effort_limit=1500.0)}
STEPS = 20
"""Steps of the simulation in a frame of 1/60 s."""


def log(episodes: int = 16, frames: int = 60, seed: int = 0, *, targets: bool = True) -> Store:
    """Return a log of the stand-in under smooth random targets of the cart [m], or the torques that these caused [N].

    Of eight episodes six are for training, one for validation, one for test.
    """
    model, rng = mujoco.MjModel.from_xml_string(WORN), np.random.default_rng(seed)
    data, rows = mujoco.MjData(model), []
    for _ in range(episodes):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = rng.uniform([-1.0, -3.0], [1.0, 3.0]), rng.uniform(-1.0, 1.0, 2)
        path = np.repeat(rng.uniform(-1.0, 1.0, frames // 10 + 1), 10)
        for frame in range(frames + 1):
            before, total = np.concatenate([data.qpos, data.qvel]), 0.0
            for _ in range(STEPS):
                force = KP * (path[frame] - data.qpos[0]) - KD * data.qvel[0]
                data.ctrl[0] = np.clip(force, -1500.0, 1500.0)
                total += data.ctrl[0] / STEPS
                mujoco.mj_step(model, data)
            rows.append([*before, path[frame] if targets else total])
    part = np.arange(episodes) % 8
    split = np.where(part == 6, Split.VALIDATION, np.where(part == 7, Split.TEST, Split.TRAIN))
    table = episode_table([frames] * episodes, split=split)
    spec = load("cartpole").behind(DRIVES).spec if targets else load("cartpole").spec
    header = StoreHeader(spec=spec, source="log", drives=DRIVES if targets else {})
    return Store(header, np.array(rows, np.float32), table)
