# SPDX-License-Identifier: Apache-2.0
"""A Go1 in plain MuJoCo as a stand-in for one in the field: encoders and an IMU, no motion capture, undeclared faults.

It carries 2.5 kg off its centre, its servos are weak and follow their commands late, and its floor is soft. From its
first log to a policy for it, in two commands, `adapt` and `policy train` (`neurodyn init $GO1_SCENE --out go1` first):

export GO1_SCENE=.../mujoco_playground/_src/locomotion/go1/xmls/scene_mjx_feetonly_flat_terrain.xml
neurodyn policy train velocity@./go1 --dynamics hybrid --out policies/go1
neurodyn policy log policies/go1 --robot examples/sensed_go1.py:SensedGo1 --transitions 9000 --out logs/go1.h5
neurodyn adapt go1 --data logs/go1.h5 --out runs/go1
neurodyn evaluate runs/go1 --data logs/go1.true.h5 --states
neurodyn policy train velocity@./go1 --dynamics runs/go1 --out policies/adapted
neurodyn policy play policies/adapted --on examples/sensed_go1.py:SensedGo1 --out walk.html

It also returns its true state, to score episodes and estimates of its base by it. A robot leaves it out.
"""

import os

import mujoco
import numpy as np

from go1_minutes import installed_scene

NOISE = {"joints": 2e-3, "rates": 0.05, "gyroscope": 0.02, "force": 0.2, "attitude": 5e-3}
"""Standard deviations of a reading [rad, rad/s, rad/s, m/s^2, rad]."""
BIAS = {"gyroscope": 0.01, "force": 0.1}
"""Standard deviations of what an episode's readings are off by [rad/s, m/s^2]."""


class SensedGo1:
    """The Go1 with faults, 12.7 kg as declared.

    Attributes:
        payload: Mass on its back [kg].
        strength: Share of the servos' stiffness that is left.
        lag: Time constant with which they follow their commands [s].
        softness: Time constant of the floor's contacts [s].
    """

    base, control = "unmeasured", "command"
    rate = 50.0
    realtime = False  # runs as fast as it computes
    payload, strength, lag, softness = 2.5, 0.85, 0.012, 0.03

    def __init__(self):
        self.model = go1_model(self.payload, self.strength, self.lag, self.softness)
        self.data = mujoco.MjData(self.model)
        self.random = np.random.default_rng()
        self.steps = round(1.0 / self.rate / self.model.opt.timestep)
        self.imu = self.model.site("imu").pos.copy()

    def reset(self):
        """Stand the robot slightly above the floor, and draw the biases of its IMU."""
        mujoco.mj_resetDataKeyframe(self.model, self.data, self.model.key("home").id)
        self.data.qpos[2] += 0.02
        self.data.qpos[7:] += self.random.uniform(-0.1, 0.1, 12)
        self.data.act[:] = self.data.ctrl
        self.bias = {name: size * self.random.normal(size=3) for name, size in BIAS.items()}
        mujoco.mj_forward(self.model, self.data)
        self.before = self._velocity()[1]

    def _velocity(self):
        """Return rotation of the base, and velocity of the IMU in world axes."""
        turn = np.zeros(9)
        mujoco.mju_quat2Mat(turn, self.data.qpos[3:7])
        turn = turn.reshape(3, 3)
        return turn, self.data.qvel[:3] + turn @ np.cross(self.data.qvel[3:6], self.imu)

    def observe(self):
        """Return joints and IMU, in its axes, and the true state."""
        qpos, qvel, seen = self.data.qpos, self.data.qvel, np.zeros(4)
        turn, velocity = self._velocity()
        force = turn.T @ ((velocity - self.before) * self.rate + [0.0, 0.0, 9.81])
        self.before = velocity
        spin = turn @ qvel[3:6]
        centre = qvel[:3] + np.cross(spin, turn @ self.model.body("trunk").ipos)  # velocities are those of centres
        tilt = np.array([1.0, *(0.5 * NOISE["attitude"] * self.random.normal(size=3))])
        mujoco.mju_mulQuat(seen, tilt / np.linalg.norm(tilt), qpos[3:7])
        return {
            "q": self._noisy(qpos[7:], "joints"),
            "qd": self._noisy(qvel[6:], "rates"),
            "angular_velocity": self._noisy(qvel[3:6] + self.bias["gyroscope"], "gyroscope"),
            "specific_force": self._noisy(force + self.bias["force"], "force"),
            "orientation": [*seen[1:], seen[0]],
            "truth": [*qpos[:3], *qpos[4:7], qpos[3], *qpos[7:], *centre, *spin, *qvel[6:]],
        }

    def command(self, values):
        """Hold target positions of the servos for a frame [rad]."""
        self.data.ctrl[:] = values
        mujoco.mj_step(self.model, self.data, self.steps)

    def stop(self):
        """Hold the targets."""

    def _noisy(self, values, name):
        return values + NOISE[name] * self.random.normal(size=len(values))


def go1_model(payload, strength, lag, softness):
    """Return mujoco_playground's Go1 with faults."""
    spec = mujoco.MjSpec.from_file(os.environ.get("GO1_SCENE") or str(installed_scene()))
    spec.option.timestep, spec.option.iterations, spec.option.ls_iterations = 0.002, 100, 50
    for geom in list(spec.geoms):
        if geom.type == mujoco.mjtGeom.mjGEOM_MESH:
            spec.delete(geom)
        elif geom.name == "floor":
            geom.solref = [softness, 1.0]
    for mesh in list(spec.meshes):
        spec.delete(mesh)
    spec.body("trunk").add_body(name="payload", pos=[0.04, -0.03, 0.09]).add_geom(
        type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.04, 0, 0], mass=payload, contype=0, conaffinity=0
    )
    for servo in spec.actuators:
        servo.gainprm[0] *= strength
        servo.biasprm[1] *= strength
        servo.dyntype, servo.dynprm[0] = mujoco.mjtDyn.mjDYN_FILTEREXACT, lag
    return spec.compile()
