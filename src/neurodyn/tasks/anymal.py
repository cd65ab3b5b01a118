# SPDX-License-Identifier: Apache-2.0
"""ANYmal walking forward or sideways at 1 m/s (NeRD, arXiv 2508.15755).

Also following commanded velocities (Robotic World Model, arXiv 2501.10100).
"""

from collections.abc import Mapping

import msgspec
import torch
from torch import Tensor

from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.quantities import Quantities
from neurodyn.geometry.tensors import constant
from neurodyn.robots.sections import ContactMaterial, SimulatorConfig
from neurodyn.tasks.commands import SPEED, Command, VelocityCommand
from neurodyn.tasks.observations import POLICY, Memory, ObservationTerm, ObservationTerms, each
from neurodyn.tasks.task import Task, reset_states
from neurodyn.tasks.velocity import ASKED, UPRIGHT, VelocityTracking

KP, KD = 85.0, 2.0
"""Gains of the joint controller [N m/rad, N m s/rad]."""
RANGE = 0.5
"""Largest offset of a joint's target from the nominal pose [rad]."""
LOWEST = 0.4
"""Base height below which the robot has fallen [m]."""
_JOINTS = tuple(f"{leg}_{joint}" for leg in ("LF", "RF", "LH", "RH") for joint in ("HAA", "HFE", "KFE"))


