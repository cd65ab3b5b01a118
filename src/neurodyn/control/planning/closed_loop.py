# SPDX-License-Identifier: Apache-2.0
"""Closed-loop evaluation of a planner: a model plans, and a plant, the same or other dynamics, executes.

`report.planning` writes its page.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.control.commands import CommandTally
from neurodyn.control.planning.planner import Planner
from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.control.returns import EpisodeOutcomes, EpisodeTally, Returns
from neurodyn.control.robot.in_loop import REHEARSED, RobotDynamics
from neurodyn.control.task_frames import (
    Ending,
    FaultWatch,
    MeasurementNoise,
    TaskFrames,
    WorldsState,
    add_noise,
    require_fit,
)
from neurodyn.core.config import Record, to_dict
from neurodyn.core.errors import InputError
from neurodyn.core.progress import tell, tracked
from neurodyn.core.seeds import derive_seed
from neurodyn.core.verdict import Finding, Verdict, combine_verdicts, of_failed, of_refused
from neurodyn.dynamics.batch import State, Trajectory, Window, device_generator, present_state
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.tasks import Memory

HORIZONS = (1, 10)
"""Horizons at which the model is compared with the plant, besides the planner's horizon [frames]."""
_WARM_UP = 2
"""Untimed decisions at the start: they compile, and take more iterations."""
_WORTH_COMPARING = 64
"""Number of states from which the model is rolled out for comparison."""


class ModelError(Record, frozen=True):
    """Prediction error of the model along the executed trajectory, under the executed controls."""

    frames: int
    """Prediction horizon [frames]."""
    position: float
    """Mean absolute error of positions [rad or m]."""
    velocity: float
    """Mean absolute error of velocities [rad/s or m/s]."""


class ControlResult(Record, frozen=True):
    """Result of episodes of a planner on a plant."""

    task: str
    planner: str
    settings: dict[str, object]
    model: str
    """Name of the dynamics in which it plans."""
    plant: str
    """Name of the dynamics in which it acts."""
    seed: int
    """Seed of starts and commands."""
    delay: int
    """Frames between a decision and its effect."""
    noise: dict[str, float]
    """Standard deviations of the measurement noise."""
    result: Returns
    decision_ms: float
    """Mean CPU time of a decision [ms], divided by the number of worlds."""
    decision_ms_95: float
    """95 % quantile of this CPU time [ms]."""
    frame_ms: float
    """Length of a frame [ms], the real-time limit of a decision."""
    model_frames: float
    """Frames that the model predicts per decision."""
    gradient_frames: float
    """Frames that are differentiated per decision."""
    fallbacks: int
    """Decisions without a finite plan, for which the last plan was continued."""
    refused: float | UnsetType = UNSET
    """Share of the decisions that the model refuses (`Dynamics.refused`); UNSET if it does not know what it has
    seen."""
    model_error: list[ModelError] | UnsetType = UNSET
    """Prediction errors of the model; UNSET for models with memory or driven by targets."""

    @property
    def verdict(self) -> Verdict:
        """Whether planner and model work on this plant."""
        if self.fallbacks:
            problem = f"in {self.fallbacks:,} decisions no plan was finite, and the last one went on"
            return Verdict("fails", problem, "give a model that stays finite, or a shorter --horizon")
        failed = of_failed(self.result.failed, "fail", "give more --samples or --rounds, or a better model")
        if failed.grade != "ok":
            return combine_verdicts([failed])
        refused = Finding("refused") if self.refused is UNSET else of_refused(self.refused, "decisions")
        if refused.grade != "ok":
            return combine_verdicts([refused])
        if self.decision_ms > self.frame_ms:
            problem = f"a decision takes {self.decision_ms:.3g} ms, a frame {self.frame_ms:.3g}"
            return Verdict("warning", f"too slow for real time here: {problem}", "give fewer --samples or --rounds")
        return Verdict("ok", f"a decision takes {self.decision_ms:.3g} ms of a frame's {self.frame_ms:.3g}")

    def plain(self) -> dict[str, Any]:
        """Return the result as JSON, including the verdict."""
        return {**super().plain(), "verdict": str(self.verdict)}


@dataclass(frozen=True)
class ExecutedPath:
    """Executed trajectories of all worlds; a world stands still after its episode ended."""

    trajectory: Trajectory
    control: Tensor
    """Torques or targets of each frame [N m or N, or rad or m], shape [worlds, frames, nu]."""
    running: Tensor
    """Whether the episode was running at the start of each frame, shape [worlds, frames], bool."""


