# SPDX-License-Identifier: Apache-2.0
"""Position errors by joint, and predictions of trivial baselines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from neurodyn.core.description.spec import COORDINATES, StateSpec
from neurodyn.core.registry import Registry
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.geometry import rotation
from neurodyn.geometry.tensors import Positions, Velocities, WorldMask

MOVING = 1.0
"""Mean joint speed above which a window counts as moving [rad/s or m/s]."""


@dataclass(frozen=True)
class ErrorColumns:
    """Columns of `error_names` by kind.

    Attributes:
        base: Position of the base [m].
        angles: Revolute and ball joints [rad].
        slides: Prismatic joints that do not carry the base [m].
        orientation: Orientation of a floating base [rad].
        names: Names of all errors.
    """

    base: tuple[int, ...]
    angles: tuple[int, ...]
    slides: tuple[int, ...]
    orientation: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: StateSpec, carriers: Sequence[str] = ()) -> "ErrorColumns":
        """Return the columns of a robot; `carriers` are the sliding joints that carry its base."""
        kinds, units = _kinds(spec), error_units(spec)
        sliders = [i for i, (name, _) in enumerate(kinds) if units[i] == "m" and name in carriers]
        base = [i for i, (_, kind) in enumerate(kinds) if kind == "position"]
        return cls(
            base=tuple(base or sliders),
            angles=tuple(i for i, (_, kind) in enumerate(kinds) if units[i] == "rad" and kind != "orientation"),
            slides=tuple(i for i, unit in enumerate(units) if unit == "m" and i not in (base or sliders)),
            orientation=tuple(i for i, (_, kind) in enumerate(kinds) if kind == "orientation"),
            names=error_names(spec),
        )

    def joints(self) -> dict[str, int]:
        """Return the columns of single joints by name, without the joints of a base."""
        return {self.names[i]: i for i in sorted((*self.angles, *self.slides)) if self.names}


def error_names(spec: StateSpec) -> tuple[str, ...]:
    """Return the names of a robot's errors: joints, or "root.position" and "root.orientation"."""
    return tuple(f"{name}.{kind}" if kind in ("position", "orientation") else name for name, kind in _kinds(spec))


def error_units(spec: StateSpec) -> tuple[str, ...]:
    """Return the units of the errors, "m" or "rad"."""
    units = {"position": "m", "orientation": "rad"} | {kind: one.tangent_units[0] for kind, one in COORDINATES.items()}
    return tuple(units[kind] for _, kind in _kinds(spec))


def position_errors(spec: StateSpec, predicted: Trajectory, truth: Trajectory) -> Float[Tensor, "worlds frames errors"]:
    """Return the position errors of all frames but the first [m or rad], shape [worlds, T, errors]."""
    return joint_distance(spec, predicted.q[:, 1:], truth.q[:, 1:])


def joint_distance(spec: StateSpec, q: Positions, reference: Positions) -> Float[Tensor, "*#batch errors"]:
    """Return the distance between positions [..., nq], joint by joint, in the order of `error_names` [m or rad].

    Quaternions may have any length above 0.
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
    kinds_of_errors = []
    for joint in spec.joints:
        kinds = ("position", "orientation") if joint.kind == "free" else (joint.kind,)
        kinds_of_errors += [(joint.name, kind) for kind in kinds]
    return kinds_of_errors


def _unit(spec: StateSpec, q: Tensor) -> Tensor:
    """Return positions with quaternions of unit length."""
    q = q.clone()
    for joint, place in zip(spec.joints, spec.places, strict=True):
        if not joint.scalar:
            q[..., place.quaternion] = rotation.normalise(q[..., place.quaternion])
    return q


def finite_worlds(trajectory: Trajectory) -> WorldMask:
    """Return which roll-outs are finite throughout, shape [worlds]."""
    return torch.isfinite(trajectory.q).all(-1).all(-1) & torch.isfinite(trajectory.qd).all(-1).all(-1)


def persistence(truth: Trajectory) -> Trajectory:
    """Return the persistence baseline: the first state, held."""
    parts = (truth.q, truth.qd, truth.channels)
    return Trajectory(*(None if x is None else x[:, :1].expand_as(x) for x in parts))  # pyright: ignore[reportArgumentType]


def constant_velocity(truth: Trajectory, dt: float, spec: StateSpec | None = None) -> Trajectory:
    """Return the constant-velocity baseline from the first states of trajectories.

    Args:
        truth: The trajectories.
        dt: Length of a frame [s].
        spec: Kinds of the joints; None if all have one degree of freedom. The origin of a floating base is taken to
            move with the velocity of the centre of mass.
    """
    time = dt * torch.arange(truth.q.shape[1], dtype=truth.q.dtype, device=truth.q.device)
    moved = time[None, :, None] * truth.qd[:, :1]
    qd = truth.qd[:, :1].expand_as(truth.qd)
    if spec is None:
        return Trajectory(truth.q[:, :1] + moved, qd)
    return Trajectory(displace(spec, truth.q[:, :1], moved), qd)


@dataclass(frozen=True)
class Baseline:
    """A trivial prediction.

    Attributes:
        predict: From true trajectories, dt [s] and spec to the prediction from their first states.
        title: Its name in tables.
    """

    predict: Callable[[Trajectory, float, StateSpec], Trajectory]
    title: str


PERSISTENCE = "hold_last"
BASELINES: Registry[Baseline] = Registry(
    "baseline",
    **{PERSISTENCE: Baseline(lambda truth, dt, spec: persistence(truth), "persistence")},
    constant_velocity=Baseline(constant_velocity, "constant velocity"),
)
"""Baselines by their names in results; those of `identify` have hyphens instead of underscores."""


def displace(spec: StateSpec, q: Positions, tangent: Velocities) -> Positions:
    """Return positions [..., nq] at the `position_difference` `tangent` [..., nv] [m or rad] from `q`."""
    if not spec.joints:
        return tangent
    parts = []
    for joint, place in zip(spec.joints, spec.places, strict=True):
        here, shift = q[..., place.q], tangent[..., place.qd]
        if joint.scalar:
            parts.append(here + shift)
            continue
        parts.append(here[..., :-4] + shift[..., :-3])
        turned = rotation.multiply(rotation.exponential(shift[..., -3:]), here[..., -4:])
        parts.append(rotation.normalise(turned))
    # torch.broadcast_shapes would import sympy: half a second.
    shape = torch.broadcast_tensors(q[..., 0], tangent[..., 0])[0].shape
    return torch.cat([part.expand(*shape, part.shape[-1]) for part in parts], dim=-1)
