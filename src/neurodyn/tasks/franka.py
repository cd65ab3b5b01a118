# SPDX-License-Identifier: Apache-2.0
"""Franka arm reaching for a point, by torques or by joint positions (NeRD, arXiv 2508.15755)."""

import torch
from torch import Tensor

from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.coordinates import wrap_angle
from neurodyn.dynamics.quantities import Quantities
from neurodyn.geometry.tensors import constant
from neurodyn.tasks.observations import POLICY, Memory, ObservationTerm, ObservationTerms, each
from neurodyn.tasks.reach import PointReaching
from neurodyn.tasks.task import uniform

TORQUE = (87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0)
"""Torque limits [N m]."""
STEP = 0.03125
"""Largest offset of a joint's target from its position in a frame [rad]."""
KP = (600.0, 600.0, 600.0, 600.0, 250.0, 150.0, 50.0)
KD = (5.0, 5.0, 5.0, 5.0, 3.0, 2.5, 1.5)
TARGETS = ((0.3, 0.7), (-0.35, 0.35), (0.05, 0.45))
"""Ranges of targets [m]."""
SPREAD = 0.1
"""Largest offset of a joint from the usual pose at a start [rad]."""
_EXPONENT = 80.0
_JOINTS = tuple(f"panda_joint{number}" for number in range(1, 8))


class FrankaReach(PointReaching):
    r"""$r = -d + 1/(e^{50d} + e^{-50d} + 10^{-4}) + 1/(e^{300d} + e^{-300d} + 10^{-4})$, d the target distance.

    The joints are nearly frictionless (3 mN m s/rad), so that a policy must damp them itself and observes their
    velocities, which NeRD's does not.
    """

    robot = "franka"
    near = 0.02
    needs = ("joint_position", "joint_velocity", "end_effector_position")
    actions = _JOINTS
    frames = 128
    implausible_reward = -205.0  # the end effector is at most 1.6 m from a target, in each of 128 frames

    def start(self, worlds: int, generator: torch.Generator) -> State:
        """Draw poses around the usual one, at rest."""
        device = generator.device
        offset = uniform((-SPREAD, SPREAD), worlds * len(_JOINTS), generator).view(worlds, -1)
        return State(self.nominal(offset) + offset, torch.zeros(worlds, len(_JOINTS), device=device))

    def commands(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Draw targets [m], shape [worlds, 3]."""
        return torch.stack([uniform(interval, worlds, generator) for interval in TARGETS], dim=-1)

    def observation_terms(self) -> ObservationTerms:
        """Return the joints (modulo 2 pi), the end effector, the target, and the velocities of the joints [rad/s]."""
        terms = (
            ObservationTerm("angle", lambda now, memory: wrap_angle(now["joint_position"]), _JOINTS, sensor="encoder"),
            ObservationTerm("end_effector_position", columns=("end_x", "end_y", "end_z")),
            ObservationTerm(
                "target", lambda now, memory: memory.command, ("target_x", "target_y", "target_z"), sensor="command"
            ),
            ObservationTerm("joint_velocity", columns=each("{}_velocity", _JOINTS)),
        )
        return {POLICY: terms}

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return the distance, and two bumps at the target."""
        d = self.distance(quantities, memory)
        return {"distance": -d, "near": _bump(d, 50.0), "at": _bump(d, 300.0)}


class FrankaTorque(FrankaReach):
    """Reaching by joint torques."""

    name = "franka-torque"
    action_scale = TORQUE
    action_meaning = "joint torque [N m]"

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return joint torques."""
        return Control(torque=action * constant(TORQUE, action))


class FrankaPosition(FrankaReach):
    """Reaching by joint targets near the current positions.

    As in NeRD's controller, torques are limited instead of actions: actions of 1 give the large joints 19 of their 87 N
    m, with which even plans of whole episodes return 65, less than NeRD's policies.
    """

    name = "franka-position"
    action_scale = (STEP,) * len(_JOINTS)
    action_meaning = "joint target from the present position [rad]"
    limit = 8.0

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return joint targets whose torques are within the limits."""
        kp, kd, most = (constant(values, action) for values in (KP, KD, TORQUE))
        damping = kd * quantities["joint_velocity"]
        torque = torch.maximum(torch.minimum(kp * STEP * action - damping, most), -most)
        return Control(target=quantities["joint_position"] + (torque + damping) / kp, kp=kp, kd=kd)


def _bump(d: Tensor, rate: float) -> Tensor:
    # Far away the exponential would overflow to infinity, and its gradient be 0 times infinity.
    exponent = (rate * d).clamp(max=_EXPONENT)
    return 1.0 / (torch.exp(exponent) + torch.exp(-exponent) + 1e-4)
