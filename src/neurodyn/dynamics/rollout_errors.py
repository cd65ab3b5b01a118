# SPDX-License-Identifier: Apache-2.0
"""Errors of roll-outs: by horizon, joint and group, beside trivial baselines, and whether one model beats another.

One rule holds for roll-outs that are not finite: they are counted (`finite_fraction`), means are over the finite ones,
and of two candidates the one with the larger share of them ranks last (`Ranking`), whatever its mean error.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from neurodyn.core.description.parameter import student_t
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.core.verdict import Finding, of_horizons, percent
from neurodyn.data.windows import Blocks
from neurodyn.dynamics.batch import Trajectory, new_figure
from neurodyn.dynamics.coordinates import coordinate_difference, position_difference
from neurodyn.dynamics.measures import (
    BASELINES,
    ErrorColumns,
    error_names,
    error_units,
    finite_worlds,
    position_errors,
)
from neurodyn.geometry.tensors import WorldMask
from neurodyn.robots import Robot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HORIZONS = (10, 100, 500, 1000)
"""Standard horizons [frames]."""
_MOST_COORDINATES = 12


def horizons_up_to(frames: int) -> list[int]:
    """Return the standard horizons within `frames`, and `frames`."""
    return sorted({mark for mark in HORIZONS if mark <= frames} | {frames})


class Ranking(NamedTuple):
    """Rank of a candidate by its roll-outs, the lower the better: first by the share that is not finite.

    Attributes:
        broken: Share of the roll-outs that are not finite.
        error: Mean error of the finite ones, infinite without any.
    """

    broken: float
    error: float

    @classmethod
    def of(cls, errors: Tensor) -> "Ranking":
        """Return the rank of a candidate from the errors of its roll-outs, shape [worlds]."""
        finite = torch.isfinite(errors)
        share = float(finite.double().mean())
        return cls(1.0 - share, float(errors[finite].mean()) if share else math.inf)


@dataclass(frozen=True, eq=False)
class RolloutErrors:
    """Roll-outs of T frames compared with the truth.

    Attributes:
        spec: Names, units and dt of the states.
        predicted: The prediction.
        truth: The recorded trajectory, or the prediction of other dynamics.
        carriers: Sliding joints that carry the base, whose position is the base's.
        predicted_label: Name of the prediction.
        truth_label: Name of the truth.
    """

    spec: StateSpec
    predicted: Trajectory
    truth: Trajectory
    carriers: tuple[str, ...] = ()
    predicted_label: str = "predicted"
    truth_label: str = "truth"

    @classmethod
    def of(cls, robot: Robot, predicted: Trajectory, truth: Trajectory) -> "RolloutErrors":
        """Compare roll-outs of a declared robot."""
        return cls(robot.spec, predicted, truth, tuple(robot.invariant_joints))

    @property
    def frames(self) -> int:
        """Frames T of the roll-outs."""
        return self.truth.q.shape[1] - 1

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the errors: joints, or position and orientation of a floating base."""
        return error_names(self.spec)

    @cached_property
    def finite(self) -> WorldMask:
        """Whether each roll-out is finite, in prediction and truth, with channels if both have them, shape [worlds]."""
        finite = finite_worlds(self.predicted) & finite_worlds(self.truth)
        if self.predicted.channels is None or self.truth.channels is None:
            return finite
        return finite & torch.isfinite(self.predicted.channels - self.truth.channels).all(-1).all(-1)

    @property
    def finite_fraction(self) -> float:
        """Share of the predictions that are finite."""
        return float(finite_worlds(self.predicted).double().mean())

    @cached_property
    def errors(self) -> Tensor:
        """Position errors of all frames but the first, by `names` [m or rad], shape [worlds, T, errors]."""
        return position_errors(self.spec, self.predicted, self.truth)

    @cached_property
    def tangents(self) -> Tensor:
        """Signed position errors (`position_difference`) [rad or m], shape [worlds, T, nv]."""
        return position_difference(self.spec, self.predicted.q[:, 1:], self.truth.q[:, 1:])

    @property
    def judged(self) -> Tensor:
        """Signed errors by which models are compared (`judge`), shape [worlds, T, n]: those of positions."""
        return self.tangents

    @property
    def known_tangents(self) -> slice:
        """Columns of `tangents` whose truth was measured: all."""
        return slice(None)

    @property
    def known_errors(self) -> slice:
        """Columns of `errors` whose truth was measured: all."""
        return slice(None)

    @property
    def doubted_names(self) -> tuple[str, ...]:
        """Names of `doubted`."""
        return self.names

    @property
    def doubted(self) -> Tensor:
        """Sizes of errors of what was measured, by which a model is doubted, shape [worlds, T, n]."""
        return self.errors

    @cached_property
    def velocities(self) -> Tensor:
        """Signed velocity errors [rad/s or m/s], shape [worlds, T, nv]."""
        return (self.predicted.qd - self.truth.qd)[:, 1:]

    @cached_property
    def columns(self) -> Tensor:
        """Signed errors of [q, qd, channels], with wrapped angles, shape [worlds, T, nq + nv + nx]."""
        q = coordinate_difference(self.spec, self.predicted.q[:, 1:], self.truth.q[:, 1:])
        parts = [q, self.velocities]
        if self.predicted.channels is not None and self.truth.channels is not None:
            parts.append((self.predicted.channels - self.truth.channels)[:, 1:])
        return torch.cat(parts, -1)

    @cached_property
    def groups(self) -> ErrorColumns:
        """Columns of `errors` by kind: base [m], orientation [rad], joints [rad], joints [m]."""
        return ErrorColumns.of(self.spec, self.carriers)

    def baseline(self, name: str) -> "RolloutErrors":
        """Return a baseline from the same starts, by its name in `BASELINES`."""
        one = BASELINES[name]
        return replace(self, predicted=one.predict(self.truth, self.spec.dt, self.spec), predicted_label=one.title)

    def rows(self, rows: Tensor | slice) -> "RolloutErrors":
        """Return some of the roll-outs."""
        return replace(self, predicted=self.predicted.rows(rows), truth=self.truth.rows(rows))

    def mean_errors(self, horizon: int | None = None) -> dict[str, float | None]:
        """Return errors [m or rad] by name, averaged over finite roll-outs and over frames up to `horizon`.

        `horizon` None is the whole roll-out. An error is None if no roll-out is finite.
        """
        errors = self.errors[self.finite][:, :horizon].double()
        if not len(errors):
            return dict.fromkeys(self.names)
        return dict(zip(self.names, errors.mean((0, 1)).tolist(), strict=True))

    def by_group(self, frames: Sequence[int]) -> dict[str, list[float | None]]:
        """Return mean errors at horizons: of the base's position and orientation, and over joints; None without any.

        Means are over the roll-outs that are finite.
        """
        columns, groups = self.groups, {}
        for name, chosen in (
            ("base [m]", columns.base), ("base [rad]", columns.orientation),
            ("joints [rad or m]", sorted((*columns.angles, *columns.slides))),
        ):  # fmt: skip
            if chosen:
                finite = self.errors[self.finite][..., list(chosen)]
                groups[name] = [float(finite[:, frame - 1].mean()) if len(finite) else None for frame in frames]
        return groups

    def plot(self, *, worlds: Sequence[int] = (0,)) -> "Figure":
        """Draw coordinates over time, the prediction over the truth; an `InputError` for a missing world."""
        count = self.truth.q.shape[0]
        for world in worlds:
            if not -count <= world < count:
                raise InputError(f"worlds has {world}; valid: 0 to {count - 1}")
        units = zip(self.spec.q_names, self.spec.q_units, strict=True)
        shown = [(i, name, unit) for i, (name, unit) in enumerate(units) if unit != "1"][:_MOST_COORDINATES]
        figure = new_figure(figsize=(8.0, 0.6 + 1.8 * len(shown)))
        seconds = [k * self.spec.dt for k in range(self.frames + 1)]
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

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {_number(value)}" for name, value in self.mean_errors().items())
        worlds = self.truth.q.shape[0]
        return f"{self.predicted_label} beside {self.truth_label}: {worlds} roll-outs of {self.frames} frames: {means}"

    def _repr_html_(self) -> str:
        """Return a table of mean errors by horizon, with those of the baselines, for notebooks."""
        units = dict(zip(self.names, error_units(self.spec), strict=True))
        heads = "".join(f"<th>{escape(name)} [{units[name]}]</th>" for name in self.names)
        lines = []
        for errors in (self, *map(self.baseline, BASELINES)):
            for horizon in horizons_up_to(self.frames):
                cells = "".join(f"<td>{_number(value)}</td>" for value in errors.mean_errors(horizon).values())
                seconds = f"{horizon * self.spec.dt:.4g} s"
                lines.append(f"<tr><td>{escape(errors.predicted_label)}</td><td>{seconds}</td>{cells}</tr>")
        title = escape(f"Mean position error of {self.predicted_label} beside {self.truth_label}")
        return f"<b>{title}</b><table><tr><th></th><th>horizon</th>{heads}</tr>{''.join(lines)}</table>"


