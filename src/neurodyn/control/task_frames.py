# SPDX-License-Identifier: Apache-2.0
"""Frames of a task in some dynamics.

The one loop body of whatever acts, what a frame earns, how episodes end, and which dynamics fit.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from neurodyn.control.grounds import heights_above, home_ground
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics.batch import Control, Environment, State, Step, Window, present_state
from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.guard import KEPT, MOST, Before, guard_bounds, report, state_fault
from neurodyn.dynamics.interface import Carry, Dynamics
from neurodyn.dynamics.quantities import Quantities
from neurodyn.dynamics.world_model.termination import LIKELY
from neurodyn.robots.plausible import PlausibleBounds
from neurodyn.tasks import Memory, Task


def episode_bounds(task: Task, dynamics: Dynamics) -> PlausibleBounds:
    """Return the states of some dynamics outside of which an episode of a task fails: those of the guard."""
    return guard_bounds(dynamics, task.declaration())


@dataclass(frozen=True)
class Ending:
    """Where episodes failed in a frame.

    Attributes:
        failed: Whether the episode failed, shape [worlds], bool.
        implausible: Whether it did because its state is implausible or not finite, shape [worlds], bool.
    """

    failed: Tensor
    implausible: Tensor


@dataclass(frozen=True)
class FrameEnd(Ending):
    """How a frame ended in each world.

    Attributes:
        reward: What it earned, shape [worlds].
        names: Names of the parts of the reward.
        parts: The parts, shape [parts, worlds].
    """

    reward: Tensor
    names: tuple[str, ...]
    parts: Tensor


def judge(task: Task, bounds: PlausibleBounds, step: Step, now: Quantities, memory: Memory, action: Tensor) -> FrameEnd:
    """Return what the frame that ended in `step` earned, and where the episode failed.

    Args:
        task: The task.
        bounds: Its `episode_bounds` in these dynamics.
        step: What the dynamics predicted.
        now: Quantities of the state in which the frame ended.
        memory: Memory of the task as the frame began.
        action: Actions during the frame, shape [worlds, actions].
    """
    terms = task.reward(now, memory, action)
    parts = torch.stack(list(terms.values()))
    reward = parts.sum(0)
    end = ending(task, bounds, step, now, memory, reward[:, None])
    return _paid(task, end, reward, tuple(terms), parts)


def ending(
    task: Task, bounds: PlausibleBounds, step: Step, now: Quantities, memory: Memory, others: Tensor | None = None
) -> Ending:
    """Return where the episode failed in the frame that ended in `step`.

    Arguments are those of `judge`; `others` are other numbers that must be finite, shape [worlds, n].
    """
    state = step.state
    implausible = bounds.outside(state.q, state.qd, state.channels, others)
    failed = task.terminated(now, memory) | implausible
    if step.termination is not None:
        failed = failed | (step.termination > LIKELY)
    return Ending(failed, implausible)


def judge_later(task: Task, end: Ending, now: Quantities, memory: Memory, action: Tensor) -> FrameEnd:
    """Return what frames earned whose ends are known, those of many frames at once; rewards see no gradient of ends.

    A reward that is not finite counts as that of an implausible state, though the episode went on.

    Args:
        task: The task.
        end: How they ended, shape [n] each.
        now: Quantities of the states in which they ended.
        memory: Memory of the task as they began.
        action: Actions during them, shape [n, actions].
    """
    terms = task.reward(now, memory, action)
    parts = torch.stack(list(terms.values()))
    reward = parts.sum(0)
    whole = Ending(end.failed, end.implausible | ~reward.detach().isfinite())
    return _paid(task, whole, reward, tuple(terms), parts)


def _paid(task: Task, end: Ending, reward: Tensor, names: tuple[str, ...], parts: Tensor) -> FrameEnd:
    """Return the end of a frame, which earned nothing of its own where the state is implausible."""
    implausible = end.implausible
    return FrameEnd(
        end.failed, implausible, reward.masked_fill(implausible, task.implausible_reward), names,
        parts.masked_fill(implausible, 0.0),
    )  # fmt: skip


@dataclass(frozen=True)
class Moment:
    """Worlds between two frames.

    Attributes:
        carry: History of the dynamics.
        state: The states.
        torque: Torques of the last frame [N m or N], shape [worlds, nu]; None where targets drive the robot.
        memory: The task's memory.
        now: Quantities of the states.
    """

    carry: Carry
    state: State
    torque: Tensor | None
    memory: Memory
    now: Quantities


class TaskFrames:
    """Begins and steps a task in some dynamics; it holds no state.

    Attributes:
        task: What is to be done.
        dynamics: What happens.
        environment: What the worlds are in; None for what models of logs know.
        bounds: States outside of which an episode fails.
        quantities: Returns what is known of a state, from that, the step that ended in it, and the torques during it
            [N m or N], shape [worlds, nu]; None of either at a start.
    """

    quantities: Callable[[State, Step | None, Tensor | None], Quantities]

    def __init__(self, task: Task, dynamics: Dynamics, environment: Environment | None = None) -> None:
        """Prepare.

        Args:
            task: What is to be done.
            dynamics: What happens; they fit the task (`control.task_frames`).
            environment: What the worlds are in, with heights of the base above the ground (`control.grounds`); None for
                the robot's default ground.
        """
        self.task, self.dynamics = task, dynamics
        self.bounds = episode_bounds(task, dynamics)
        uneven = None if environment is None or not dynamics.spec.floating else environment.ground
        if environment is None and not dynamics.measured:  # which know that of their logs alone
            environment = home_ground(task)
        self.environment = environment
        read = dynamics.reader(environment).read
        self.quantities = read if uneven is None else lambda *given: heights_above(read(*given), uneven)
        self._torques = dynamics.spec.control_kind == "torque"
        self._scale = dynamics.epistemic_scale

    def no_torque(self, state: State) -> Tensor | None:
        """Return the torques before a first frame: zero, shape [worlds, nu]; None where targets drive the robot."""
        return state.q.new_zeros(state.worlds, self.dynamics.spec.nu) if self._torques else None

    def begin(
        self,
        context: State | Window,
        generator: torch.Generator,
        *,
        memory: Memory | None = None,
        uncertainty: bool = False,
        of_mean: bool = False,
    ) -> Moment:
        """Return worlds whose history is `context`.

        Args:
            context: The history.
            generator: Draws what the task draws, such as commands.
            memory: The task's memory of these worlds; None where they start now.
            uncertainty: Whether steps have to say how uncertain they are.
            of_mean: Whether worlds follow the mean of an ensemble, where its dynamics know one, instead of its members
                in turn.

        Raises:
            InputError: The dynamics do not offer what the task reads.
        """
        state = present_state(context)
        torque = self.no_torque(state)
        now = self.quantities(state, None, torque)
        self.task.require(now)
        if of_mean:
            carry = self.dynamics.begin(context, self.environment)
        else:
            carry = self.dynamics.imagine(context, self.environment, uncertainty=uncertainty)
        return Moment(carry, state, torque, memory or self.task.begin(now, generator), now)

    def frame(
        self, at: Moment, action: Tensor, generator: torch.Generator, *, tracked: bool = False
    ) -> tuple[Moment, Step, FrameEnd]:
        """Act for one frame.

        Args:
            at: Where the worlds are; used up unless `tracked`.
            action: Actions, of which what is beyond the task's limit is cut off, shape [worlds, actions].
            generator: Draws what the task draws.
            tracked: Whether gradients are wanted.
        """
        action = action.clamp(-self.task.limit, self.task.limit)
        then, step = self.advance(at, action, generator, tracked=tracked)
        return then, step, judge(self.task, self.bounds, step, then.now, at.memory, action)

    def advance(
        self, at: Moment, action: Tensor, generator: torch.Generator, *, tracked: bool = False
    ) -> tuple[Moment, Step]:
        """Act for one frame that is judged elsewhere; arguments are those of `frame`, actions within the limit."""
        control = self.task.control(action, at.now, at.memory)
        if self._torques and (control.target is not None or control.torque is None):  # a controller acts once a frame
            control = Control.unchecked(torque=frame_torque(self.dynamics.spec, at.state, control))
        advance = self.dynamics.step if tracked else self.dynamics.step_
        carry, step = advance(at.carry, at.state, control)
        torque = control.torque if self._torques else None
        now = self.quantities(step.state, step, torque)
        memory = self.task.advance(at.memory, now, action, generator)
        return Moment(carry, step.state, torque, memory, now), step

    def disagreement(self, step: Step) -> Tensor | None:
        """Return the epistemic deviation in units of its spread in the data, summed over the state, shape [worlds].

        None of dynamics that do not know it.
        """
        if step.epistemic is None or self._scale is None:
            return None
        return (step.epistemic / self._scale).sum(-1)


class FaultWatch:
    """Keeps the last frames of all worlds, and reports the ones that end in implausible states.

    Such episodes already count as failures and start anew; here they get a name. A policy that explores has many of
    them, so the first few are reported and the others only counted.
    """

    def __init__(self, frames: TaskFrames, where: str) -> None:
        """Take a task in some dynamics; `where` is what runs, for messages."""
        self._frames, self._where = frames, where
        self._recent: deque[tuple[State, Tensor | None]] = deque(maxlen=KEPT + frames.dynamics.spec.context)
        self._left = MOST

    def see(self, before: Moment, after: Moment, step: Step, end: Ending, lengths: Tensor) -> None:
        """Take note of a frame.

        Args:
            before: Worlds as the frame began.
            after: Worlds as it ended.
            step: What the dynamics predicted.
            end: How it ended.
            lengths: Frames of the present episodes, this one included, shape [worlds].
        """
        if not self._left:
            return
        self._recent.append((before.state, after.torque))
        if not bool(end.implausible.any()):
            return
        self._left -= 1
        world = int(end.implausible.int().argmax())
        frame = int(lengths[world])
        state = step.state
        if not bool(self._frames.bounds.outside(state.q, state.qd, state.channels)[world]):
            return  # its reward was not finite, which the task's terms say
        only = State.unchecked(
            q=state.q[world : world + 1], qd=state.qd[world : world + 1],
            channels=None if state.channels is None else state.channels[world : world + 1],
        )  # fmt: skip
        found = state_fault(self._frames.bounds, only, self._where, frame=frame)
        fault = type(found)(**{
            **found.plain(), "world": world, "worlds": int(end.implausible.sum()), "of": len(end.implausible),
        })  # fmt: skip
        report(fault, self._before(world, frame))

    def _before(self, world: int, frame: int) -> Before | None:
        """Return the last states of a world's episode; None where targets drive it, whose torques are not known."""
        kept = list(self._recent)[-frame:]
        torques = [torque[world] for _, torque in kept if torque is not None]
        if len(torques) < len(kept):
            return None
        states = [state for state, _ in kept]
        channels = [state.channels[world] for state in states if state.channels is not None]
        window = Window(
            torch.stack([state.q[world] for state in states])[None].clone(),
            torch.stack([state.qd[world] for state in states])[None].clone(),
            torch.stack(torques)[None, :-1].clone(),
            torch.stack(channels)[None].clone() if channels else None,
        )
        return Before(self._frames.dynamics.spec, window, self._frames.environment, world)


