# SPDX-License-Identifier: Apache-2.0
"""Errors of roll-outs: metrics by horizon and over time, baselines, by joint limits and by conditions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.registry import Registry
from neurodyn.core.seeds import derive_seed
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.conditions import Condition
from neurodyn.dynamics.measures import BASELINES, finite_worlds
from neurodyn.dynamics.rollout_errors import RolloutErrors, horizons_up_to
from neurodyn.evaluate.records import (
    ConditionBin,
    ConditionErrors,
    ErrorCurve,
    ErrorCurves,
    ErrorSummary,
    LimitSplit,
    Percentiles,
    RolloutComparison,
)

PERCENTILES = (10, 50, 90)
_POINTS = 200
"""Most frames in a curve."""


@dataclass(frozen=True)
class Metric:
    """An error of roll-outs, shown in JSON, tables and pages.

    Attributes:
        unit: Unit.
        title: Name in tables and on pages.
        compute: Maps compared roll-outs to absolute errors, shape [worlds, T, n]; None if not applicable.
    """

    unit: str
    title: str
    compute: Callable[[RolloutErrors], Tensor | None]


def errors_by_metric(compared: RolloutErrors) -> dict[str, Tensor]:
    """Return the errors of roll-outs by metric, shape [worlds, T, n] each."""
    by_metric = {name: metric.compute(compared) for name, metric in METRICS.items()}
    return {name: errors for name, errors in by_metric.items() if errors is not None}


def summarise(compared: RolloutErrors, horizon: int, rows: Tensor | None = None) -> ErrorSummary:
    """Return mean errors up to a horizon over the roll-outs `rows` (None: all finite ones)."""
    return summaries(compared, [horizon], rows)[str(horizon)]


def summaries(compared: RolloutErrors, horizons: Sequence[int], rows: Tensor | None = None) -> dict[str, ErrorSummary]:
    """Return mean errors up to each horizon, and at it, over the roll-outs `rows` (None: all finite ones)."""
    rows = compared.finite if rows is None else rows
    by_metric = {name: errors[rows] for name, errors in errors_by_metric(compared).items()}
    joints, errors = compared.groups.joints(), compared.errors[rows]
    return {str(horizon): _summary(by_metric, errors, joints, horizon) for horizon in horizons}


def _summary(by_metric: dict[str, Tensor], positions: Tensor, columns: dict[str, int], horizon: int) -> ErrorSummary:
    means: dict[str, float | None] = dict.fromkeys(("base_position_m", "base_orientation_rad"), 0.0)
    spread: dict[str, Percentiles] = {}
    at: dict[str, float | None] = {}
    for name, errors in by_metric.items():
        by_world = errors[:, :horizon].double().mean((1, 2))
        means[name] = float(by_world.mean()) if len(by_world) else None
        spread[name] = percentiles(by_world)
        at[name] = float(errors[:, horizon - 1].double().mean()) if len(by_world) else None
    single = positions[:, :horizon].double().mean((0, 1)).tolist() if len(positions) else None
    joints: dict[str, float | None] = {name: None if single is None else single[i] for name, i in columns.items()}
    return ErrorSummary(means=means, percentiles=spread, joints=joints, at=at)


def error_curves(compared: RolloutErrors) -> ErrorCurves:
    """Return mean and percentiles of the errors at up to `_POINTS` frames, for plots."""
    frames = torch.linspace(1, compared.frames, min(_POINTS, compared.frames)).long().unique()
    curves = {}
    for name, errors in errors_by_metric(compared).items():
        at_end = errors[compared.finite][:, frames - 1].double().mean(-1)
        curves[name] = ErrorCurve(
            mean=at_end.mean(0).tolist() if len(at_end) else [],
            median=at_end.median(0).values.tolist() if len(at_end) else [],
            p90=torch.quantile(at_end, 0.9, dim=0).tolist() if len(at_end) else [],
        )
    return ErrorCurves(frame=frames.tolist(), by_metric=curves)


def _of_columns(part: str) -> Callable[[RolloutErrors], Tensor | None]:
    def pick(compared: RolloutErrors) -> Tensor | None:
        columns = getattr(compared.groups, part)
        return compared.errors[..., list(columns)] if columns else None

    return pick


METRICS: Registry[Metric] = Registry(
    "metric",
    base_position_m=Metric("m", "Base position", _of_columns("base")),
    base_orientation_rad=Metric("rad", "Base orientation", _of_columns("orientation")),
    joint_rad=Metric("rad", "Joint angle", _of_columns("angles")),
    joint_m=Metric("m", "Joint position", _of_columns("slides")),
)
"""Metrics by JSON key, in the order of display."""


def shown_metrics(summary: ErrorSummary) -> dict[str, Metric]:
    """Return the metrics that a summary has percentiles of."""
    return {name: METRICS[name] for name in METRICS if name in summary.percentiles}


def percentiles(values: Tensor) -> Percentiles:
    """Return the percentiles "10", "50" and "90" of values."""
    if not len(values):
        return {str(p): None for p in PERCENTILES}
    shares = torch.tensor([p / 100 for p in PERCENTILES], dtype=torch.float64)
    quantiles = torch.quantile(values.double(), shares).tolist()
    return {str(p): value for p, value in zip(PERCENTILES, quantiles, strict=True)}


def compare(compared: RolloutErrors, *, simulated: bool) -> RolloutComparison:
    """Return errors of roll-outs and of the baselines.

    With a `simulated` truth, its non-finite roll-outs and joint-limit contacts are counted too.
    """
    marks, sound = horizons_up_to(compared.frames), finite_worlds(compared.truth)
    by_horizon = summaries(compared, marks)
    return RolloutComparison(
        summary=by_horizon[str(compared.frames)],
        by_horizon=by_horizon,
        finite_fraction=compared.finite_fraction,
        simulator_finite_fraction=float(sound.double().mean()) if simulated else UNSET,
        baselines={  # over all roll-outs with a finite truth
            name: summaries(compared.baseline(name), marks, sound) for name in BASELINES
        },
        limits={str(mark): _split_by_limits(compared, mark) for mark in marks} if simulated else UNSET,
        curve=error_curves(compared),
    )


def touches_limit(spec: StateSpec, truth: Trajectory, horizon: int) -> Tensor:
    """Return whether each true roll-out reaches a joint limit within a horizon, shape [worlds]."""
    q = truth.q[:, : horizon + 1]
    touched = torch.zeros(q.shape[0], dtype=torch.bool)
    for joint in spec.joints:
        values = q[..., spec.q_names.index(joint.q_names[0])]
        if joint.upper is not None:
            touched |= (values >= joint.upper).any(1)
        if joint.lower is not None:
            touched |= (values <= joint.lower).any(1)
    return touched


def _split_by_limits(compared: RolloutErrors, horizon: int) -> LimitSplit:
    touched = touches_limit(compared.spec, compared.truth, horizon)
    return LimitSplit(
        touching_fraction=float(touched.double().mean()),
        touching=summarise(compared, horizon, compared.finite & touched),
        not_touching=summarise(compared, horizon, compared.finite & ~touched),
    )


_INSIDE, _BEYOND = 384, 64
"""Number of roll-outs with all conditions in the training range, and with one beyond either end."""

_REACH = 0.25
"""Distance beyond the range, as a fraction of it."""

THIRDS = ("lower third", "middle third", "upper third")
BELOW, ABOVE = "below the training data", "above the training data"


def draw_conditions(conditions: Sequence[Condition], seed: int) -> Tensor:
    """Draw conditions for roll-outs, uniform in their ranges and one at a time beyond, shape [worlds, n].

    Nonnegative quantities stay so.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "conditions"))
    lower, upper = (torch.tensor([getattr(condition, end) for condition in conditions]) for end in ("lower", "upper"))

    def inside(worlds: int) -> Tensor:
        return lower + (upper - lower) * torch.rand(worlds, len(conditions), generator=generator)

    parts = [inside(_INSIDE)]
    for column, one in enumerate(conditions):
        width = _REACH * (one.upper - one.lower)
        least = select_parameters({one.name: max(one.value, 0.0)}, [one.name])[0].lower
        below = one.lower - width if least is None else max(one.lower - width, least)
        for low, high in ((below, one.lower), (one.upper, one.upper + width)):
            if high - low > 1e-6 * width:
                part = inside(_BEYOND)
                part[:, column] = low + (high - low) * torch.rand(_BEYOND, generator=generator)
                parts.append(part)
    return torch.cat(parts)