class AnymalWalk(Task):
    r"""$r = \max(0,\ e^{-|v_{xy} - v^*|^2} + 0.5\,e^{-w_{up}^2} - 2.5 \cdot 10^{-5} \sum \tau^2)$.

    Velocities are in base axes. An episode ends when base or knees touch the ground, or the base is too low.

    Attributes:
        velocity: The target v* [m/s].
    """

    robot = "anymal-c"
    needs = (
        "base_height", "base_linear_velocity", "base_angular_velocity", "projected_gravity", "joint_position",
        "joint_velocity", "joint_torque",
    )  # fmt: skip
    contacts = ("BASE", "LF_KNEE", "RF_KNEE", "LH_KNEE", "RH_KNEE")
    actions = _JOINTS
    action_scale = (RANGE,) * len(_JOINTS)
    action_meaning = "offset of the joint target from the nominal pose [rad]"
    frames = 1000
    velocity: tuple[float, float]

    def __init__(self) -> None:
        self._robot = self.declaration()

    def start(self, worlds: int, generator: torch.Generator) -> State:
        """Draw the robot's resets, facing along x."""
        return reset_states(self._robot, worlds, generator, heading=(0.0, 0.0))

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return joint targets around the nominal pose."""
        return Control(target=torch.add(self.nominal(action), action, alpha=RANGE), **gains(action))

    def observation_terms(self) -> ObservationTerms:
        """Return velocities, gravity, joints relative to the nominal pose, and the last action."""
        terms = (
            ObservationTerm("base_linear_velocity", columns=("vx", "vy", "vz")),
            ObservationTerm("base_angular_velocity", columns=("wx", "wy", "wz")),
            ObservationTerm("projected_gravity", columns=("gravity_x", "gravity_y", "gravity_z")),
            ObservationTerm(
                "offset",
                lambda now, memory: now["joint_position"] - self.nominal(memory.action),
                _JOINTS,
                sensor="encoder",
            ),
            ObservationTerm("joint_velocity", columns=each("{}_velocity", _JOINTS)),
            ObservationTerm("last_action", lambda now, memory: memory.action, each("{}_action", _JOINTS)),
        )
        return {POLICY: terms}

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return the reward as one term, because it is clipped at zero as a whole."""
        wanted = constant(self.velocity, action)
        off = (quantities["base_linear_velocity"][:, :2] - wanted).square().sum(-1)
        # The rate about the vertical: gravity in base axes points down.
        yaw_rate = -(quantities["base_angular_velocity"] * quantities["projected_gravity"]).sum(-1)
        effort = quantities["joint_torque"].square().sum(-1)
        return {"track": (torch.exp(-off) + 0.5 * torch.exp(-yaw_rate.square()) - 2.5e-5 * effort).clamp_min(0.0)}

    def commanded(self, quantities: Quantities, memory: Memory) -> Mapping[str, Command]:
        """Return the target velocity beside that of the base."""
        velocity = quantities["base_linear_velocity"][:, :2]
        return {SPEED: VelocityCommand.of(constant(self.velocity, velocity).expand_as(velocity), velocity)}

    def terminated(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return whether base or knees touch the ground, or the base is too low."""
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


SCALE = 0.5
"""Joint target offset from the nominal position for an action of 1 [rad]."""
WIDTH = 0.25
"""Squared velocity error at which a tracking reward has fallen to 1/e."""
_BASE = "BASE"
_FEET = ("LF_FOOT", "RF_FOOT", "LH_FOOT", "RH_FOOT")
_KNEES = ("LF_KNEE", "RF_KNEE", "LH_KNEE", "RH_KNEE")


class AnymalVelocity(VelocityTracking):
    """Track velocities vx, vy and yaw rate wz in base axes, with little effort and good steps.

    Attributes:
        others: Bodies that should not touch the ground.
    """

    name = "anymal-velocity"
    robot = "anymal-c"
    needs = (
        "base_linear_velocity", "base_angular_velocity", "projected_gravity", "joint_position", "joint_velocity",
        "joint_torque",
    )  # fmt: skip
    feet, others = _FEET, _KNEES
    contacts = (*_FEET, *_KNEES)
    velocity_noise = 1.5
    actions = _JOINTS
    action_scale = (SCALE,) * len(_JOINTS)
    action_meaning = "target of each joint less its nominal position [rad]"
    frames = 500
    limit = 4.0
    dt = 0.02
    # A rate, as all reward terms. Independent members disagree on 45 columns together about five times as much as heads
    # on a shared trunk, for which the lambda of arXiv 2504.16680 was chosen.
    penalty_scale = 0.02 / 5

    def __init__(self) -> None:
        robot = Task.declaration(self)
        # Contacts that two steps in a frame resolve; the declared ones need four.
        self._declaration = msgspec.structs.replace(
            robot,
            material=ContactMaterial(friction=0.8, stiffness=2500.0, damping=100.0),
            simulator=SimulatorConfig(solver="mujoco", substeps=2, iterations=4, integrator="implicitfast"),
        )

    def joint_nominal(self, like: Tensor) -> Tensor:
        """Return the nominal pose of the joints, all of which are driven."""
        return self.nominal(like)

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return targets around the nominal pose."""
        target = torch.add(self.nominal(action), action, alpha=SCALE)
        return Control(target=target, kp=constant((KP,), action), kd=constant((KD,), action))

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return the terms of arXiv 2501.10100, each times dt."""
        asked = memory.command[:, ASKED]
        velocity, spin = quantities["base_linear_velocity"], quantities["base_angular_velocity"]
        joint_velocity = quantities["joint_velocity"]
        dt = self._declaration.dt
        landed = (quantities.contacts(self.feet) > 0.5) & (memory.air_time > 0.0)
        moving = torch.linalg.vector_norm(asked[:, :2], dim=-1) > 0.1
        still = torch.linalg.vector_norm(asked, dim=-1) < 0.05
        away = (quantities["joint_position"] - self.nominal(action)).abs().sum(-1)
        terms = {
            "track_velocity": (1.0, torch.exp((asked[:, :2] - velocity[:, :2]).square().sum(-1) * (-1.0 / WIDTH))),
            "track_turning": (0.5, torch.exp((asked[:, 2] - spin[:, 2]).square() * (-1.0 / WIDTH))),
            "vertical_velocity": (-2.0, velocity[:, 2].square()),
            "roll_and_pitch": (-0.05, spin[:, :2].square().sum(-1)),
            "torque": (-2.5e-5, quantities["joint_torque"].square().sum(-1)),
            "acceleration": (-2.5e-7 / dt**2, (joint_velocity - memory.joint_velocity).square().sum(-1)),
            "action_change": (-0.01, (action - memory.action).square().sum(-1)),
            "air_time": (0.5, ((memory.air_time + (dt - 0.5)) * landed).sum(-1) * moving),
            "knee_contact": (-1.0, (quantities.contacts(self.others) > 0.5).sum(-1, dtype=action.dtype)),
            "stand_still": (-1.0, away * still),
            "tilt": (-5.0, quantities["projected_gravity"][:, :2].square().sum(-1)),
        }
        return self._weigh(terms, action)

    def terminated(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return whether the robot has fallen: far from upright, or with its trunk on the ground if that is known."""
        fallen = quantities["projected_gravity"][:, 2] > UPRIGHT
        if _BASE in quantities.contact_names:
            fallen = fallen | (quantities.contacts((_BASE,))[:, 0] > 0.5)
        return fallen


_D_LEGS = ("LF", "LH", "RF", "RH")
_D_JOINTS = tuple(f"{leg}_{joint}" for joint in ("HAA", "HFE", "KFE") for leg in _D_LEGS)
_D_FEET, _D_THIGHS = (tuple(f"{leg}_{body}" for leg in _D_LEGS) for body in ("FOOT", "THIGH"))


class AnymalDFlat(AnymalVelocity):
    """Velocity tracking on ANYmal D, with the joint and contact order of its logs and published networks.

    The robot has no asset, so it is learned from logs alone.
    """

    name = "anymal-d-flat"
    robot = "anymal-d"
    feet, others = _D_FEET, _D_THIGHS
    contacts = (*_D_FEET, *_D_THIGHS)
    actions = _D_JOINTS
    # Members are heads on a shared trunk, for which the lambda of arXiv 2504.16680 was chosen; a rate, as the reward
    # terms.
    penalty_scale = 0.02
