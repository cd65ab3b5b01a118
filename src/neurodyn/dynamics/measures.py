# SPDX-License-Identifier: Apache-2.0
"""Position errors of roll-outs by joint, and the predictions of trivial baselines.

A joint of one degree of freedom has one error, |q - q_true| (wrapped where continuous); a ball joint one, the angle of
the rotation in between; a floating base two, the distance of the origin and the angle 2 asin |vec(dq)|. The base of a
bolted robot is the chain of sliders that it begins with, so that the cartpole's base position is the cart's.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.tangent import position_difference
from neurodyn.geometry import rotation
from neurodyn.geometry.array_shapes import Positions, Velocities, WorldMask
from neurodyn.robots import Robot

MOVING = 1.0
"""Mean joint speed above which a window counts as moving [rad/s or m/s]."""


@dataclass(frozen=True)
class Columns:
    """Which errors make up the base, the turning joints and the sliding joints; indices into `error_names`.

    Attributes:
        base: Position of the base [m].
        angles: Turning joints [rad].
        slides: Sliding joints that are no base [m].
        orientation: Orientation of a floating base [rad].
        names: Names of all errors.
    """

    base: tuple[int, ...]
    angles: tuple[int, ...]
    slides: tuple[int, ...]
    orientation: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, robot: Robot) -> "Columns":
        """Return the columns of a robot."""
        kinds = _kinds(robot.spec)
        sliders = [i for i, (name, kind) in enumerate(kinds) if kind == "prismatic" and name in robot.invariant_joints]
        base = [i for i, (_, kind) in enumerate(kinds) if kind == "position"]
        return cls(
            base=tuple(base or sliders),
            angles=tuple(i for i, (_, kind) in enumerate(kinds) if kind in ("revolute", "ball")),
            slides=tuple(i for i, (_, kind) in enumerate(kinds) if kind == "prismatic" and i not in (base or sliders)),
            orientation=tuple(i for i, (_, kind) in enumerate(kinds) if kind == "orientation"),
            names=error_names(robot.spec),
        )

    def joints(self) -> dict[str, int]:
        """Return the columns of single joints by the name of the joint; those of a base are not among them."""
        return {self.names[i]: i for i in sorted((*self.angles, *self.slides)) if self.names}


def error_names(spec: StateSpec) -> tuple[str, ...]:
    """Return what the errors of a robot are of: a joint's name, or "root.position" and "root.orientation"."""
    return tuple(f"{name}.{kind}" if kind in ("position", "orientation") else name for name, kind in _kinds(spec))


def error_units(spec: StateSpec) -> tuple[str, ...]:
    """Return the units of the errors, "m" or "rad"."""
    return tuple("m" if kind in ("position", "prismatic") else "rad" for _, kind in _kinds(spec))


def position_errors(spec: StateSpec, predicted: Trajectory, truth: Trajectory) -> Float[Tensor, "worlds frames errors"]:
    """Return the position errors of all frames but the first [m or rad], shape [worlds, T, errors]."""
    return joint_distance(spec, predicted.q[:, 1:], truth.q[:, 1:])


def joint_distance(spec: StateSpec, q: Positions, reference: Positions) -> Float[Tensor, "*#batch errors"]:
    """Return how far positions are apart, joint by joint, in the order of `error_names` [m or rad].

    Args:
        spec: Names and kinds of the joints.
        q: Positions, shape [..., nq]; quaternions of any length above 0.
        reference: Other positions, shape [..., nq].
    """
    if all(joint.scalar for joint in spec.joints):
        return position_difference(spec, q, reference).abs()
    difference = position_difference(spec, _unit(spec, q), _unit(spec, reference))
    parts = []
    for place in spec.places:
        blocks = difference[..., place.qd].split(3, dim=-1)
        parts += [torch.linalg.vector_norm(block, dim=-1) for block in blocks]
    return torch.stack(parts, dim=-1)


def _kinds(spec: StateSpec) -> list[tuple[str, str]]:
    """Return the joint and the kind of each error."""
    found = []
    for joint in spec.joints:
        kinds = ("position", "orientation") if joint.kind == "free" else (joint.kind,)
        found += [(joint.name, kind) for kind in kinds]
    return found


def _unit(spec: StateSpec, q: Tensor) -> Tensor:
    """Return positions whose quaternions have unit length."""
    q = q.clone()
    for joint, place in zip(spec.joints, spec.places, strict=True):
        if not joint.scalar:
            q[..., place.quaternion] = rotation.normalise(q[..., place.quaternion])
    return q


def finite_worlds(trajectory: Trajectory) -> WorldMask:
    """Return which roll-outs are finite to their end, shape [worlds]."""
    return torch.isfinite(trajectory.q).all(-1).all(-1) & torch.isfinite(trajectory.qd).all(-1).all(-1)


def persistence(truth: Trajectory) -> Trajectory:
    """Return the persistence baseline: the first state forever."""
    return Trajectory(truth.q[:, :1].expand_as(truth.q), truth.qd[:, :1].expand_as(truth.qd))


def constant_velocity(truth: Trajectory, dt: float, spec: StateSpec | None = None) -> Trajectory:
    """Return the constant-velocity baseline: velocities stay as they are.

    Args:
        truth: Trajectories whose first states are gone on from.
        dt: Length of a frame [s].
        spec: Kinds of the joints; None where all have one degree of freedom. A floating base's origin is taken to
            move with the velocity of the centre of mass.
    """
    time = dt * torch.arange(truth.q.shape[1], dtype=truth.q.dtype, device=truth.q.device)
    moved = time[None, :, None] * truth.qd[:, :1]
    qd = truth.qd[:, :1].expand_as(truth.qd)
    if spec is None:
        return Trajectory(truth.q[:, :1] + moved, qd)
    return Trajectory(displace(spec, truth.q[:, :1], moved), qd)


def displace(spec: StateSpec, q: Positions, tangent: Velocities) -> Positions:
    """Return positions that `position_difference` says are `tangent` away from `q`, shape [..., nq].

    Args:
        spec: Kinds of the joints.
        q: Positions, shape [..., nq].
        tangent: Displacement by degree of freedom [m or rad], shape [..., nv].
    """
    parts = []
    for joint, place in zip(spec.joints, spec.places, strict=True):
        here, shift = q[..., place.q], tangent[..., place.qd]
        if joint.scalar:
            parts.append(here + shift)
            continue
        parts.append(here[..., :-4] + shift[..., :-3])
        turned = rotation.multiply(rotation.exponential(shift[..., -3:]), here[..., -4:])
        parts.append(rotation.normalise(turned))
    shape = torch.broadcast_shapes(q.shape[:-1], tangent.shape[:-1])
    return torch.cat([part.expand(*shape, part.shape[-1]) for part in parts], dim=-1)
