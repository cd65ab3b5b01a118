# SPDX-License-Identifier: Apache-2.0
"""ANYmal walking forward or sideways at 1 m/s (NeRD, arXiv 2508.15755)."""

import torch
from torch import Tensor

from neurodyn.dynamics.interface import Control, State
from neurodyn.dynamics.quantities import Quantities
from neurodyn.geometry.constants import constant
from neurodyn.tasks.resets import reset_states
from neurodyn.tasks.task import Memory, Task

KP, KD = 85.0, 2.0
"""Gains of the joint controller [N m/rad, N m s/rad]."""
RANGE = 0.5
"""Greatest offset of a joint's target from the nominal pose [rad]."""
LOWEST = 0.4
"""Height of the base below which it has fallen [m]."""
_JOINTS = tuple(f"{leg}_{joint}" for leg in ("LF", "RF", "LH", "RH") for joint in ("HAA", "HFE", "KFE"))


class AnymalWalk(Task):
    r"""$r = \max(0,\ e^{-|v_{xy} - v^*|^2} + 0.5\,e^{-w_{up}^2} - 2.5 \cdot 10^{-5} \sum \tau^2)$.

    Velocities are in base axes. An episode ends where base or knees touch the ground, or the base is too low.

    Attributes:
        velocity: The target v* [m/s].
    """

    robot = "anymal-c"
    needs = (
        "base_height", "base_linear_velocity", "base_angular_velocity", "projected_gravity", "joint_position",
        "joint_velocity", "joint_torque",
    )  # fmt: skip
    contacts = ("BASE", "LF_KNEE", "RF_KNEE", "LH_KNEE", "RH_KNEE")
    observations = (
        "vx", "vy", "vz", "wx", "wy", "wz", "gravity_x", "gravity_y", "gravity_z", *_JOINTS,
        *(f"{joint}_velocity" for joint in _JOINTS), *(f"{joint}_action" for joint in _JOINTS),
    )  # fmt: skip
    actions = _JOINTS
    action_scale = (RANGE,) * len(_JOINTS)
    action_meaning = "offset of the joint target from the nominal pose [rad]"
    frames = 1000
    velocity: tuple[float, float]

    def __init__(self) -> None:
        self._robot = self.declaration()

    def start(self, worlds: int, generator: torch.Generator) -> State:
        """Draw the robot's resets, looking along x."""
        return reset_states(self._robot, worlds, generator, heading=(0.0, 0.0))

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return joint targets about the nominal pose."""
        return Control(target=torch.add(self.nominal(action), action, alpha=RANGE), **gains(action))

    def observe(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return velocities, gravity, joints about the nominal pose, and the last action."""
        return torch.cat(
            [
                quantities["base_linear_velocity"], quantities["base_angular_velocity"],
                quantities["projected_gravity"], quantities["joint_position"] - self.nominal(memory.action),
                quantities["joint_velocity"], memory.action,
            ],
            dim=-1,
        )  # fmt: skip

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return the reward; one term, because it is cut off at zero as a whole."""
        wanted = constant(self.velocity, action)
        off = (quantities["base_linear_velocity"][:, :2] - wanted).square().sum(-1)
        # The rate about the vertical: gravity in base axes points down.
        turn = -(quantities["base_angular_velocity"] * quantities["projected_gravity"]).sum(-1)
        effort = quantities["joint_torque"].square().sum(-1)
        return {"track": (torch.exp(-off) + 0.5 * torch.exp(-turn.square()) - 2.5e-5 * effort).clamp_min(0.0)}

    def terminated(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return where base or knees touch the ground, or the base is too low."""
        touching = (quantities.contacts(self.contacts) > 0.5).any(-1)
        return touching | (quantities["base_height"][:, 0] < LOWEST)


def gains(like: Tensor) -> dict[str, Tensor]:
    """Return the gains of the joint controllers as `kp` and `kd` of a control, shape [1, actions] each."""
    return {name: constant(((gain,) * like.shape[-1],), like) for name, gain in (("kp", KP), ("kd", KD))}


class AnymalForward(AnymalWalk):
    """Walking along the base's x."""

    name = "anymal-forward"
    velocity = (1.0, 0.0)


class AnymalSide(AnymalWalk):
    """Walking along the base's y."""

    name = "anymal-side"
    velocity = (0.0, 1.0)