def errors_by_condition(
    conditions: Sequence[Condition], numbers: Tensor, compared: RolloutErrors, frames: int
) -> list[ConditionErrors]:
    """Return mean errors up to a horizon by thirds of the range of each condition, and beyond it.

    A roll-out counts if all its other conditions are in their ranges.

    Args:
        conditions: The conditions.
        numbers: Values of the conditions in each roll-out, shape [worlds, conditions].
        compared: The predicted and true roll-outs.
        frames: The horizon.
    """
    lower, upper = (torch.tensor([getattr(condition, end) for condition in conditions]) for end in ("lower", "upper"))
    inside = (numbers >= lower) & (numbers <= upper)
    errors = {name: values[:, :frames].double().mean((1, 2)) for name, values in errors_by_metric(compared).items()}
    by_condition = []
    for column, one in enumerate(conditions):
        others = torch.cat([inside[:, :column], inside[:, column + 1 :]], 1).all(1) & compared.finite
        values, edges = numbers[:, column].contiguous(), torch.linspace(one.lower, one.upper, len(THIRDS) + 1)
        third = torch.bucketize(values, edges[1:-1])
        rows = {name: inside[:, column] & (third == k) for k, name in enumerate(THIRDS)}
        rows |= {BELOW: values < lower[column], ABOVE: values > upper[column]}
        bins = {name: _bin(values, others & chosen, errors, inside=name in THIRDS) for name, chosen in rows.items()}
        by_condition.append(
            ConditionErrors(
                name=one.name, lower=one.lower, upper=one.upper, frames=frames,
                bins={name: entry for name, entry in bins.items() if entry.rollouts},
            )
        )  # fmt: skip
    return by_condition


def _bin(values: Tensor, rows: Tensor, errors: dict[str, Tensor], *, inside: bool) -> ConditionBin:
    in_bin = values[rows]
    return ConditionBin(
        rollouts=len(in_bin), inside=inside, mean=float(in_bin.mean()) if len(in_bin) else None,
        errors={name: float(error[rows].mean()) if len(in_bin) else None for name, error in errors.items()},
    )  # fmt: skip
