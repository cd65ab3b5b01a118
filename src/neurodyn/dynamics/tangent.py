# SPDX-License-Identifier: Apache-2.0
"""Differences of positions: wrapped where an angle turns without end, rotation vectors for quaternions."""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.geometry import rotation
from neurodyn.geometry.array_shapes import Positions, Velocities


def wrap_angle(angle: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Wrap angles [rad] to [-pi, pi)."""
    return torch.remainder(angle + torch.pi, 2 * torch.pi) - torch.pi


def position_difference(spec: StateSpec, q: Positions, reference: Positions) -> Velocities:
    """Return q - reference by degree of freedom, shape [..., nv].

    Revolute and prismatic joints: the difference [rad or m], wrapped where continuous. Free joints: the shift of
    the origin [m] and the rotation vector [rad] of q q_ref^-1, both in world axes. Ball joints: likewise the
    rotation vector, in the axes of the joint's parent frame.
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
    """Return q - reference by coordinate, shape [..., nq]: angles without end wrapped, quaternions of the same sign."""
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