def beside_baselines(errors: RolloutErrors) -> list[Finding]:
    """Judge roll-outs beside the baselines from the same starts, at the standard horizons and at their end."""
    frames, findings = horizons_up_to(errors.frames), list[Finding]()
    seconds, mine = [frame * errors.spec.dt for frame in frames], errors.by_group(frames)
    for name, one in BASELINES.items():
        theirs = errors.baseline(name).by_group(frames)
        for group in mine:
            findings.append(
                of_horizons(
                    mine[group], theirs[group], seconds, rival=one.title, what=f"held-out error of {group}",
                    advice="train longer, give more data, or ask for shorter horizons", grade="warning",
                )
            )  # fmt: skip
    return findings


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"


def compare_rollouts(
    spec: StateSpec, predicted: Trajectory, truth: Trajectory, *, predicted_label: str, truth_label: str
) -> RolloutErrors:
    """Return the errors of roll-outs, with the truth cut to their length; an `InputError` if it does not fit."""
    mine, theirs = list(predicted.q.shape), list(truth.q.shape)
    if [mine[0], mine[2]] != [theirs[0], theirs[2]] or theirs[1] < mine[1]:
        raise InputError(f"truth.q has shape {theirs}; valid: {mine}, or more states")
    truth = truth.until(mine[1] - 1).to(predicted.q.device).to(predicted.q.dtype)
    return RolloutErrors(spec, predicted, truth, predicted_label=predicted_label, truth_label=truth_label)


