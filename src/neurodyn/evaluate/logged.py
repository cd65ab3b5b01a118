# SPDX-License-Identifier: Apache-2.0
"""Evaluation of a model and baselines against a log: open-loop errors from many starts.

A network with memory first sees the recorded frames before the start. For a floating robot (a toss), every recorded
state is a start, and the first states of episodes (the releases) are also evaluated separately; the model gets only
that state, or as a mechanism with delays or a disturbance also the frames before it.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.data.split import episodes_in
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.measures import BASELINES, MOVING, error_names, error_units, finite_worlds
from neurodyn.dynamics.rollout_errors import RolloutErrors, horizons_up_to
from neurodyn.dynamics.rollouts import recorded_environments, starts_of, truth_of
from neurodyn.evaluate.calibration import member_calibration
from neurodyn.evaluate.metrics import compare, errors_by_condition, percentiles, summaries
from neurodyn.evaluate.records import (
    ConditionErrors,
    ErrorSummary,
    Logged,
    LogMark,
    LogSection,
    MemberCalibration,
    PartialComparison,
    Refusals,
    StateErrors,
    Tossed,
)
from neurodyn.evaluate.refusals import refusals, refused_starts
from neurodyn.evaluate.requests import SEED
from neurodyn.evaluate.rivals import Rival
from neurodyn.evaluate.rollouts import (
    about,
    groups_of,
    log_starts,
    measure_time,
    parameters_of,
    roll_along_log,
    split_name,
)
from neurodyn.robots import Robot

SECONDS = (0.1, 0.25, 0.5)
_TOSSES = 2048  # starts per batch


def beside_log(
    model: Dynamics,
    robot: Robot,
    store: Store,
    *,
    split: int | None,
    horizon: int | None = None,
    rollouts: int | None = None,
    seed: int = SEED,
    declared: Dynamics | None = None,
    rivals: Mapping[str, Rival] = MappingProxyType({}),
) -> Logged | Tossed:
    """Evaluate a model on recorded episodes.

    Args:
        model: The model.
        robot: The robot of the log.
        store: The recorded trajectories.
        split: Split of the episodes; None for all of them.
        horizon: Frames of a roll-out; None for half a second or as long as episodes are, or for the horizon of a
            floating robot.
        rollouts: Maximum number of starts, evenly spaced; None for 20,000.
        seed: Recorded in the result; starts do not depend on it.
        declared: The declared simulator, to add its errors from the same starts; None to omit them.
        rivals: Other models by name, whose errors from the same starts are added.

    Raises:
        InputError: No episode is long enough.
    """
    if robot.spec.floating:
        frames = horizon or robot.evaluation_horizon
        return _beside_tosses(model, robot, store, split, frames, rollouts, seed, declared, rivals)
    context = max(model.spec.context, *(one.context for one in rivals.values()), 0)
    longest = int(store.lengths[episodes_in(store, split)].max()) - context
    frames = horizon or max(1, min(round(SECONDS[-1] / robot.dt), longest))
    marks = sorted({m for s in SECONDS if 0 < (m := round(s / robot.dt)) <= frames} | {frames})
    starts, _ = log_starts(store, split, context, frames, rollouts)
    compared = RolloutErrors.of(robot, roll_along_log(model, store, starts), truth_of(starts))
    finite, by_horizon = finite_worlds(compared.predicted), summaries(compared, marks)
    paths = {"model": compared} | {name: compared.baseline(name) for name in BASELINES}

    def section(rows: Tensor) -> LogSection:
        kept = torch.nonzero(rows & finite)[:, 0]
        return LogSection(starts=len(kept), marks={str(m): _at(paths, kept, m) for m in marks} if len(kept) else {})

    moving = starts.qd.abs().mean((1, 2)) > MOVING
    return Logged(
        about=about(model, frames, len(finite), seed),
        context_frames=context,
        split=split_name(split),
        episodes=len(episodes_in(store, split)),
        notes=store.header.notes,
        moving_above=MOVING,
        summary=by_horizon[str(frames)],
        by_horizon=by_horizon,
        finite_fraction=compared.finite_fraction,
        baselines={name: summaries(one, marks) for name, one in paths.items() if name != "model"},
        at_horizon={"all": section(torch.ones_like(finite)), "moving": section(moving)},
        groups={name: section(rows) for name, rows in groups_of(starts, store).items()},
        q_names=list(error_names(robot.spec)),
        q_units=list(error_units(robot.spec)),
        qd_names=list(robot.spec.qd_names),
        calibration=_calibration(model, compared, store, starts),
        declared=_declared_errors(declared, robot, store, starts, marks),
        beside=_errors_beside(rivals, starts, marks),
        conditions=_by_condition(model, store, starts, compared),
        refusals=_refusals(model, store, starts, compared),
    )


def _declared_errors(
    declared: Dynamics | None, robot: Robot, store: Store, starts: Windows, marks: Iterable[int]
) -> dict[str, ErrorSummary] | UnsetType:
    """Return the errors of the declared simulator up to each horizon; UNSET for none."""
    if declared is None:
        return UNSET
    path = roll_along_log(declared, store, starts)
    return summaries(RolloutErrors.of(robot, path, truth_of(starts)), list(marks))


def _errors_beside(
    rivals: Mapping[str, Rival], starts: Windows, marks: Iterable[int]
) -> dict[str, dict[str, ErrorSummary]] | UnsetType:
    """Return the errors of other models up to each horizon; UNSET without any."""
    return {name: summaries(one.errors(starts), list(marks)) for name, one in rivals.items()} or UNSET


def _at(errors: dict[str, RolloutErrors], rows: Tensor, mark: int) -> LogMark:
    """Return errors of the model and the baselines at a horizon over some of the starts."""
    by_model, frame = {}, mark - 1
    for name, one in errors.items():
        q, qd = one.errors[rows, frame].double(), one.velocities[rows, frame].abs().double()
        by_model[name] = StateErrors(
            q=q.mean(0).tolist(), qd=qd.mean(0).tolist(), q_mean=float(q.mean()), qd_mean=float(qd.mean()),
            q_percentiles=percentiles(q.mean(1)), qd_percentiles=percentiles(qd.mean(1)),
        )  # fmt: skip
    model = by_model.pop("model")
    better = {
        what: min(getattr(b, what) for b in by_model.values()) / max(getattr(model, what), 1e-12)
        for what in ("q_mean", "qd_mean")
    }
    seconds = mark * errors["model"].spec.dt
    return LogMark(seconds=seconds, model=model, baselines=by_model, better_than_baselines=better)


def _beside_tosses(
    model: Dynamics, robot: Robot, store: Store, split: int | None, frames: int, rollouts: int | None, seed: int,
    declared: Dynamics | None, rivals: Mapping[str, Rival],
) -> Tossed:  # fmt: skip
    context = max(_past_of(model, store, split, frames), *(one.context for one in rivals.values()), 0)
    starts, stride = log_starts(store, split, context, frames, rollouts)
    done = measure_time(lambda: roll_along_log(model, store, starts, _TOSSES))
    compared, released = RolloutErrors.of(robot, done.path, truth_of(starts)), starts.start == 0
    return Tossed(
        about=about(model, frames, starts.count, seed),
        context_frames=context,
        split=split_name(split),
        episodes=len(episodes_in(store, split)),
        env_steps_per_second=starts.count * frames / done.seconds,
        notes=store.header.notes,
        stride=stride,
        comparison=compare(compared, simulated=False),
        releases=PartialComparison(
            rollouts=int(released.sum()), comparison=compare(compared.rows(released), simulated=False)
        ),
        calibration=_calibration(model, compared, store, starts),
        declared=_declared_errors(declared, robot, store, starts, horizons_up_to(frames)),
        beside=_errors_beside(rivals, starts, horizons_up_to(frames)),
        conditions=_by_condition(model, store, starts, compared),
        refusals=_refusals(model, store, starts, compared),
    )


def _past_of(model: Dynamics, store: Store, split: int | None, frames: int) -> int:
    """Return the frames before a start that a mechanism's delays and disturbances read; networks read none."""
    longest = int(store.lengths[episodes_in(store, split)].max())
    return max(0, min(model.spec.context, longest - frames)) if model.kind == "hybrid" else 0


def _calibration(
    model: Dynamics, compared: RolloutErrors, store: Store, starts: Windows
) -> MemberCalibration | UnsetType:
    first = starts_of(next(starts.batches(_TOSSES)), model, recorded_environments(store, model))
    return member_calibration(model, compared.predicted, compared.truth, first)


def _refusals(model: Dynamics, store: Store, starts: Windows, compared: RolloutErrors) -> Refusals | UnsetType:
    seconds, joints = compared.frames * compared.spec.dt, compared.errors[:, -1].mean(-1)
    return refusals(refused_starts(model, store, starts), joints, seconds, "rad or m")


def _by_condition(
    model: Dynamics, store: Store, starts: Windows, compared: RolloutErrors
) -> list[ConditionErrors] | UnsetType:
    """Return errors by a model's conditions; UNSET without any, or if the log lacks one of them."""
    numbers = parameters_of(starts, store, [one.name for one in model.conditions])
    return UNSET if numbers is None else errors_by_condition(model.conditions, numbers, compared, compared.frames)