@torch.no_grad()
def run(
    planner: Planner,
    name: str,
    model: ResolvedDynamics,
    plant: ResolvedDynamics,
    *,
    episodes: int,
    seed: int,
    noise: MeasurementNoise | None = None,
    delay: int | None = None,
    frames: int | None = None,
) -> tuple[ControlResult, ExecutedPath]:
    """Run one episode of a planner in each of several worlds, in parallel.

    Args:
        planner: The planner, which plans in `model`.
        name: Name of the planner.
        model: Dynamics in which it plans.
        plant: Dynamics in which it acts.
        episodes: Number of episodes.
        seed: Seed of starts, commands and noise.
        noise: Measurement noise; None for none.
        delay: Frames between a decision and its effect; None for the planner's own.
        frames: Length of an episode; None for the task's.

    Raises:
        InputError: Task and plant are incompatible, the states of model and plant differ, or the delay is negative.
    """
    delay = planner.delay if delay is None else delay
    if delay < 0:
        raise InputError(f"delay is {delay} frames; valid: at least 0")
    task = planner.task
    require_fit(task, plant.dynamics)
    if differences := model.dynamics.spec.differences(plant.dynamics.spec):
        raise InputError(
            f"the model {model.name} cannot plan from states of the plant {plant.name}: {'; '.join(differences[:3])}"
        )
    noise, fallbacks = noise or MeasurementNoise(), planner.fallbacks
    length = task.frames if frames is None else frames
    if isinstance(plant.dynamics, RobotDynamics):
        runs, robot = [], plant.dynamics
        robot.rehearse(lambda: _run(planner, name, plant, 1, seed, noise, delay, REHEARSED))
        for episode in tracked(range(episodes)):
            runs.append(_run(planner, name, plant, 1, derive_seed(seed, "episode", episode), noise, delay, length))
            robot.stop()
    else:
        runs = [_run(planner, name, plant, episodes, seed, noise, delay, length)]
    outcomes, paths, costs, refusals = zip(*runs, strict=True)
    path = _concatenate(paths)
    timed = torch.tensor([row for one in costs for row in one[_WARM_UP:] or one], dtype=torch.float64)
    spent = timed[:, 0] * 1e3
    result = ControlResult(
        task=task.name, planner=name, settings=to_dict(planner.settings), model=model.name, plant=plant.name, seed=seed,
        delay=delay, noise=to_dict(noise),
        result=EpisodeOutcomes.concatenate(outcomes).returns_in(plant.name),
        decision_ms=float(spent.mean()), decision_ms_95=float(spent.quantile(0.95)),
        frame_ms=1e3 * plant.dynamics.spec.dt, model_frames=float(timed[:, 1].mean()),
        gradient_frames=float(timed[:, 2].mean()), fallbacks=planner.fallbacks - fallbacks, refused=_share(refusals),
        model_error=_model_error(planner, path),
    )  # fmt: skip
    return result, path


def _run(
    planner: Planner, name: str, plant: ResolvedDynamics, episodes: int, seed: int, noise: MeasurementNoise, delay: int,
    length: int,
) -> tuple[EpisodeOutcomes, ExecutedPath, list[tuple[float, float, float]], tuple[int, int]]:  # fmt: skip
    """Run episodes in parallel.

    Returns also CPU time, model frames and gradients of each frame of one episode, and the numbers of refused and of
    judged decisions.
    """
    task = planner.task
    loop = TaskFrames(task, plant.dynamics)
    context = plant.starts(task, seed).draw(episodes)
    current = loop.begin(context, device_generator(present_state(context).q.device, derive_seed(seed, "environment")))
    start = current.state, current.memory
    watch = FaultWatch(loop, f"task {task.name!r} planned by {name} in {plant.name}")
    generator = device_generator(current.state.q.device, derive_seed(seed, "control"))
    tally, commands = EpisodeTally(task, episodes, current.state.q.device), CommandTally(task)
    pending = [current.state.q.new_zeros(episodes, len(task.actions)) for _ in range(delay)]
    states, controls, running, times = [current.state], [], [], []
    restarted, refused = False, [0, 0]
    planner.reset()
    for number in tracked(range(length)):
        began, spent = time.process_time(), replace(planner.spent)
        planner.act(add_noise(plant.dynamics.spec, current.state, noise, generator), current.memory)
        if not restarted:  # restarted worlds take the iterations of a first decision
            times.append((time.process_time() - began, planner.spent.frames - spent.frames,
                          planner.spent.gradients - spent.gradients))  # fmt: skip
        if planner.refused is not None:
            refused[0] += int((planner.refused & tally.running).sum())
            refused[1] += int(tally.running.sum())
        assert planner.decided is not None
        pending.append(planner.decided)
        running.append(tally.running.clone())
        commands.count(current.now, current.memory, tally.running)
        before, action = current, pending.pop(0)
        target = None
        if before.torque is None:  # targets drive the robot
            target = task.control(action.clamp(-task.limit, task.limit), before.now, before.memory).target
        current, step, end = loop.frame(before, action, generator)
        watched = Ending(end.failed & tally.running, end.implausible & tally.running)
        watch.see(before, current, step, watched, torch.full((episodes,), number + 1))
        acted = step.applied if step.applied is not None else target if current.torque is None else current.torque
        assert acted is not None
        controls.append(acted)
        late = torch.full_like(end.failed, number + 1 >= length) & ~end.failed
        states.append(step.state.where(tally.running & ~end.implausible, states[-1]))
        goes_on = tally.count(
            end.reward, end.reward, dict(zip(end.names, end.parts.unbind(), strict=True)), done=end.failed | late,
            failed=end.failed, implausible=end.implausible, succeeded=task.succeeded(current.now, current.memory),
        )  # fmt: skip
        tell(1.0, f"mean return so far {float(tally.returns.mean()):.4g}")
        if not goes_on:
            break
        ended = running[-1] & ~tally.running
        restarted = bool(ended.any())
        if restarted:
            planner.restart(ended)
            pending = [action.masked_fill(ended[:, None], 0.0) for action in pending]
        current = _restart(current, context, start, ~tally.running, loop)
    path = ExecutedPath(Trajectory.of_states(states), torch.stack(controls, 1), torch.stack(running, 1))
    return (
        replace(tally.outcome(), commands=commands.figures()),
        path,
        [(a / episodes, b / episodes, c / episodes) for a, b, c in times],
        (refused[0], refused[1]),
    )


