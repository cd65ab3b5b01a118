# SPDX-License-Identifier: Apache-2.0
"""A policy's ONNX file on measured joints and an IMU: observations by name, commands, and safety limits.

This file does not depend on ROS, so that it can be tested without it. `neurodyn export POLICY` writes the ONNX file;
its metadata name the observations in order.
"""

import numpy as np
import onnxruntime

AXES = {"x": 0, "y": 1, "z": 2}
IMU = {"base_angular_velocity": "angular", "projected_gravity": "gravity", "gyroscope": "angular", "gravity": "gravity"}
BASE = {"base_linear_velocity": "linear", **IMU}


class Measured:
    """The robot's last measurements, and their times [s]; joints by name, vectors in base axes."""

    def __init__(self):
        self.position, self.velocity, self.effort = {}, {}, {}
        self.linear = self.angular = self.gravity = self.quaternion = self.force = None
        self.command = np.zeros(3)  # vx, vy [m/s], wz [rad/s]
        self.at = {}

    def joints(self, names, position, velocity, effort, now):
        """Store a sensor_msgs/JointState."""
        self.position.update(zip(names, position, strict=False))
        self.velocity.update(zip(names, velocity, strict=False))
        self.effort.update(zip(names, effort, strict=False))
        self.at["joints"] = now

    def imu(self, quaternion, angular, force, now):
        """Store a sensor_msgs/Imu: a quaternion x, y, z, w, angular velocity and specific force (acceleration)."""
        x, y, z, w = quaternion
        down = np.array([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)])
        self.gravity, self.angular = -down, np.array(angular)
        self.quaternion, self.force = np.array(quaternion), np.array(force)
        self.at["imu"] = now


class OnnxPolicy:
    """A policy with its memory.

    Attributes:
        joints: Controlled joints, in order.
        meaning: Meaning of its actions.
        dt: Time between two actions [s].
    """

    def __init__(self, path, nominal=None, joints=None):
        """Read a file; `nominal` holds the joint positions, by name, that positions and targets are relative to.

        `joints` are the controlled joints, if its actions have other names.
        """
        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        about = self._session.get_modelmeta().custom_metadata_map
        if about.get("kind") != "policy":
            raise ValueError(f"{path}: no policy; valid: what `neurodyn export POLICY` writes")
        self.names, actions = about["observation_names"].split(","), about["action_names"].split(",")
        self.joints, self.meaning, self.dt = list(joints or actions), about["action_meaning"], float(about["dt"])
        self._actions, self._nominal = actions, dict(nominal or {})
        self._history = int(about.get("history", "1"))
        if about.get("history_has_actions") == "True":
            raise ValueError(f"{path}: sees earlier actions, which this node does not keep; valid: other policies")
        if len(self.joints) != len(actions):
            raise ValueError(f"joints are {len(self.joints)}; valid: {len(actions)}, one for each action")
        self._memory_names = [one.name for one in self._session.get_inputs() if one.name != "observation"]
        self.restart()

    @property
    def needs(self):
        """Streams that the observations need: "joints", "imu", "odometry"."""
        kinds = {name.partition(".")[0] for name in self.names}
        imu = {"imu"} if kinds & {*IMU} else set()
        return {"joints"} | imu | ({"odometry"} if "base_linear_velocity" in kinds else set())

    def restart(self):
        """Clear the last action, earlier frames and the memory."""
        self.action = dict.fromkeys(self._actions, 0.0)
        self._frames = None
        shapes = {one.name: one.shape for one in self._session.get_inputs()}
        self._memory = {name: np.zeros((1, shapes[name][1]), np.float32) for name in self._memory_names}

    def observe(self, measured):
        """Return the observation of a frame, or raise a KeyError that names what is missing."""
        return np.array([self._value(name, measured) for name in self.names], np.float32)

    def act(self, measured):
        """Return the action in its unit, by joint: a torque, or an offset from the nominal position."""
        seen = self.observe(measured)
        self._frames = [seen] * self._history if self._frames is None else [seen, *self._frames[:-1]]
        given = {"observation": np.concatenate(self._frames)[None], **self._memory}
        outputs = [one.name for one in self._session.get_outputs()]
        found = dict(zip(outputs, self._session.run(None, given), strict=True))
        self._memory = {name: found[f"{name}_next"] for name in self._memory_names}
        self.action = dict(zip(self._actions, found["action"][0].tolist(), strict=True))
        return dict(zip(self.joints, found["scaled_action"][0].tolist(), strict=True))

    def target(self, joint, action):
        """Return the position target of a joint for its action."""
        return self._nominal.get(joint, 0.0) + action

    def _value(self, name, measured):
        kind, _, which = name.partition(".")
        if kind in BASE:
            return getattr(measured, BASE[kind])[AXES[which]]
        if kind == "command":
            return measured.command[("vx", "vy", "wz").index(which)]
        if kind == "joint_position":
            return measured.position[which] - self._nominal.get(which, 0.0)
        if kind == "joint_velocity":
            return measured.velocity[which]
        if kind == "last_action":
            return self.action[which]
        if name.endswith("_velocity") and name.removesuffix("_velocity") in measured.velocity:
            return measured.velocity[name.removesuffix("_velocity")]
        return measured.position[name] - self._nominal.get(name, 0.0)


class Safety:
    """Reasons to stop, and command limits.

    Attributes:
        why: Reason for the stop; empty while the robot may move.
    """

    def __init__(self, lower, upper, *, rate, timeout, tilt):
        """Set command limits by joint, maximum rate [1/s], maximum age of data [s] and maximum tilt [rad]."""
        self._lower, self._upper, self._rate, self._timeout, self._tilt = lower, upper, rate, timeout, tilt
        self._last, self.why = {}, "not started"

    def start(self):
        """Allow motion."""
        self._last, self.why = {}, ""

    def check(self, measured, needs, now):
        """Record a reason to stop: a silent stream, or a fallen robot."""
        for stream in sorted(needs):
            age = now - measured.at.get(stream, -np.inf)
            if age > self._timeout:
                self.why = self.why or f"nothing of {stream} for {age:.2f} s"
        if measured.gravity is not None and -measured.gravity[2] < np.cos(self._tilt):
            self.why = self.why or "tilted"
        return not self.why

    def limited(self, commands, dt):
        """Return commands within the limits and the maximum rate; None for a non-finite one, which stops."""
        found = {}
        for joint, value in commands.items():
            if not np.isfinite(value):
                self.why = self.why or f"the policy's command of {joint} is {value}"
                return None
            value = min(max(value, self._lower[joint]), self._upper[joint])
            before = self._last.get(joint, value)
            found[joint] = min(max(value, before - self._rate * dt), before + self._rate * dt)
        self._last = found
        return found
