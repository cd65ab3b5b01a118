# SPDX-License-Identifier: Apache-2.0
"""Curves of held-out forecasts: sample windows, growth of errors over the horizon, and errors beside signals.

RUN/forecasts.json holds what the plots of a page need, so that it can be written again without the log.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from neurodyn.core.artifacts import read_json, write_text
from neurodyn.core.config import Record, from_dict
from neurodyn.core.description.spec import StateSpec
from neurodyn.data.windows import Windows
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.measures import BASELINES
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.identify.ladder.rungs import signals
from neurodyn.identify.result import UnexplainedCoordinate

FILE = "forecasts.json"
_POINTS = 160
"""Most points of a curve."""
_COORDINATES, _ROWS = 4, 120
"""Coordinates whose errors are kept beside a signal, and most windows of each."""

Row = list[float | None]
"""Values of a curve, rounded; None where not finite."""


class WindowCurves(Record, frozen=True):
    """Positions in one window as logged and as forecast by each model, shape [nv, points].

    Attributes:
        which: "typical" or "worst": the median and the largest error of the chosen model.
        logged: Logged positions; of a base or a ball joint since the window's start.
        paths: Forecasts by model.
    """

    which: str
    logged: list[Row]
    paths: dict[str, list[Row]]


class ErrorBesideSignal(Record, frozen=True):
    """Unexplained errors of a coordinate in windows, beside the signal that they correlate with most."""

    name: str
    unit: str
    signal: str
    correlation: float
    x: Row
    y: Row


class Forecasts(Record, frozen=True):
    """Content of forecasts.json.

    Attributes:
        split: Split of the windows.
        starts: Number of windows.
        chosen: Name of the model by whose errors the windows are chosen.
        names: Names of the coordinates.
        units: Their units.
        seconds: Times of the points of the windows' curves [s].
        windows: Sample windows.
        horizons: Horizons of `growth` [s].
        growth: Mean errors at these horizons by group and model, over finite roll-outs.
        rest: Unexplained errors beside signals.
    """

    split: str
    starts: int
    chosen: str
    names: list[str]
    units: list[str]
    seconds: list[float]
    windows: list[WindowCurves]
    horizons: list[float]
    growth: dict[str, dict[str, Row]]
    rest: list[ErrorBesideSignal] = msgspec.field(default_factory=list)


def forecasts_of(errors: Mapping[str, RolloutErrors], chosen: str, split: str) -> Forecasts:
    """Return the curves of models on the same windows.

    Args:
        errors: Errors by model, the declared one first.
        chosen: Name of the model that is used.
        split: Name of the windows' split.
    """
    first = next(iter(errors.values()))
    spec, frames, known = first.spec, first.frames, first.known_tangents
    shown = sorted({*range(0, frames, math.ceil(frames / _POINTS)), frames})
    after = [frame for frame in shown if frame]
    everything = {**errors, **{name.replace("_", "-"): first.baseline(name) for name in BASELINES}}
    by_model = {name: one.by_group(after) for name, one in everything.items()}
    ranked = _rank(first, errors[chosen])
    windows = []
    for which, row in (("typical", ranked[len(ranked) // 2]), ("worst", ranked[-1])):
        paths = {name: _rows(spec, one.predicted.q[row], shown)[known] for name, one in errors.items()}
        windows.append(WindowCurves(which=which, logged=_rows(spec, first.truth.q[row], shown)[known], paths=paths))
    return Forecasts(
        split=split, starts=len(ranked), chosen=chosen, names=list(spec.tangent_names[known]),
        units=_units(spec)[known],
        seconds=[round(frame * spec.dt, 6) for frame in shown], windows=windows,
        horizons=[round(frame * spec.dt, 6) for frame in after],
        growth={
            group: {name: _row(groups[group]) for name, groups in by_model.items()}
            for group in next(iter(by_model.values()))
        },
    )  # fmt: skip


def beside_signals(
    spec: StateSpec, windows: Windows, errors: Tensor, coordinates: Sequence[UnexplainedCoordinate]
) -> list[ErrorBesideSignal]:
    """Return the errors of the least explained coordinates beside the signals that go with them most.

    Args:
        spec: Names of the coordinates.
        windows: The windows.
        errors: Errors of positions at their end [rad or m], shape [W, nv].
        coordinates: Coordinates, the least explained first.
    """
    kept = []
    rows = torch.linspace(0, windows.count - 1, min(windows.count, _ROWS)).round().long()
    units = dict(zip(spec.tangent_names, _units(spec), strict=True))
    for one in [one for one in coordinates if one.with_signals][:_COORDINATES]:
        joint = next(joint for joint in spec.joints if one.name in joint.tangent_names)
        signal, correlation = next(iter(one.with_signals.items()))
        kept.append(
            ErrorBesideSignal(
                name=one.name, unit=units[one.name], signal=signal, correlation=correlation,
                x=_row(signals(spec, joint, windows)[signal][rows].tolist()),
                y=_row(errors[rows, spec.tangent_names.index(one.name)].tolist()),
            )
        )  # fmt: skip
    return kept


def write_forecasts(run: Path, forecasts: Forecasts, rest: Sequence[ErrorBesideSignal] = ()) -> None:
    """Write RUN/forecasts.json, atomically, with unexplained errors beside signals."""
    forecasts = msgspec.structs.replace(forecasts, rest=list(rest))
    write_text(run / FILE, json.dumps(forecasts.plain(), allow_nan=False, separators=(",", ":")) + "\n")


def read_forecasts(run: Path) -> Forecasts | None:
    """Read RUN/forecasts.json; None for a run without it.

    Raises:
        InputError: It is damaged.
    """
    path = run / FILE
    return from_dict(read_json(path), Forecasts, str(path)) if path.is_file() else None


def _rank(first: RolloutErrors, chosen: RolloutErrors) -> list[int]:
    """Return the windows by the chosen model's error, each coordinate's over its mean for the first model."""
    scale = first.judged[first.finite].abs().mean((0, 1)) if bool(first.finite.any()) else first.judged.new_ones(())
    score = (chosen.judged.abs() / scale.clamp_min(1e-9)).mean((1, 2))
    return torch.where(chosen.finite, score, math.inf).argsort(stable=True).tolist()


def _rows(spec: StateSpec, q: Tensor, frames: Sequence[int]) -> list[Row]:
    """Return the coordinates of a path [T + 1, nq] at some frames; angles continue beyond a turn."""
    path = position_difference(spec, q, q[:1])
    steps = torch.cat([q.new_zeros(1, path.shape[1]), position_difference(spec, q[1:], q[:-1]).cumsum(0)])
    for column, name in enumerate(spec.tangent_names):
        if name in spec.q_names:
            path[:, column] = q[0, spec.q_names.index(name)] + steps[:, column]
    return [_row(values) for values in path[list(frames)].T.tolist()]


def _units(spec: StateSpec) -> list[str]:
    return [unit for joint in spec.joints for unit in joint.tangent_units]


def _row(values: Sequence[float | None]) -> Row:
    return [None if x is None or not math.isfinite(x) else float(f"{x:.5g}") for x in values]