_FEW = 3
"""Number of blocks below which a spread is meaningless, and a model must be better by `_CLEARLY` instead."""
_CLEARLY = 0.05


@dataclass(frozen=True)
class Judgement:
    """Decision on a model that is compared with another one.

    Attributes:
        kept: Whether it is better.
        share: Its mean error, relative to that of the other one; None if no roll-out is finite for both.
        reason: Why, in one line.
        open: Whether it is neither better nor worse beyond the spread.
        needed: Share of the error of the other one that it has to save to be better beyond the spread.
    """

    kept: bool
    share: float | None
    reason: str
    open: bool = False
    needed: float = 0.0


def judge(below: RolloutErrors, above: RolloutErrors, frames: Sequence[int], blocks: Blocks) -> Judgement:
    """Return whether a model beats the one `below` by more than the spread over independent blocks of windows.

    Errors of positions at the horizons `frames` count, each over its mean for the model below, in roll-outs that are
    finite for both. A model with more roll-outs that are not finite is never better, and one with fewer always is.
    """
    both, rows = below.finite & above.finite, [frame - 1 for frame in frames]
    before, after = (errors.judged[both][:, rows].abs() for errors in (below, above))
    scale = before.mean(0).clamp_min(1e-9)
    of_window = blocks.of_window[both]
    counts = torch.bincount(of_window, minlength=blocks.count)
    counted = counts > 0

    def score(errors: Tensor) -> Tensor:
        by_window = (errors / scale).mean((1, 2))
        return (by_window.new_zeros(blocks.count).index_add(0, of_window, by_window) / counts)[counted]

    before, after = score(before), score(after)
    share = float(after.mean() / before.mean()) if bool(both.any()) else None
    ours, theirs = (1.0 - float(errors.finite.double().mean()) for errors in (above, below))
    if ours != theirs:
        reason = f"{percent(ours)} of its roll-outs are not finite, {percent(theirs)} of those below"
        return Judgement(ours < theirs, share, reason)
    if share is None:
        return Judgement(False, None, "no roll-out is finite")
    count = int(counted.sum())
    text = replace(blocks, count=count).text
    if count < _FEW:
        reason = f"{share:.2f} of the error, in {text}: too few to tell a spread"
        return Judgement(share < 1.0 - _CLEARLY, share, reason)
    gain = before - after
    needed = student_t(count - 1) * float(gain.std() / count**0.5)
    kept = float(gain.mean()) > needed
    verb = "better" if kept else "not better"
    reason = f"{share:.2f} of the error, {verb} beyond the spread over {text} (± {needed:.2f})"
    return Judgement(kept, share, reason, abs(float(gain.mean())) <= needed, needed / max(float(before.mean()), 1e-12))
