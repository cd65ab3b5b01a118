# SPDX-License-Identifier: Apache-2.0
"""Evaluation of a world model against a log: errors by horizon, calibration, contacts and failures."""

from collections.abc import Mapping

import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.core.progress import stage, tell, tracked
from neurodyn.data.mixture import Mixture
from neurodyn.data.split import episodes_in
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import present_state
from neurodyn.dynamics.conditions import known_conditions
from neurodyn.dynamics.measures import PERSISTENCE
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.dynamics.rollouts import RolloutBatch, recorded_environments, starts_of
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.dynamics.world_model.termination import FRAMES, Alarms, alarms_along
from neurodyn.evaluate import calibration
from neurodyn.evaluate.calibration import BATCH, ColumnErrors, forecast_along
from neurodyn.evaluate.records import (
    ColumnMeans,
    ErrorSummary,
    EventScores,
    Failures,
    ForecastEvaluation,
    WorldGroup,
    WorldMark,
)
from neurodyn.evaluate.refusals import refusals, refused_starts
from neurodyn.evaluate.requests import SEED
from neurodyn.evaluate.rollouts import (
    MOST_STARTS,
    about,
    groups_of,
    log_starts,
    measure_time,
    roll_along_log,
    split_name,
    thin,
)

_VALUES = 40_000_000  # errors in memory at once: starts x frames x columns
_SECONDS = (0.1, 0.25, 0.5, 1.0)
_SUBSET = 1000


@torch.no_grad()
def contact_scores(model: WorldModel, store: Store, starts: Windows) -> dict[str, EventScores]:
    """Return scores of each contact over all frames of labelled windows, at a probability threshold of one half."""
    if not model.spec.nc:
        return {}
    chances, labels, environments = [], [], recorded_environments(store, model)
    for part in starts.batches(BATCH):
        assert part.contacts is not None  # a model with contacts has a log with labels
        labels.append(part.contacts[:, 1:].flatten(0, 1))
        chances.append(_chances(model, starts_of(part, model, environments)).flatten(0, 1))
    raised, is_so = torch.cat(chances) > 0.5, torch.cat(labels) > 0.5
    return {name: _scores(raised[:, i], is_so[:, i]) for i, name in enumerate(model.spec.contacts)}


def failure_scores(model: WorldModel, store: Store, split: int | None, context: int) -> tuple[EventScores, Failures]:
    """Score the prediction of episodes that terminate within `FRAMES` frames, from `context` frames of history."""
    known = known_conditions(Mixture.of(store), model.conditions).stores
    alarms: Alarms = alarms_along(model, known, split, context)
    raised, is_so = alarms.raised, alarms.right
    starts = len(raised)
    failures = Failures(
        frames=FRAMES, starts=starts,
        failed=int(is_so.sum()) / max(1, starts), predicted=int(raised.sum()) / max(1, starts),
        finite_fraction=starts / (starts + alarms.not_finite) if alarms.not_finite else UNSET,
    )  # fmt: skip
    return _scores(raised, is_so), failures


def _chances(model: WorldModel, batch: RolloutBatch) -> Tensor:
    start, control = model.observation.of_state(present_state(batch.past)), batch.drive.torque
    assert control is not None  # a log has controls
    wide = model.conditioned_controls(control, batch.environment)
    forecasts = model.follow(model.begin(batch.past, batch.environment).hidden, start[None], wide[None])
    assert forecasts.logits is not None  # called only for models with contacts
    return forecasts.logits[..., : model.spec.nc].sigmoid().mean(0)


def _scores(raised: Tensor, is_so: Tensor) -> EventScores:
    both = float((raised & is_so).sum())
    yes, no, claimed = float(is_so.sum()), float((~is_so).sum()), float(raised.sum())
    recall = both / yes if yes else None
    others = float((~raised & ~is_so).sum()) / no if no else None
    return EventScores(
        rate=yes / max(1.0, yes + no),
        recall=recall,
        precision=both / claimed if claimed else None,
        balanced_accuracy=None if recall is None or others is None else (recall + others) / 2,
    )


