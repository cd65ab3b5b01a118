# SPDX-License-Identifier: Apache-2.0
"""Estimates of a causal filter, for planners and policies of the state on a robot without motion capture."""

from dataclasses import replace

import torch
from torch import Tensor

from neurodyn.control.robot.sensed import SensedReading
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.estimate import BaseFilter, EstimationSettings
from neurodyn.estimate.causal import FilterState
from neurodyn.estimate.sensed import SensedBatch
from neurodyn.geometry import rotation
from neurodyn.robots import Robot


class BaseFollower:
    """Follows the base of one robot by its readings and a model (`neurodyn.estimate.BaseFilter`)."""

    def __init__(self, robot: Robot, model: HybridDynamics | None = None) -> None:
        """Prepare a filter.

        Raises:
            InputError: The robot has no contact points, or joints of several axes.
        """
        model = declared_hybrid(robot) if model is None else model
        self._filter = BaseFilter(model, EstimationSettings.on_board(robot.sensors))
        self._state: FilterState | None = None
        self._place = torch.zeros(2, dtype=torch.float64)

    def restart(self) -> None:
        """Begin an episode, at the origin."""
        self._state, self._place = None, torch.zeros(2, dtype=torch.float64)

    def follow(self, q: list[float], qd: list[float], control: list[float], reading: SensedReading) -> State:
        """Return the state after a frame, or at the start.

        Args:
            q: Positions of the joints behind the base.
            qd: Their velocities.
            control: The command of the frame that ended.
            reading: Readings of the IMU.

        Raises:
            InputError: The robot has no accelerometer.
        """
        if not bool(reading.force.isfinite().all()):
            raise InputError("the state of the base is not known without 'specific_force'; valid: an accelerometer")
        parts = (q, qd, control, reading.gyroscope, reading.force, reading.attitude)
        rows = [torch.as_tensor(part).double()[None, None] for part in parts]
        sensed = SensedBatch(*rows, lengths=torch.ones(1, dtype=torch.long))
        base = self._filter
        if self._state is None:
            self._state = base.begin(sensed)
        else:  # the command acted from the last readings on
            before = replace(self._state, last=replace(self._state.last, control=sensed.control))
            self._state = base.step(before, sensed)
        track, mounting = self._state.track, base.mounting
        quaternion, velocity = track.quaternion[0, 0], track.velocity[0, 0]
        turn = rotation.matrix(quaternion[None])[0]
        spin = turn @ mounting.matrix @ (rows[3][0, 0] - track.gyroscope[0, 0])
        moved = velocity - torch.linalg.cross(spin, turn @ mounting.position)  # of the origin
        self._place = self._place + base.dt * moved[:2]
        linear = velocity + torch.linalg.cross(spin, base.model.arms(track.quaternion)[0, 0])
        position = torch.cat([self._place, track.height[0]])
        return State(_row(position, quaternion, rows[0][0, 0]), _row(linear, spin, rows[1][0, 0]))


def _row(*parts: Tensor) -> Tensor:
    return torch.cat(parts)[None].float()
