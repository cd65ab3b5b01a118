# SPDX-License-Identifier: Apache-2.0
r"""Outputs of a network as impulses at contact points, which the mechanism turns into velocities of a floating base.

The network outputs the changes of the joints' velocities and an impulse $p_i$ at each contact point; momentum gives the
change of the base's velocity, with b its rows and j those of the joints:

$$M_{bb} \Delta v_b = \sum_i J_{i,b}^T p_i - M_{bj} \Delta v_j$$

Whatever the network outputs, contact points only push, only near the ground, and sideways within a cone, and nothing
else moves the whole robot. A policy can therefore not exploit motions that no contact could cause.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Environment
from neurodyn.dynamics.neural.base_prediction import GRAVITY, BasePrediction, ground_of
from neurodyn.geometry import rotation
from neurodyn.geometry.contact_features import PointsOverGround
from neurodyn.multibody.trace import Scalar
from neurodyn.multibody.trace.recurrence import ProgramInputs, ProgramSizes

if TYPE_CHECKING:
    from neurodyn.multibody.motion import ProgramFrame

POINT_OUTPUTS = 4
"""Outputs of a contact point: its normal impulse, and the direction of friction in base axes."""

_BASE = 6
"""Velocity coordinates of a floating base."""

_PUSH = 6
"""Numbers of a push: point of application and impulse."""

_REACH = 0.02
"""Gap over which a contact point's impulse fades [m]."""

_STEEPEST = 1.0
"""Maximum ratio of friction to normal impulse, that of rubber on a dry floor.

A coefficient learned with the weights converges to half of an ant's .625.
"""

_INSTANT = 0.8
"""Fraction of a frame at whose joint positions the impulses act.

For an ant that hits its joint limits in the air, the base's velocity change computed from the joints' has its smallest
error there, a twentieth; at the end of the frame it is an eighth and biased, which a policy would exploit.
"""

_SHIFT = 2.0
"""Shift of the outputs, so that small ones are small impulses."""