@torch.no_grad()
def forecast_log(
    model: WorldModel,
    store: Store,
    *,
    split: int | None,
    horizon: int | None = None,
    rollouts: int | None = None,
    seed: int = SEED,
    beside: Mapping[str, WorldModel] | None = None,
) -> ForecastEvaluation:
    """Evaluate a world model on recorded episodes.

    Args:
        model: The model.
        store: The recorded trajectories.
        split: Split of the episodes; None for all of them.
        horizon: Frames of a forecast; None for 100 or one second, whichever is longer, at most the longest episode.
        rollouts: Maximum number of starts, evenly spaced; None for as many as fit into memory, at most 20,000.
        seed: Seed of the noise.
        beside: Other world models of the same data by name, evaluated from the same starts.

    Raises:
        InputError: No episode is long enough, or another model predicts different quantities.
    """
    others = dict(beside or {})
    _require_same(model, others, store)
    context = max([model.spec.context, *(other.spec.context for other in others.values())])
    frames = horizon or _horizon(model, store, split, context)
    most = min(rollouts or MOST_STARTS, max(100, _VALUES // (frames * model.observation.size)))
    starts, _ = log_starts(store, split, context, frames, most)
    with stage(0.0, 0.4, "forecasts"):
        forecasts = forecast_along(model, store, starts)
    by_model = {"model": forecasts.compared, PERSISTENCE: forecasts.compared.baseline(PERSISTENCE)}
    with stage(0.4, 0.7):
        for name, other in tracked(others.items(), "forecasts beside it"):
            by_model[name] = forecast_along(other, store, starts).compared
    seconds = {round(s / model.spec.dt) for s in _SECONDS}
    marks = sorted({m for m in (*seconds, *calibration.CALIBRATION_FRAMES) if 0 < m <= frames} | {frames})
    few = thin(starts, _SUBSET)
    kept = forecasts.error[forecasts.finite].abs()
    tell(0.7, "contacts and failures")
    events, failures = contact_scores(model, store, few), UNSET
    if model.terminates:
        events["termination"], failures = failure_scores(model, store, split, context)
    with stage(0.8, 0.95, "noise"):
        noise = calibration.with_noise(model, store, few, marks, seed)
    seconds = measure_time(lambda: roll_along_log(model, store, few, BATCH)).seconds
    tell(0.95, "out of distribution")
    nothing: dict[str, float | None] = {"base_position_m": 0.0, "base_orientation_rad": 0.0}
    return ForecastEvaluation(
        about=about(model, frames, len(forecasts.error), seed),
        members=model.members,
        context_frames=context,
        split=split_name(split),
        episodes=len(episodes_in(store, split)),
        env_steps_per_second=few.count * frames / seconds,
        notes=store.header.notes,
        summary=ErrorSummary(means={**nothing, **_joint_means(model, kept)}),
        by_horizon={str(m): ErrorSummary(means=_joint_means(model, kept[:, :m])) for m in marks},
        finite_fraction=float(forecasts.finite.double().mean()),
        columns=list(model.observation.names),
        units=list(model.observation.units),
        state_scale=model.state_scale.tolist(),
        marks=marks,
        at_horizon={
            str(m): WorldMark(
                seconds=m * model.spec.dt,
                starts=int(forecasts.finite.sum()),
                by_model=_means(forecasts, by_model, m, forecasts.finite),
            )
            for m in marks
        },
        groups=_by_group(forecasts, groups_of(starts, store), marks),
        by_frame=_by_frame(forecasts, by_model),
        coverage={str(m): calibration.coverage_at(forecasts, m) for m in marks},
        epistemic={str(m): calibration.ranks_at(forecasts, m) for m in marks},
        out_of_distribution=calibration.out_of_distribution(model, store, few),
        noise=noise,
        events=events,
        failures=failures,
        refusals=refusals(
            refused_starts(model, store, starts), forecasts.in_scales(forecasts.error[:, -1]), frames * model.spec.dt
        ),
    )


def _require_same(model: WorldModel, others: Mapping[str, WorldModel], store: Store) -> None:
    for name, other in {"the data": store.header.spec, **{n: o.spec for n, o in others.items()}}.items():
        differences = model.spec.differences(other)
        if differences:
            raise InputError(f"{name}: not what the world model of {model.spec.robot!r} predicts: {differences[0]}")


def _horizon(model: WorldModel, store: Store, split: int | None, context: int) -> int:
    longest = int(store.lengths[episodes_in(store, split)].max()) - context
    return max(1, min(max(100, round(1.0 / model.spec.dt)), longest))


def _joint_means(model: WorldModel, errors: Tensor) -> dict[str, float | None]:
    means: dict[str, float | None] = {}
    for key, unit in (("joint_rad", "rad"), ("joint_m", "m")):
        columns = [i for i, u in enumerate(model.spec.q_units) if u == unit]
        if columns:
            means[key] = float(errors[..., columns].double().mean()) if len(errors) else None
    return means


def _means(
    forecasts: ColumnErrors, by_model: Mapping[str, RolloutErrors], frame: int, rows: Tensor
) -> dict[str, ColumnMeans]:
    return {
        name: calibration.column_means(errors, frame, rows, forecasts.scale, forecasts.varying)
        for name, errors in by_model.items()
    }


def _by_group(forecasts: ColumnErrors, members: Mapping[str, Tensor], marks: list[int]) -> dict[str, WorldGroup]:
    both = {"model": forecasts.compared, PERSISTENCE: forecasts.compared.baseline(PERSISTENCE)}
    groups = {}
    for name, rows in members.items():
        kept = rows & forecasts.finite
        by_mark = {str(m): _means(forecasts, both, m, kept) for m in marks}
        groups[name] = WorldGroup(starts=int(kept.sum()), marks=by_mark)
    return groups


def _by_frame(forecasts: ColumnErrors, by_model: Mapping[str, RolloutErrors]) -> dict[str, list[float]]:
    """Return the mean error over all columns in their standard deviations, by frame, of finite forecasts."""
    curves: dict[str, list[float]] = {}
    for name, errors in by_model.items():
        rows = forecasts.finite & errors.finite
        if bool(rows.any()):
            curves[name] = forecasts.in_scales(errors.columns[rows].double()).mean(0).tolist()
    return curves
