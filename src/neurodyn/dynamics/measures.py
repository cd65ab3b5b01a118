# SPDX-License-Identifier: Apache-2.0
"""Position errors of roll-outs by joint, predictions of trivial baselines, and roll-outs compared with the truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Trajectory, new_figure
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.geometry import rotation
from neurodyn.geometry.tensors import Positions, Velocities, WorldMask
from neurodyn.robots import Robot

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    def of(cls, robot: Robot) -> "ErrorColumns":
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
        """Return the columns of single joints by name, without the joints of a base."""
        return {self.names[i]: i for i in sorted((*self.angles, *self.slides)) if self.names}


def error_names(spec: StateSpec) -> tuple[str, ...]:
    """Return the names of a robot's errors: joints, or "root.position" and "root.orientation"."""
    return tuple(f"{name}.{kind}" if kind in ("position", "orientation") else name for name, kind in _kinds(spec))


def error_units(spec: StateSpec) -> tuple[str, ...]:
    """Return the units of the errors, "m" or "rad"."""
    return tuple("m" if kind in ("position", "prismatic") else "rad" for _, kind in _kinds(spec))


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
    """Return the joint and the kind of each error."""
    found = []
    for joint in spec.joints:
        kinds = ("position", "orientation") if joint.kind == "free" else (joint.kind,)
        found += [(joint.name, kind) for kind in kinds]
    return found


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
    return Trajectory(truth.q[:, :1].expand_as(truth.q), truth.qd[:, :1].expand_as(truth.qd))


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


def displace(spec: StateSpec, q: Positions, tangent: Velocities) -> Positions:
    """Return positions [..., nq] at the `position_difference` `tangent` [..., nv] [m or rad] from `q`."""
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


_HORIZONS = (10, 100, 500, 1000)
_MOST_COORDINATES = 12


@dataclass(frozen=True, eq=False)
class ComparedRollouts:
    """Roll-outs compared with the truth.

    Attributes:
        spec: Names, units and dt of the states.
        predicted: The prediction.
        truth: The recorded trajectory, or the prediction of other dynamics.
        predicted_label: Name of the prediction.
        truth_label: Name of the truth.
    """

    spec: StateSpec
    predicted: Trajectory
    truth: Trajectory
    predicted_label: str = "predicted"
    truth_label: str = "truth"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the errors: joints, or position and orientation of a floating base."""
        return error_names(self.spec)

    @property
    def errors(self) -> Tensor:
        """Position errors of all frames but the first [m or rad], shape [worlds, T, errors]."""
        return position_errors(self.spec, self.predicted, self.truth)

    def mean_errors(self, horizon: int | None = None) -> dict[str, float | None]:
        """Return errors [m or rad] by name, averaged over finite roll-outs and over frames up to `horizon`.

        `horizon` None is the whole roll-out. An error is None if no roll-out is finite.
        """
        return self._means(self.predicted, self._frames if horizon is None else horizon)

    def plot(self, *, worlds: Sequence[int] = (0,)) -> "Figure":
        """Draw coordinates over time, the prediction over the truth; an `InputError` for a missing world."""
        count = self.truth.q.shape[0]
        for world in worlds:
            if not -count <= world < count:
                raise InputError(f"worlds has {world}; valid: 0 to {count - 1}")
        units = zip(self.spec.q_names, self.spec.q_units, strict=True)
        shown = [(i, name, unit) for i, (name, unit) in enumerate(units) if unit != "1"][:_MOST_COORDINATES]
        figure = new_figure(figsize=(8.0, 0.6 + 1.8 * len(shown)))
        seconds = [k * self.spec.dt for k in range(self._frames + 1)]
        for axes, (i, name, unit) in zip(figure.subplots(len(shown), squeeze=False)[:, 0], shown, strict=True):
            for k, world in enumerate(worlds):
                truth, predicted = (path.q[world, :, i].detach().cpu() for path in (self.truth, self.predicted))
                labels = (None, None) if k else (self.truth_label, self.predicted_label)
                axes.plot(seconds, truth, color="#1971c2", linewidth=3.5, alpha=0.5, label=labels[0])
                axes.plot(seconds, predicted, color="#d9480f", linewidth=1.2, label=labels[1])
            axes.set_ylabel(f"{name} [{unit}]")
        figure.axes[0].legend(fontsize="small")
        figure.axes[-1].set_xlabel("time [s]")
        return figure

    @property
    def _frames(self) -> int:
        return self.truth.q.shape[1] - 1

    @property
    def _horizons(self) -> list[int]:
        return sorted({mark for mark in _HORIZONS if mark <= self._frames} | {self._frames})

    def _means(self, path: Trajectory, horizon: int) -> dict[str, float | None]:
        rows = finite_worlds(self.predicted) & finite_worlds(self.truth)
        errors = position_errors(self.spec, path, self.truth)[rows][:, :horizon].double()
        if not len(errors):
            return dict.fromkeys(self.names)
        return dict(zip(self.names, errors.mean((0, 1)).tolist(), strict=True))

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {_number(value)}" for name, value in self.mean_errors().items())
        worlds = self.truth.q.shape[0]
        return f"{self.predicted_label} beside {self.truth_label}: {worlds} roll-outs of {self._frames} frames: {means}"

    def _repr_html_(self) -> str:
        """Return a table of mean errors by horizon, with those of persistence, for notebooks."""
        units = dict(zip(self.names, error_units(self.spec), strict=True))
        heads = "".join(f"<th>{escape(name)} [{units[name]}]</th>" for name in self.names)
        lines = []
        for label, path in ((self.predicted_label, self.predicted), ("persistence", persistence(self.truth))):
            for horizon in self._horizons:
                cells = "".join(f"<td>{_number(value)}</td>" for value in self._means(path, horizon).values())
                lines.append(f"<tr><td>{escape(label)}</td><td>{horizon * self.spec.dt:.4g} s</td>{cells}</tr>")
        title = escape(f"Mean position error of {self.predicted_label} beside {self.truth_label}")
        return f"<b>{title}</b><table><tr><th></th><th>horizon</th>{heads}</tr>{''.join(lines)}</table>"


def compared(
    spec: StateSpec, predicted: Trajectory, truth: Trajectory, *, predicted_label: str, truth_label: str
) -> ComparedRollouts:
    """Return roll-outs compared with the truth, cut to their length; an `InputError` if it does not fit."""
    frames = predicted.q.shape[1] - 1
    mine, theirs = list(predicted.q.shape), list(truth.q.shape)
    if [mine[0], mine[2]] != [theirs[0], theirs[2]] or theirs[1] < mine[1]:
        raise InputError(f"truth.q has shape {theirs}; valid: {mine}, or more states")
    moved = truth.until(frames).to(predicted.q.device).to(predicted.q.dtype)
    return ComparedRollouts(spec, predicted, moved, predicted_label, truth_label)


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"
