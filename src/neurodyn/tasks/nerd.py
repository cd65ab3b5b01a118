# SPDX-License-Identifier: Apache-2.0
r"""Tasks with the observations and actions of NeRD's published policies (arXiv 2508.15755).

`TASK@nerd` is TASK with the conventions of their Warp environments: y up, quantities in world axes, their order of
joints, and for ANYmal their nominal pose and joint controller. Their world axes $(x, y, z)$ are our $(x, z, -y)$, a
rotation $R$ by $-90^\circ$ about x. Body axes are the same, so that world vectors become $R v$, and orientations
$R \otimes q$. Source: env_ant.py and env_anymal.py of https://github.com/NVlabs/neural-robot-dynamics.
"""

import math

import msgspec
import torch
from torch import Tensor

from neurodyn.dynamics.batch import Control
from neurodyn.dynamics.quantities import Quantities
from neurodyn.geometry import rotation
from neurodyn.geometry.tensors import columns, constant
from neurodyn.robots import Robot
from neurodyn.tasks.anymal import KP, AnymalForward, AnymalSide, AnymalWalk, gains
from neurodyn.tasks.observations import POLICY, Memory, ObservationTerm, ObservationTerms, each
from neurodyn.tasks.running import HEADING, UP, Ant, AntRun, AntSpin, AntSpinTrack, world_velocity

_TO_THEIRS = (-math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5))


def base_observation(quantities: Quantities, memory: Memory) -> Tensor:
    """Return height, orientation, and velocities of the base's origin, all in y-up world axes, shape [worlds, 11]."""
    orientation = quantities["base_orientation"]
    to_theirs = constant(_TO_THEIRS, orientation).expand_as(orientation)
    velocities = torch.stack(world_velocity(quantities), 1)
    turned = columns(velocities, (0, 2, 1)) * constant((1.0, 1.0, -1.0), orientation)
    pose = [quantities["base_height"], rotation.multiply(to_theirs, orientation)]
    return torch.cat([*pose, turned.flatten(1)], dim=-1)


_BASE = ObservationTerm(
    "base", base_observation, ("height", "qx", "qy", "qz", "qw", "vx", "vy", "vz", "wx", "wy", "wz")
)


class _NerdAnt(Ant):
    """An ant whose observation lacks the heading and so has 28 components."""

    def observation_terms(self) -> ObservationTerms:
        """Return height, orientation, velocities in the world, joints, and the projection of up."""
        terms = super().observation_terms()
        joints = (term for term in terms[POLICY] if term.name.startswith("joint_"))
        return {**terms, POLICY: (_BASE, *joints, UP)}


class NerdAntRun(_NerdAnt, AntRun):
    """Running along the world's x."""

    name = "ant-run@nerd"


class NerdAntSpin(_NerdAnt, AntSpin):
    """Spinning about the vertical."""

    name = "ant-spin@nerd"


class NerdAntSpinTrack(_NerdAnt, AntSpinTrack):
    """Spinning at a given rate."""

    name = "ant-spin-track@nerd"


JOINTS = tuple(f"{leg}_{joint}" for leg in ("RH", "LH", "RF", "LF") for joint in ("HAA", "HFE", "KFE"))
"""Joints of ANYmal in the authors' order."""
NOMINAL = dict(zip(JOINTS, (0.03, 0.4, -0.8, -0.03, 0.4, -0.8, 0.03, -0.4, 0.8, -0.03, -0.4, 0.8), strict=True))
"""The authors' nominal pose, with knees opposite to ours [rad]."""
TORQUES = {"HAA": 75.0, "HFE": 60.0, "KFE": 12.0}
"""Torque for an action of 1, added to the controller's torque at the nominal pose [N m]."""


class _NerdAnymal(AnymalWalk):
    r"""$r$ of `AnymalWalk` with velocities in world axes.

    The torque $g\,a + k_p (q_0 - q) - k_d \dot q$ corresponds to a target $q_0 + g\,a / k_p$.
    """

    actions = JOINTS
    action_scale = tuple(TORQUES[joint[3:]] / KP for joint in JOINTS)
    needs = (*AnymalWalk.needs, "base_orientation")

    def __init__(self) -> None:
        super().__init__()
        own = tuple(self._robot.actuated)
        self._theirs = tuple(own.index(joint) for joint in JOINTS)
        self._ours = tuple(JOINTS.index(joint) for joint in own)

    def declaration(self) -> Robot:
        """Return the robot with the authors' nominal pose; joints start between 0.5 and 1.5 times that pose."""
        robot = super().declaration()
        starts = {name: (min(0.5 * q, 1.5 * q), max(0.5 * q, 1.5 * q)) for name, q in NOMINAL.items()}
        return msgspec.structs.replace(
            robot, nominal=dict(NOMINAL), reset=msgspec.structs.replace(robot.reset, q=starts)
        )

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return joint targets around the nominal pose, in the robot's joint order."""
        offset = columns(constant(self.action_scale, action) * action, self._ours)
        return Control(target=self.nominal(action) + offset, **gains(action))

    def observation_terms(self) -> ObservationTerms:
        """Return height, orientation, velocities in the world, joints, and the projections of up and heading."""
        joints = (
            ObservationTerm(name, lambda now, memory, name=name: columns(now[name], self._theirs), names)
            for name, names in (("joint_position", JOINTS), ("joint_velocity", each("{}_velocity", JOINTS)))
        )
        return {POLICY: (_BASE, *joints, UP, HEADING)}

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return the reward as one term, because it is clipped at zero as a whole."""
        linear, angular = world_velocity(quantities)
        off = (linear[:, :2] - constant(self.velocity, action)).square().sum(-1)
        effort = quantities["joint_torque"].square().sum(-1)
        track = torch.exp(-off) + 0.5 * torch.exp(-angular[:, 2].square()) - 2.5e-5 * effort
        return {"track": track.clamp_min(0.0)}


class NerdAnymalForward(_NerdAnymal, AnymalForward):
    """Walking along the world's x."""

    name = "anymal-forward@nerd"


class NerdAnymalSide(_NerdAnymal, AnymalSide):
    """Walking along the world's -y."""

    name = "anymal-side@nerd"
    velocity = (0.0, -1.0)
