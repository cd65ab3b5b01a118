# SPDX-License-Identifier: Apache-2.0
"""Evaluation of a model and baselines against a log: open-loop errors from many starts.

A network with memory first sees the recorded frames before the start. For a floating robot (a toss), every recorded
state is a start, the model gets only that state, and the first states of episodes (the releases) are also evaluated
separately.
"""

from collections.abc import Iterable

import numpy as np
import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.core.progress import counted
from neurodyn.data.split import episodes_in
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.measures import (
    MOVING,
    constant_velocity,
    error_names,
    error_units,
    finite_worlds,
    joint_distance,
    persistence,
)
from neurodyn.evaluate.calibration import member_calibration
from neurodyn.evaluate.metrics import Compared, compare, errors_by_condition, horizons_up_to, percentiles
from neurodyn.evaluate.records import (
    ConditionErrors,
    ErrorSummary,
    Logged,
    LogMark,
    LogSection,
    MemberCalibration,
    PartialComparison,
    StateErrors,
    Tossed,
)
from neurodyn.evaluate.requests import SEED
from neurodyn.evaluate.rollouts import Recorded, about, roll_out, split_name
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
) -> Logged | Tossed:
    """Evaluate a model on recorded episodes.

    Args:
        model: The model.
        robot: The robot of the log.
        store: The recorded trajectories.
        split: Split of the episodes; None for all of them.
        horizon: Frames of a roll-out; None for half a second, or for the horizon of a floating robot.
        rollouts: Maximum number of starts, evenly spaced; None for 20,000.
        seed: Recorded in the result; starts do not depend on it.
        declared: The declared simulator, to add its errors from the same starts; None to omit them.

    Raises:
        InputError: No episode is long enough.
    """
    if robot.spec.floating:
        return _tossed(model, robot, store, split, horizon or robot.evaluation_horizon, rollouts, seed, declared)
    frames = horizon or round(SECONDS[-1] / robot.dt)
    marks = sorted({m for s in SECONDS if 0 < (m := round(s / robot.dt)) <= frames} | {frames})
    context = model.spec.context
    starts = Recorded.along(store, split, context, frames, rollouts)
    names = tuple(one.name for one in model.conditions)
    batches = counted(starts.batches(context, names=names), len(starts.windows), "log")
    truth, predicted = starts.truth, roll_out(model, batches).path
    compared = Compared(robot, predicted, truth)
    paths = {
        "model": predicted,
        "persistence": persistence(truth),
        "constant_velocity": constant_velocity(truth, robot.dt, robot.spec),
    }
    finite = finite_worlds(predicted).numpy()

    def section(rows: np.ndarray) -> LogSection:
        kept = torch.from_numpy(np.flatnonzero(rows & finite))
        by_horizon = {str(m): _at(robot, paths, truth, kept, m) for m in marks} if len(kept) else {}
        return LogSection(starts=len(kept), marks=by_horizon)

    moving = (truth.qd.abs().mean((1, 2)) > MOVING).numpy()
    return Logged(
        about=about(model, frames, len(finite), seed),
        context_frames=context,
        split=split_name(split),
        episodes=len(episodes_in(store, split)),
        notes=store.header.notes,
        moving_above=MOVING,
        summary=compared.summary(frames),
        by_horizon=compared.by_horizon(marks),
        finite_fraction=float(finite.mean()),
        at_horizon={"all": section(np.ones(len(finite), bool)), "moving": section(moving)},
        groups={name: section(rows) for name, rows in starts.groups().items()},
        q_names=list(error_names(robot.spec)),
        q_units=list(error_units(robot.spec)),
        qd_names=list(robot.spec.qd_names),
        calibration=_calibration(model, predicted, starts, context),
        declared=_declared(declared, robot, starts, context, marks),
        conditions=_by_condition(model, starts, compared, frames),
    )


def _declared(
    declared: Dynamics | None, robot: Robot, starts: Recorded, seen: int, marks: Iterable[int]
) -> dict[str, ErrorSummary] | UnsetType:
    """Return the errors of the declared simulator up to each horizon; UNSET for none."""
    if declared is None:
        return UNSET
    return Compared(robot, roll_out(declared, starts.batches(seen)).path, starts.truth).by_horizon(list(marks))


def _at(robot: Robot, paths: dict[str, Trajectory], truth: Trajectory, rows: Tensor, mark: int) -> LogMark:
    """Return errors of the model and the baselines at a horizon over some of the starts."""
    summaries = {}
    for name, path in paths.items():
        q = joint_distance(robot.spec, path.q[rows, mark], truth.q[rows, mark]).double()
        qd = (path.qd[rows, mark] - truth.qd[rows, mark]).abs().double()
        summaries[name] = StateErrors(
            q=q.mean(0).tolist(), qd=qd.mean(0).tolist(), q_mean=float(q.mean()), qd_mean=float(qd.mean()),
            q_percentiles=percentiles(q.mean(1)), qd_percentiles=percentiles(qd.mean(1)),
        )  # fmt: skip
    baselines = summaries["persistence"], summaries["constant_velocity"]
    better = {
        what: min(getattr(b, what) for b in baselines) / max(getattr(summaries["model"], what), 1e-12)
        for what in ("q_mean", "qd_mean")
    }
    return LogMark(seconds=mark * robot.dt, better_than_baselines=better, **summaries)


def _tossed(
    model: Dynamics, robot: Robot, store: Store, split: int | None, frames: int, rollouts: int | None, seed: int,
    declared: Dynamics | None,
) -> Tossed:  # fmt: skip
    starts = Recorded.along(store, split, 0, frames, rollouts, _TOSSES)
    names = tuple(one.name for one in model.conditions)
    batches = counted(starts.batches(0, names=names), len(starts.windows), "log")
    done, truth, released = roll_out(model, batches), starts.truth, torch.from_numpy(starts.released)
    first = compare(robot, done.path.rows(released), truth.rows(released), simulated=False)
    return Tossed(
        about=about(model, frames, len(released), seed),
        context_frames=0,
        split=split_name(split),
        episodes=len(episodes_in(store, split)),
        env_steps_per_second=len(released) * frames / done.seconds,
        notes=store.header.notes,
        stride=starts.stride,
        comparison=compare(robot, done.path, truth, simulated=False),
        releases=PartialComparison(rollouts=int(released.sum()), comparison=first),
        calibration=_calibration(model, done.path, starts, 0),
        declared=_declared(declared, robot, starts, 0, horizons_up_to(frames)),
        conditions=_by_condition(model, starts, Compared(robot, done.path, truth), frames),
    )


def _calibration(model: Dynamics, path: Trajectory, starts: Recorded, context: int) -> MemberCalibration | UnsetType:
    names = tuple(one.name for one in model.conditions)
    return member_calibration(model, path, starts.truth, next(iter(starts.batches(context, names=names))))


def _by_condition(
    model: Dynamics, starts: Recorded, compared: Compared, frames: int
) -> list[ConditionErrors] | UnsetType:
    """Return errors by a model's conditions; UNSET without any, or if the log lacks one of them."""
    numbers = starts.parameters([one.name for one in model.conditions])
    return UNSET if numbers is None else errors_by_condition(model.conditions, numbers, compared, frames)