def _share(refusals: Sequence[tuple[int, int]]) -> float | UnsetType:
    """Return the share of refused decisions; UNSET if none was judged."""
    refused, judged = map(sum, zip(*refusals, strict=True))
    return refused / judged if judged else UNSET


def _concatenate(paths: Sequence[ExecutedPath]) -> ExecutedPath:
    """Return paths of several lengths as one; the shorter ones stand still at their end."""
    if len(paths) == 1:
        return paths[0]
    frames = max(one.control.shape[1] for one in paths)

    def fill(values: Tensor, count: int, *, last: bool) -> Tensor:
        more = values[:, -1:] if last else torch.zeros_like(values[:, -1:])
        return torch.cat([values, *[more] * (count - values.shape[1])], 1)

    states = [
        torch.cat([fill(getattr(one.trajectory, name), frames + 1, last=True) for one in paths]) for name in ("q", "qd")
    ]
    return ExecutedPath(
        Trajectory(*states), torch.cat([fill(one.control, frames, last=False) for one in paths]),
        torch.cat([fill(one.running, frames, last=False) for one in paths]),
    )  # fmt: skip


def _restart(
    current: WorldsState, context: State | Window, start: tuple[State, Memory], ended: Tensor, loop: TaskFrames
) -> WorldsState:
    """Put worlds whose episode ended back to their start, so that their state stays valid."""
    if not bool(ended.any()):
        return current
    state, memory = start[0].where(ended, current.state), current.memory.renew(ended, start[1])
    carry = loop.dynamics.reset(current.carry, context, ended)
    torque = None if current.torque is None else current.torque.masked_fill(ended[:, None], 0.0)
    return WorldsState(carry, state, torque, memory, loop.quantities(state, None, torque))


def _model_error(planner: Planner, path: ExecutedPath) -> list[ModelError] | UnsetType:
    """Roll the model out from states of the executed trajectory, under the executed controls."""
    model, frames = planner.model, path.control.shape[1]
    if model.spec.control_kind != "torque" or model.spec.context > 1:
        return UNSET
    errors = []
    for ahead in (*HORIZONS, planner.settings.horizon):
        whole = [
            (world, first)
            for first in range(max(0, frames - ahead + 1))
            for world in range(len(path.control))
            if bool(path.running[world, first + ahead - 1])
        ]
        if not whole:
            continue
        chosen = whole[:: max(1, len(whole) // _WORTH_COMPARING)]
        worlds, firsts = (torch.tensor(rows) for rows in zip(*chosen, strict=True))
        begin = State(path.trajectory.q[worlds, firsts], path.trajectory.qd[worlds, firsts])
        acted = torch.stack([path.control[w, f : f + ahead] for w, f in chosen])
        end = model.rollout(begin, acted)
        off = position_difference(model.spec, end.q[:, -1], path.trajectory.q[worlds, firsts + ahead])
        velocity = end.qd[:, -1] - path.trajectory.qd[worlds, firsts + ahead]
        errors.append(ModelError(frames=ahead, position=float(off.abs().mean()), velocity=float(velocity.abs().mean())))
    return errors
