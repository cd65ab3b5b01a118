# SPDX-License-Identifier: Apache-2.0
"""The ant running, spinning, and spinning at a given rate (NeRD, arXiv 2508.15755); a planar runner."""

from collections.abc import Mapping

import torch
from torch import Tensor

from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.quantities import Quantities, base_rotation
from neurodyn.geometry import rotation
from neurodyn.geometry.tensors import constant
from neurodyn.tasks.commands import TURNING, Command, VelocityCommand
from neurodyn.tasks.observations import POLICY, SENSED, Memory, ObservationTerm, ObservationTerms, each
from neurodyn.tasks.task import Task, reset_states

TORQUE = 400.0
"""Torque limit of a joint [N m]."""
LOWEST = 0.3
"""Base height below which the ant has fallen [m]."""
SPIN = 5.0
"""Target yaw rate of tracking [rad/s]."""
_JOINTS = ("hip_1", "ankle_1", "hip_2", "ankle_2", "hip_3", "ankle_3", "hip_4", "ankle_4")


class Ant(Task):
    """Base class of the ant's tasks: torques, observation, falling, and starts facing along x."""

    robot = "ant"
    needs = (
        "base_height", "base_orientation", "base_linear_velocity", "base_angular_velocity", "joint_position",
        "joint_velocity",
    )  # fmt: skip
    actions = _JOINTS
    action_scale = (TORQUE,) * len(_JOINTS)
    action_meaning = "joint torque [N m]"
    frames = 500

    def start(self, worlds: int, generator: torch.Generator) -> State:
        """Draw the robot's resets, facing along x."""
        return reset_states(self.declaration(), worlds, generator, heading=(0.0, 0.0))

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return joint torques."""
        return Control(torque=TORQUE * action)

    def observation_terms(self) -> ObservationTerms:
        """Return height, orientation, velocities in the world, joints, and the projections of up and heading."""
        terms = (
            ObservationTerm("height", "base_height"),
            ObservationTerm("base_orientation", columns=("qx", "qy", "qz", "qw")),
            ObservationTerm("velocity", lambda now, memory: world_velocity(now)[0], ("vx", "vy", "vz")),
            ObservationTerm("angular_velocity", lambda now, memory: world_velocity(now)[1], ("wx", "wy", "wz")),
            ObservationTerm("joint_position", columns=_JOINTS),
            ObservationTerm("joint_velocity", columns=each("{}_velocity", _JOINTS)),
            UP,
            HEADING,
        )
        return {POLICY: terms, SENSED: (DIRECTION,)}

    def terminated(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return whether the base is too low."""
        return quantities["base_height"][:, 0] < LOWEST


class AntRun(Ant):
    r"""$r = v_x + 0.1\,up + heading$, along the world's x."""

    name = "ant-run"

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return progress, uprightness and heading."""
        progress = world_velocity(quantities)[0][:, 0]
        return {"progress": progress, "up": 0.1 * up(quantities), "heading": heading(quantities)}


class AntSpin(Ant):
    r"""$r = w_{up} + up$."""

    name = "ant-spin"

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return the rate about the vertical, and uprightness."""
        return {"spin": world_velocity(quantities)[1][:, 2], "up": up(quantities)}


class AntSpinTrack(Ant):
    r"""$r = 5 \exp(-(w_{up} - 5)^2 - 0.1 w_x^2 - 0.1 w_y^2) + 0.1\,up$."""

    name = "ant-spin-track"

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return the tracking of the rate, and uprightness."""
        wx, wy, wz = world_velocity(quantities)[1].unbind(-1)
        off = (wz - SPIN).square() + 0.1 * wx.square() + 0.1 * wy.square()
        return {"track": 5.0 * torch.exp(-off), "up": 0.1 * up(quantities)}

    def commanded(self, quantities: Quantities, memory: Memory) -> Mapping[str, Command]:
        """Return the target rate about the vertical beside the robot's."""
        rate = world_velocity(quantities)[1][:, 2:]
        return {TURNING: VelocityCommand.of(torch.full_like(rate, SPIN), rate)}


def world_velocity(quantities: Quantities) -> tuple[Tensor, Tensor]:
    """Return linear velocity of the base's origin and angular velocity, world axes, each of shape [worlds, 3]."""
    linear, angular = quantities.derive("world_velocity", _world_velocities).unbind(1)
    return linear, angular


def _world_velocities(quantities: Quantities) -> Tensor:
    """Return both velocities of the base, world axes, shape [worlds, 2, 3]."""
    rows = torch.stack([quantities["base_linear_velocity"], quantities["base_angular_velocity"]], 1)
    return rotation.rotate_rows(rows, base_rotation(quantities).mT)


def up(quantities: Quantities) -> Tensor:
    """Return the vertical component of the base's z axis, shape [worlds]."""
    return base_rotation(quantities)[:, 2, 2]


def heading(quantities: Quantities) -> Tensor:
    """Return the world x component of the base's x axis, shape [worlds]."""
    return base_rotation(quantities)[:, 0, 0]


def direction(quantities: Quantities) -> Tensor:
    """Return the horizontal part of the base's x axis, as a unit vector in the world, shape [worlds, 2]."""
    return torch.nn.functional.normalize(base_rotation(quantities)[:, :2, 0], dim=-1)


UP = ObservationTerm("up", lambda now, memory: up(now)[:, None])
HEADING = ObservationTerm("heading", lambda now, memory: heading(now)[:, None])
DIRECTION = ObservationTerm(
    "direction", lambda now, memory: direction(now), ("direction_x", "direction_y"), sensor="heading"
)
"""Horizontal direction of the base's x axis, which an attitude filter integrates from the start on."""


_LEGS = ("hind_hip", "hind_knee", "hind_ankle", "front_hip", "front_knee", "front_ankle")
_RUNNER_JOINTS = ("x", "z", "pitch", *_LEGS)
EFFORT = 0.1
"""Cost of full actions of all joints."""


class PlanarRun(Task):
    r"""$r = \dot x + \cos\theta - 0.1\,\overline{a^2}$ with the pitch of the trunk and the mean of squared actions.

    Episodes never end early.
    """

    name = "planar-run"
    robot = "planar-runner"
    needs = ("joint_position", "joint_velocity")
    actions = _LEGS
    action_scale = (90.0, 70.0, 40.0, 90.0, 70.0, 40.0)
    action_meaning = "joint torque [N m]"
    frames = 300

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return joint torques."""
        return Control(torque=action * constant(self.action_scale, action))

    def observation_terms(self) -> ObservationTerms:
        """Return the positions of all joints except the travelled distance, and all joint velocities."""
        terms = (
            ObservationTerm("pose", lambda now, memory: now["joint_position"][:, 1:], _RUNNER_JOINTS[1:]),
            ObservationTerm("joint_velocity", columns=each("{}_velocity", _RUNNER_JOINTS)),
        )
        return {POLICY: terms}

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return rewards of progress and a level trunk, and the cost of effort."""
        return {
            "progress": quantities["joint_velocity"][:, 0],
            "level": quantities["joint_position"][:, 2].cos(),
            "effort": -EFFORT * action.square().mean(-1),
        }

    def terminated(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return false everywhere: lying on its back earns less than standing."""
        return torch.zeros_like(quantities["joint_velocity"][:, 0], dtype=torch.bool)