class Impulses(nn.Module):
    """Converts network outputs to the changes that other models output: dqd in base axes, and r.

    Attributes:
        points: Number of contact points.
        width: Number of network outputs: four for each contact point, dqd of the joints, r.
        unit: Unit of the impulses: the robot's weight over a frame [N s].
        radii: Radius of each contact point [m], shape [points].
        change: Standard deviation of dqd and r in the training data, the unit of losses, shape [2 nv].
    """

    change: Tensor
    radii: Tensor

    def __init__(self, spec: StateSpec, layout: ContactPointLayout | None, mechanism: Mechanism | None) -> None:
        """Trace the response of a mechanism to impulses.

        Raises:
            InputError: The base is fixed, there is no mechanism, or there are no contact points or ball joints.
        """
        from neurodyn.geometry.proximity import ProximityQuery  # loads Warp

        super().__init__()
        missing = _missing(spec, layout, mechanism)
        if missing or layout is None or mechanism is None:
            raise InputError(f"robot {spec.robot!r}: base 'impulses' needs {missing}; valid: base: free")
        self._layout, self._mechanism, self._dt = layout, mechanism, spec.dt
        self.points = len(layout.contact_points)
        self.width = POINT_OUTPUTS * self.points + 2 * spec.nv - _BASE
        self.unit = sum(link.mass for link in mechanism.links) * GRAVITY * spec.dt
        radii = torch.tensor([point.radius for point in layout.contact_points])
        self.register_buffer("radii", radii, persistent=False)
        self.register_buffer("change", torch.ones(2 * spec.nv))
        self._proximity: ProximityQuery = ProximityQuery(layout)
        self._response: ProgramFrame = self._trace()

    @property
    def unsupervised_outputs(self) -> int:
        """Number of leading outputs for which data hold no targets: impulses."""
        return POINT_OUTPUTS * self.points

    @property
    def supervised(self) -> slice:
        """Columns of dqd and r that the network outputs directly."""
        return slice(_BASE, None)

    def _trace(self) -> "ProgramFrame":
        from neurodyn.multibody.motion import ProgramFrame
        from neurodyn.multibody.trace.program import TracedProgram

        return ProgramFrame(TracedProgram(self.sizes, self.response), self._mechanism.nq, 1)

    @property
    def sizes(self) -> ProgramSizes:
        """Lengths of the arrays of `response`."""
        nv = self._mechanism.nv
        return ProgramSizes(state=self._mechanism.nq + nv, control=nv - _BASE, held=_PUSH * self.points)

    def response(self, inputs: ProgramInputs) -> list[Scalar]:
        """Trace q and the change of velocity due to pushes (point and impulse each) and to that of the joints."""
        from neurodyn.multibody.articulated import Tree, Wrenches
        from neurodyn.multibody.points import Kinematics, add_wrench
        from neurodyn.multibody.vectors import array, cross

        mechanism, nq = self._mechanism, self._mechanism.nq
        values = {**mechanism.quantities(), "gravity.x": 0.0, "gravity.y": 0.0, "gravity.z": 0.0}
        tree = Tree(mechanism, values.__getitem__, prescribed=True)
        q, still = inputs.state[:nq], [0.0] * mechanism.nv
        links = Kinematics(tree, tree.motions(q, still))
        pushes: Wrenches = {}
        for i, point in enumerate(self._layout.contact_points):
            own = inputs.held[_PUSH * i : _PUSH * (i + 1)]
            link = tree.index_of[self._layout.joints[point.joint].name]
            pose = links.poses[link]
            impulse, arm = array(own[3:]), array(own[:3]) - pose.origin
            add_wrench(pushes, link, pose.rotation.T @ cross(arm, impulse), pose.rotation.T @ impulse)
        return [*q, *tree.accelerations(links.motions, q, [*([0.0] * _BASE), *inputs.control], pushes)]

    def velocity_change(self, q: Tensor, points: Tensor, pushes: Tensor, joints: Tensor) -> Tensor:
        """Return the change of velocity due to impulses, in world axes, shape [..., nv].

        Args:
            q: Positions [rad or m], shape [..., nq].
            points: Points of application in the world [m], shape [..., contact points, 3].
            pushes: Impulses in world axes [N s], shape [..., contact points, 3].
            joints: Changes of the joints' velocities [rad/s or m/s], shape [..., nv - 6].
        """
        held = torch.cat([points, pushes], dim=-1).flatten(-2)
        still = q.new_zeros(*q.shape[:-1], self._mechanism.nv)
        return self._response(q, still, joints, held=held)[1]

    def forward(self, base: BasePrediction, output: Tensor, environment: Environment | None) -> Tensor:
        """Return dqd in base axes and r from network outputs, shape [..., width] -> [..., 2 nv].

        The environment's worlds run along the first axis.
        """
        batch = base.q.shape[:-1]
        ground = None if environment is None else ground_of(environment, batch)
        if ground is None:
            return self.from_points(base, output, None, self.velocity_change)
        seen = self._proximity(ground, base.q.flatten(0, -2), base.qd.flatten(0, -2))
        measured = PointsOverGround(
            *(x.unflatten(0, batch) for x in (seen.distance, seen.normal, seen.position, seen.velocity))
        )
        return self.from_points(base, output, measured, self.velocity_change)

    def from_points(
        self, base: BasePrediction, output: Tensor, measured: PointsOverGround | None,
        velocity_change: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    ) -> Tensor:  # fmt: skip
        """Return what `forward` does, from given points over the ground (None: free space) and response."""
        raw, joints, r = output.split(
            [self.unsupervised_outputs, self._mechanism.nv - _BASE, self._mechanism.nv], dim=-1
        )
        assert base.view is not None
        matrix = base.view.rotation
        raw = raw.unflatten(-1, (self.points, POINT_OUTPUTS))
        points = pushes = raw.new_zeros(*raw.shape[:-1], 3)
        if measured is not None:
            points, pushes = self._pushes(raw, matrix, measured)
        dqd = velocity_change(_at_impulses(base), points, pushes, joints)
        first = rotation.rotate_rows(dqd[..., :_BASE].unflatten(-1, (2, 3)), matrix).flatten(-2)
        return torch.cat([first, joints, r], dim=-1)

    def _pushes(self, raw: Tensor, matrix: Tensor, measured: PointsOverGround) -> tuple[Tensor, Tensor]:
        """Return points of application and impulses in world axes, shape [..., contact points, 3] each."""
        distance, normal, position, velocity = measured
        # A point that leaves the ground within the frame was lower at its start.
        lowest = distance - self.radii - self._dt * (normal * velocity).sum(-1).relu()
        near = (1.0 - lowest / _REACH).clamp(0.0, 1.0)
        push = self.unit * near * softplus(raw[..., 0] - _SHIFT)
        side = raw[..., 1:]
        side = rotation.rotate_rows(side, matrix.mT)  # rows: base to world
        side = side - (side * normal).sum(-1, keepdim=True) * normal
        size = side.square().sum(-1, keepdim=True).add(1e-6).sqrt()
        side = side * (_STEEPEST * torch.tanh(size / _STEEPEST) / size)
        return position - distance[..., None] * normal, push[..., None] * (normal + side)


def _at_impulses(base: BasePrediction) -> Tensor:
    """Return positions with the joints as of the instant of the impulses, shape [..., nq]."""
    assert base.start is not None
    joints = torch.lerp(base.start[..., _BASE + 1 :], base.q[..., _BASE + 1 :], _INSTANT)
    return torch.cat([base.q[..., : _BASE + 1], joints], dim=-1)


def _missing(spec: StateSpec, layout: ContactPointLayout | None, mechanism: Mechanism | None) -> str:
    """Return what a robot lacks for impulses; empty if nothing."""
    lacks = {
        "a floating base": not spec.floating,
        "joints of one degree of freedom": not all(joint.scalar for joint in spec.joints[1:]),
        "contact points": layout is None or not layout.contact_points,
        "a mechanism": mechanism is None,
    }
    return ", ".join(name for name, lacking in lacks.items() if lacking)
