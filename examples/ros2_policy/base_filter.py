# SPDX-License-Identifier: Apache-2.0
"""The base's velocity by neurodyn's causal filter, for policies that observe it on a robot without odometry.

It needs neurodyn, an accelerometer, and a declaration of the robot with contact points (`neurodyn init`).
"""

import msgspec
import torch

from neurodyn.control import BaseFollower, SensedReading
from neurodyn.dynamics import declared_hybrid, load
from neurodyn.robots import load as load_robot


class BaseFilter:
    """Follows the base from joints and IMU, whose axes are those of the base.

    Attributes:
        joints: Joints behind the base, in the order of the declaration.
        controls: Controlled joints, in that order.
    """

    def __init__(self, robot, dt, run=""):
        """Take a robot by name or folder, and frames of `dt` [s]; `run` is a model adapted to it, "" for the declared.

        Raises an InputError if there is no such robot, or nothing to follow it by.
        """
        declared = msgspec.structs.replace(load_robot(robot), dt=dt)
        self._model = load(run) if run else declared_hybrid(declared)
        if abs(self._model.spec.dt - dt) > 1e-6 * dt:
            raise ValueError(f"frames of {run} are {self._model.spec.dt:g} s; valid: the policy's, {dt:g} s")
        self._follower = BaseFollower(declared, self._model)
        spec = declared.spec
        self.joints, self.controls = spec.q_names[spec.joint_q], spec.controls

    def restart(self):
        """Begin anew, at rest."""
        self._follower.restart()

    def update(self, measured, commands, now):
        """Store the velocity of the base's origin, in its axes, after a frame under these `commands`, by joint.

        Of a robot that is declared with torques, the joints' measured efforts count instead.
        """
        if measured.force is None or any(name not in measured.position for name in self.joints):
            return
        reading = SensedReading(
            torch.tensor(measured.angular), torch.tensor(measured.gravity), torch.tensor(measured.quaternion),
            torch.tensor(measured.force), None,
        )  # fmt: skip
        q = [measured.position[name] for name in self.joints]
        qd = [measured.velocity[name] for name in self.joints]
        if self._model.spec.control_kind == "torque":  # which servos made of the commands
            control = [measured.effort.get(name, 0.0) for name in self.controls]
        else:
            control = [commands.get(name, measured.position[name]) for name in self.controls]
        state = self._follower.follow(q, qd, control, reading)
        measured.linear = self._model.quantities(state)["base_linear_velocity"][0].tolist()
        measured.at["odometry"] = now
