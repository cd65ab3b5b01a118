# SPDX-License-Identifier: Apache-2.0
"""Robots for tests: a cartpole in plain MuJoCo, and others that go wrong."""

import os
import time
from pathlib import Path

import mujoco
import numpy as np

MODEL = """
<mujoco>
  <option timestep="0.0033333333333333335"/>
  <worldbody>
    <body><joint name="slider" type="slide" axis="1 0 0" armature="0.01"/>
      <inertial pos="0 0 0" mass="50" diaginertia="1 1 1"/>
      <body><joint name="hinge" type="hinge" axis="0 1 0" armature="0.01"/>
        <inertial pos="0 0 .5" mass="2.5" diaginertia=".2 .2 .01"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="slider"/></actuator>
</mujoco>
"""


def say(text: str) -> None:
    """Append a line to the file that the test watches."""
    file = os.environ.get("ROBOT_SAYS")
    if file:
        with Path(file).open("a") as out:
            out.write(text + "\n")


class Cartpole:
    """Hangs at rest, a little off the middle."""

    rate = 60.0
    realtime = False

    def __init__(self) -> None:
        self.model = mujoco.MjModel.from_xml_string(MODEL)
        self.data = mujoco.MjData(self.model)

    def reset(self) -> None:
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = 0.1, 3.0

    def observe(self) -> dict[str, object]:
        return {"q": self.data.qpos, "qd": self.data.qvel, "force": self.data.ctrl[0], "imu": self.data.qacc}

    def command(self, values: np.ndarray) -> None:
        say(f"command {values[0]:g}")
        self.data.ctrl[:] = values
        mujoco.mj_step(self.model, self.data, 5)

    def stop(self) -> None:
        say("stop")


class Blind(Cartpole):
    """Measures no velocities."""

    def observe(self) -> dict[str, object]:
        return {"q": self.data.qpos}


class RealTime(Cartpole):
    """Time goes on; without a `stop` of its own."""

    realtime = True
    patience = 0.25
    stop = None

    def observe(self) -> dict[str, object]:
        return {**super().observe(), "time": time.monotonic()}


class Hangs(Cartpole):
    """Does not return from the third measurement."""

    patience = 0.3
    seen = 0

    def observe(self) -> dict[str, object]:
        self.seen += 1
        if self.seen > 3:
            time.sleep(60)
        return super().observe()


class Raises(Hangs):
    """Reports a broken motor."""

    def observe(self) -> dict[str, object]:
        self.seen += 1
        if self.seen > 3:
            raise RuntimeError("motor 1 is too hot")
        return Cartpole.observe(self)


class Dies(Hangs):
    """Its process dies."""

    def observe(self) -> dict[str, object]:
        self.seen += 1
        if self.seen > 3:
            os._exit(9)
        return Cartpole.observe(self)


class Deaf(Hangs):
    """Neither returns nor stops."""

    def stop(self) -> None:
        if self.seen > 3:
            time.sleep(60)
        super().stop()


class Tumbles:
    """A body on which an ant's coordinates are measured, without velocities; its centre of mass goes straight on."""

    rate = 60.0
    realtime = False
    frame = 0
    com, spin = np.array([0.1, -0.2, 0.3]), np.array([0.4, -1.0, 2.0])

    def reset(self) -> None:
        self.frame = 0

    def observe(self) -> dict[str, object]:
        passed, speed = self.frame / 60, float(np.linalg.norm(self.spin))
        turn, moved = np.zeros(4), np.zeros(3)
        mujoco.mju_axisAngle2Quat(turn, self.spin / speed, speed * passed)
        mujoco.mju_rotVecQuat(moved, self.com, turn)
        place = np.array([0.5 * passed, 0.0, 1.0]) - moved
        return {"q": [*place, *turn[[1, 2, 3, 0]], *(0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0)]}

    def command(self, values: np.ndarray) -> None:
        self.frame += 1


class Short(Cartpole):
    def observe(self) -> dict[str, object]:
        return {"q": self.data.qpos[:1], "qd": self.data.qvel}


class NotFinite(Cartpole):
    def observe(self) -> dict[str, object]:
        return {"q": self.data.qpos, "qd": [float("nan"), 0.0]}


class Slow(Cartpole):
    rate = 50.0


class Fast(Cartpole):
    """Runs at five times the rate of the task."""

    rate = 300.0

    def command(self, values: np.ndarray) -> None:
        self.data.ctrl[:] = values
        mujoco.mj_step(self.model, self.data)


class NoObserve:
    rate = 60.0

    def reset(self) -> None: ...

    def command(self, values: np.ndarray) -> None: ...


class NeedsArguments(Cartpole):
    def __init__(self, port: int) -> None: ...


class Breaks(Cartpole):
    """Breaks after 700 frames where the file ROBOT_BREAKS is, which a mechanic removes."""

    frames = 0

    def observe(self) -> dict[str, object]:
        self.frames += 1
        if self.frames > 700 and Path(os.environ.get("ROBOT_BREAKS", "/nowhere")).exists():
            raise RuntimeError("a cable came off")
        return super().observe()


class Odd(Cartpole):
    control = "current"


class Runs(Cartpole):
    """Is at the end of its rail at once."""

    def command(self, values: np.ndarray) -> None:
        self.data.qpos[0] = 30.0
