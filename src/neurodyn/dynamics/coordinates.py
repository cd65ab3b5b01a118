# SPDX-License-Identifier: Apache-2.0
"""Differences of positions (wrapped angles, rotation vectors), and a state relative to its own base."""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor, nn

from neurodyn.core.description.scene import Vector3
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
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
    shape = torch.broadcast_shapes(q.shape, reference.shape)
    q, reference = q.expand(shape), reference.expand(shape)
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
            turn, wanted = q[..., last - 4 : last], reference[..., last - 4 : last]
            sign = torch.where((turn * wanted).sum(-1, keepdim=True) < 0, -1.0, 1.0)
            difference[..., last - 4 : last] = sign * turn - wanted
    return difference


def _scalar_difference(spec: StateSpec, difference: Tensor, first: int, last: int) -> Tensor:
    if not any(spec.continuous[first:last]):
        return difference
    return torch.where(_continuous(spec, difference.device)[first:last], wrap_angle(difference), difference)


@lru_cache(maxsize=64)
def _blocks(spec: StateSpec) -> tuple[tuple[str, int, int], ...]:
    """Return runs of scalar joints, and each free or ball joint, as (kind, first, last) in position coordinates."""
    found: list[tuple[str, int, int]] = []
    for joint, place in zip(spec.joints, spec.places, strict=True):
        if not joint.scalar:
            found.append((joint.kind, place.q.start, place.q.stop))
        elif found and found[-1][0] == "scalar":
            found[-1] = ("scalar", found[-1][1], place.q.stop)
        else:
            found.append(("scalar", place.q.start, place.q.stop))
    return tuple(found)


@lru_cache(maxsize=64)
def _continuous(spec: StateSpec, device: torch.device) -> Tensor:
    return torch.tensor(spec.continuous, device=device)


class Coordinates(nn.Module):
    """Converts states of one robot to and from the frame of its base.

    Attributes:
        free: Whether the base floats.
        balls: First position and velocity coordinate of each ball joint.
        scalars: Position coordinates of joints with one degree of freedom.
        scalar_dofs: Their velocity coordinates.
    """

    com: Tensor

    def __init__(self, spec: StateSpec, com: Vector3 = (0.0, 0.0, 0.0)) -> None:
        """Prepare the conversion; `com` is the centre of mass of a floating base in the base frame [m].

        Raises:
            InputError: A free joint is not the first one.
        """
        super().__init__()
        self.spec = spec
        self.free = spec.floating
        self.balls: list[tuple[int, int]] = []
        self.scalars: list[int] = []
        self.scalar_dofs: list[int] = []
        for index, (joint, place) in enumerate(zip(spec.joints, spec.places, strict=True)):
            if joint.kind == "free" and index:
                raise InputError(
                    f"robot {spec.robot!r}: joint {joint.name!r} is free, but not the first; neural dynamics take one "
                    "floating base"
                )
            if joint.kind == "ball":
                self.balls.append((place.q.start, place.qd.start))
            elif joint.scalar:
                self.scalars.append(place.q.start)
                self.scalar_dofs.append(place.qd.start)
        self._plain = not self.free and not self.balls
        self._centred = not any(com)
        self.register_buffer("com", torch.tensor(com), persistent=False)

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
        turned = rotation.turn_rows(qd[..., :6].unflatten(-1, (2, 3)), base)
        return torch.cat([turned.flatten(-2), qd[..., 6:]], dim=-1)

    def change(
        self, q: Positions, qd: Velocities, q_next: Positions, qd_next: Velocities
    ) -> tuple[Velocities, Velocities]:
        """Return dq and dqd over one frame, each of shape [..., nv]."""
        base = self.base_rotation(q)
        dqd = self.to_base(base, qd_next - qd)
        dq = position_difference(self.spec, q_next, q)
        if base is None:
            return dq, dqd
        turn = rotation.logarithm(rotation.multiply(rotation.conjugate(q[..., 3:7]), q_next[..., 3:7]))
        shift = dq[..., :3] + rotation.rotate(q_next[..., 3:7], self.com.expand_as(turn))
        # The centre of mass is turned to the world: as a row, by the transpose.
        shift = shift - rotation.turn_rows(self.com.expand(*base.shape[:-2], 1, 3), base.mT).squeeze(-2)
        shift = rotation.turn_rows(shift.unsqueeze(-2), base)
        return torch.cat([shift.squeeze(-2), turn, dq[..., 6:]], dim=-1), dqd

    def advance(
        self, base: Matrices | None, q: Positions, qd: Velocities, dq: Velocities, dqd: Velocities
    ) -> tuple[Positions, Velocities]:
        """Apply a change, as `change` returns it, to a state; `base` is `base_rotation(q)`."""
        if self._plain:
            return q + dq, qd + dqd
        if base is None:
            return self._turn_balls(q, dq), qd + dqd
        com = None if self._centred else self.com
        if not self.balls:
            return base_frame.advance(base, q, qd, dq, dqd, com)
        moved, velocity = base_frame.advance(base, q[..., :7], qd, dq, dqd, com)
        return torch.cat([moved, self._turn_balls(q, dq)[..., 7:]], dim=-1), velocity

    def _turn_balls(self, q: Tensor, dq: Tensor) -> Tensor:
        """Return positions with the changes of ball joints and of joints with one degree of freedom applied."""
        q_next = q.clone()
        if self.scalars:
            q_next[..., self.scalars] = q[..., self.scalars] + dq[..., self.scalar_dofs]
        for row, dof in self.balls:
            turn = rotation.exponential(dq[..., dof : dof + 3])
            q_next[..., row : row + 4] = rotation.normalise(rotation.multiply(turn, q[..., row : row + 4]))
        return q_next
