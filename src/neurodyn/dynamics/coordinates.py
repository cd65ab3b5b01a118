# SPDX-License-Identifier: Apache-2.0
"""Differences of positions (wrapped angles, rotation vectors), and a state relative to its own base."""

from collections.abc import Mapping
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor, nn

from neurodyn.core.description.scene import Vector3
from neurodyn.core.description.spec import JointPlace, StateSpec
from neurodyn.geometry import base_frame, rotation
from neurodyn.geometry.tensors import Matrices, Positions, Velocities


def wrap_angle(angle: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Wrap angles [rad] to [-pi, pi)."""
    return torch.remainder(angle + torch.pi, 2 * torch.pi) - torch.pi


def position_difference(spec: StateSpec, q: Positions, reference: Positions) -> Velocities:
    """Return q - reference by degree of freedom, shape [..., nv].

    Revolute and prismatic joints: the difference [rad or m], wrapped if continuous. Free joints: the shift of the
    origin [m] and the rotation vector [rad] of q q_ref^-1, both in world axes. Ball joints: the rotation vector [rad],
    in the joint's parent frame.
    """
    q, reference = torch.broadcast_tensors(q, reference)
    blocks = []
    for kind, first, last in _blocks(spec):
        a, b = q[..., first:last], reference[..., first:last]
        if kind == "scalar":
            blocks.append(_scalar_difference(spec, a - b, first, last))
            continue
        if kind == "free":
            blocks.append(a[..., :3] - b[..., :3])
        blocks.append(rotation.logarithm(rotation.multiply(a[..., -4:], rotation.conjugate(b[..., -4:]))))
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=-1)


def coordinate_difference(spec: StateSpec, q: Positions, reference: Positions) -> Positions:
    """Return q - reference by coordinate, shape [..., nq]: wrapped continuous angles, quaternions of one sign."""
    difference = torch.where(_continuous(spec, q.device), wrap_angle(q - reference), q - reference)
    for kind, _, last in _blocks(spec):
        if kind != "scalar":
            quaternion, wanted = q[..., last - 4 : last], reference[..., last - 4 : last]
            sign = torch.where((quaternion * wanted).sum(-1, keepdim=True) < 0, -1.0, 1.0)
            difference[..., last - 4 : last] = sign * quaternion - wanted
    return difference


def _scalar_difference(spec: StateSpec, difference: Tensor, first: int, last: int) -> Tensor:
    if not any(spec.continuous[first:last]):
        return difference
    return torch.where(_continuous(spec, difference.device)[first:last], wrap_angle(difference), difference)


@lru_cache(maxsize=64)
def _blocks(spec: StateSpec) -> tuple[tuple[str, int, int], ...]:
    """Return runs of scalar joints, and each free or ball joint, as (kind, first, last) in position coordinates."""
    blocks: list[tuple[str, int, int]] = []
    for joint, place in zip(spec.joints, spec.places, strict=True):
        if not joint.scalar:
            blocks.append((joint.kind, place.q.start, place.q.stop))
        elif blocks and blocks[-1][0] == "scalar":
            blocks[-1] = ("scalar", blocks[-1][1], place.q.stop)
        else:
            blocks.append(("scalar", place.q.start, place.q.stop))
    return tuple(blocks)


@lru_cache(maxsize=64)
def _continuous(spec: StateSpec, device: torch.device) -> Tensor:
    return torch.tensor(spec.continuous, dtype=torch.bool, device=device)


class Coordinates(nn.Module):
    """Converts states of one robot to and from the frame of its base.

    Attributes:
        free: Whether the base floats.
        balls: First position and velocity coordinate of each ball joint.
        objects: Columns of the free joints of bodies other than the robot.
        scalars: Position coordinates of joints with one degree of freedom.
        scalar_dofs: Their velocity coordinates.
    """

    com: Tensor
    object_coms: Tensor

    def __init__(
        self, spec: StateSpec, com: Vector3 = (0.0, 0.0, 0.0), object_coms: Mapping[str, Vector3] | None = None
    ) -> None:
        """Prepare the conversion.

        Args:
            spec: Names, order, units and dt of state and control.
            com: Centre of mass of a floating base in the base frame [m].
            object_coms: Centres of mass of bodies other than the robot in their frames [m]; by default the origin.
        """
        super().__init__()
        self.spec = spec
        self.free = spec.floating
        self.balls: list[tuple[int, int]] = []
        self.scalars: list[int] = []
        self.scalar_dofs: list[int] = []
        self.objects: list[JointPlace] = list(spec.objects.values())
        for joint, place in zip(spec.joints, spec.places, strict=True):
            if joint.kind == "ball":
                self.balls.append((place.q.start, place.qd.start))
            elif joint.scalar:
                self.scalars.append(place.q.start)
                self.scalar_dofs.append(place.qd.start)
        self._plain = not self.free and not self.balls and not self.objects
        self._centred = not any(com)
        self.register_buffer("com", torch.tensor(com), persistent=False)
        own = [(object_coms or {}).get(name, (0.0, 0.0, 0.0)) for name in spec.objects]
        self.register_buffer("object_coms", torch.tensor(own).reshape(-1, 3), persistent=False)

    def view(self, q: Positions, qd: Velocities, down: Tensor | None) -> base_frame.BaseView | None:
        """Return the state in the frame of a floating base, with gravity in any unit; None for a fixed base."""
        return base_frame.view(q, qd, down, unit=False) if self.free else None

    def base_rotation(self, q: Positions) -> Matrices | None:
        """Return the rotation of a floating base, base to world, shape [..., 3, 3]; None for a fixed one."""
        return rotation.matrix(q[..., 3:7]) if self.free else None

    def to_base(self, base: Matrices | None, qd: Velocities) -> Velocities:
        """Return velocities in the frame of the base, shape [..., nv]."""
        if base is None:
            return qd
        turned = rotation.rotate_rows(qd[..., :6].unflatten(-1, (2, 3)), base)
        return self.turn_objects(torch.cat([turned.flatten(-2), qd[..., 6:]], dim=-1), base)

    def turn_objects(self, rates: Velocities, matrix: Matrices | None) -> Velocities:
        """Return rates with those of objects rotated: world to base by a base's rotation, back by its transpose."""
        if matrix is None or not self.objects:
            return rates
        turned = rates.clone()
        for place in self.objects:
            rows = rates[..., place.qd].unflatten(-1, (2, 3))
            turned[..., place.qd] = rotation.rotate_rows(rows, matrix).flatten(-2)
        return turned

    def object_poses(self, q: Positions, base: Matrices | None) -> list[Tensor]:
        """Return position [m] and two columns of the rotation of each object, shape [..., 9] each.

        They are in base axes, from the base's origin, if the base floats; else in world axes.
        """
        poses = []
        for place in self.objects:
            start = place.q.start
            at, matrix = q[..., start : start + 3], rotation.matrix(q[..., place.quaternion])
            rows = torch.stack([at if base is None else at - q[..., :3], matrix[..., 0], matrix[..., 1]], -2)
            poses.append((rows if base is None else rotation.rotate_rows(rows, base)).flatten(-2))
        return poses

    def change(
        self, q: Positions, qd: Velocities, q_next: Positions, qd_next: Velocities
    ) -> tuple[Velocities, Velocities]:
        """Return dq and dqd over one frame, each of shape [..., nv]."""
        base = self.base_rotation(q)
        dqd = self.to_base(base, qd_next - qd)
        dq = position_difference(self.spec, q_next, q)
        for place, com in zip(self.objects, self.object_coms, strict=True):  # from the origin to the centre of mass
            lever = com.expand_as(q[..., :3])
            swing = rotation.rotate(q_next[..., place.quaternion], lever) - rotation.rotate(
                q[..., place.quaternion], lever
            )
            dq[..., place.linear] += swing
        dq = self.turn_objects(dq, base)
        if base is None:
            return dq, dqd
        angle = rotation.logarithm(rotation.multiply(rotation.conjugate(q[..., 3:7]), q_next[..., 3:7]))
        shift = dq[..., :3] + rotation.rotate(q_next[..., 3:7], self.com.expand_as(angle))
        # The centre of mass is turned to the world: as a row, by the transpose.
        shift = shift - rotation.rotate_rows(self.com.expand(*base.shape[:-2], 1, 3), base.mT).squeeze(-2)
        shift = rotation.rotate_rows(shift.unsqueeze(-2), base)
        return torch.cat([shift.squeeze(-2), angle, dq[..., 6:]], dim=-1), dqd

    def advance(
        self, base: Matrices | None, q: Positions, qd: Velocities, dq: Velocities, dqd: Velocities
    ) -> tuple[Positions, Velocities]:
        """Apply a change, as `change` returns it, to a state; `base` is `base_rotation(q)`."""
        if self._plain:
            return q + dq, qd + dqd
        back = None if base is None else base.mT
        if base is None:
            return self._turn(q, dq), qd + dqd
        com = None if self._centred else self.com
        if self.objects:
            dq, dqd = self.turn_objects(dq, back), self.turn_objects(dqd, back)
        if not self.balls and not self.objects:
            return base_frame.advance(base, q, qd, dq, dqd, com)
        moved, velocity = base_frame.advance(base, q[..., :7], qd, dq, dqd, com)
        return torch.cat([moved, self._turn(q, dq)[..., 7:]], dim=-1), velocity

    def _turn(self, q: Tensor, dq: Tensor) -> Tensor:
        """Return positions with changes applied, those of objects in world axes; a floating base is unchanged."""
        q_next = q.clone()
        if self.scalars:
            q_next[..., self.scalars] = q[..., self.scalars] + dq[..., self.scalar_dofs]
        for row, dof in self.balls:
            change = rotation.exponential(dq[..., dof : dof + 3])
            q_next[..., row : row + 4] = rotation.normalise(rotation.multiply(change, q[..., row : row + 4]))
        for place, com in zip(self.objects, self.object_coms, strict=True):
            before, lever = q[..., place.quaternion], com.expand_as(q[..., :3])
            after = rotation.normalise(rotation.multiply(rotation.exponential(dq[..., place.angular]), before))
            swing = rotation.rotate(before, lever) - rotation.rotate(after, lever)
            start = place.q.start
            q_next[..., start : start + 3] = q[..., start : start + 3] + dq[..., place.linear] + swing
            q_next[..., place.quaternion] = after
        return q_next