def require_fit(task: Task, dynamics: Dynamics, penalty: float | Literal["auto"] = 0.0) -> None:
    """Refuse dynamics of another robot or frame length, a model that was never fitted, and a bad penalty.

    Raises:
        InputError: The penalty is below 0, or the dynamics know no uncertainty; or the model is not fitted.
        MismatchError: Joints, controls or dt are others than those of the task's robot.
    """
    if penalty != "auto" and not (math.isfinite(penalty) and penalty >= 0):
        raise InputError(f"penalty (lambda) is {penalty:g}; valid: a finite number of at least 0")
    name = dynamics.spec.robot
    if penalty and not dynamics.uncertain:
        asked = penalty if penalty == "auto" else f"{penalty:g}"
        raise InputError(
            f"penalty is {asked}, but these {dynamics.kind} dynamics of {name!r} do not know how uncertain they are; "
            "valid here: 0; world models and models of `neurodyn train --members 5` know it"
        )
    if not dynamics.trained:
        raise InputError(f"the world model of {name!r} was never fitted to data; train it with `neurodyn train` first")
    wanted, given = task.declaration().spec, dynamics.spec
    found = []
    if given.controls != wanted.controls:
        found.append(f"controls are {list(given.controls)} instead of {list(wanted.controls)}")
    mine, theirs = ([joint.name for joint in spec.joints if joint.kind != "free"] for spec in (wanted, given))
    if mine != theirs:
        found.append(f"joints are {theirs} instead of {mine}")
    if abs(given.dt - wanted.dt) > 1e-6 * wanted.dt:
        found.append(f"dt is {given.dt:.6g} s instead of {wanted.dt:.6g} s")
    if found:
        raise MismatchError(f"task {task.name!r} is not for these dynamics of {name!r}: {'; '.join(found[:3])}")
