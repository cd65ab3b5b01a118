# SPDX-License-Identifier: Apache-2.0
"""Frames of a task in some dynamics: the loop body shared by policies, planners and evaluations.

A frame turns actions into controls, advances the dynamics, and computes rewards and failures. Also checks that task and
dynamics are compatible. States may be observed with measurement noise.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import torch
from torch import Tensor

from neurodyn.control.starts import heights_above, home_ground
from neurodyn.control.task_program import TaskProgram, TaskView
from neurodyn.core.config import Config
from neurodyn.core.description.record import require_fields
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics.batch import Control, Environment, State, Step, Window, WorldParameters, present_state
from neurodyn.dynamics.control import frame_torque, push
from neurodyn.dynamics.guard import KEPT_STATES, FaultHistory, report, state_fault
from neurodyn.dynamics.interface import Carry, Dynamics
from neurodyn.dynamics.quantities import Quantities
from neurodyn.dynamics.world_model.termination import LIKELY
from neurodyn.geometry import rotation
from neurodyn.robots.plausible import PlausibleBounds
from neurodyn.tasks import Memory, Task


def episode_bounds(task: Task, dynamics: Dynamics) -> PlausibleBounds:
    """Return the plausible states of a task in some dynamics, outside of which an episode fails: the guard's bounds."""
    return dynamics.guard_bounds(task.declaration())


@dataclass(frozen=True)
class Ending:
    """Failures of a frame."""

    failed: Tensor
    """Whether the episode failed, shape [worlds], bool."""
    implausible: Tensor
    """Whether it failed because its state is implausible or not finite, shape [worlds], bool."""


@dataclass(frozen=True)
class FrameEnd(Ending):
    """Failures and rewards of a frame."""

    reward: Tensor
    """Rewards, shape [worlds]."""
    names: tuple[str, ...]
    parts: Tensor
    """Reward terms, shape [terms, worlds]."""


def judge(task: Task, bounds: PlausibleBounds, step: Step, now: Quantities, memory: Memory, action: Tensor) -> FrameEnd:
    """Return rewards and failures of the frame that ended in `step`.

    Args:
        task: The task.
        bounds: Plausible states (`episode_bounds`).
        step: Prediction of the dynamics.
        now: Quantities at the end of the frame.
        memory: Task memory at the start of the frame.
        action: Actions during the frame, shape [worlds, actions].
    """
    by = now if now.judged is None else now.judged  # `of_rewards`, without a call in every frame
    terms = task.reward(by, memory, action)
    parts = torch.stack(list(terms.values()))
    reward = parts.sum(0)
    known = reward[:, None] if now.judged is None else None  # a robot without motion capture has no reward
    end = ending(task, bounds, step, by, memory, known)
    return _settle(task, end, reward, tuple(terms), parts)


def judge_view(
    task: Task, bounds: PlausibleBounds, step: Step, now: Quantities, memory: Memory, names: tuple[str, ...],
    view: TaskView,
) -> FrameEnd:  # fmt: skip
    """Return rewards and failures of the frame that ended in `step`, as a compiled task says.

    Arguments: see `judge`. `names` are those of the reward terms.
    """
    reward = view.parts.sum(0)
    end = ending(task, bounds, step, now, memory, reward[:, None], fallen=view.failed)
    return _settle(task, end, reward, names, view.parts)


def ending(
    task: Task, bounds: PlausibleBounds, step: Step, now: Quantities, memory: Memory, others: Tensor | None = None,
    *, fallen: Tensor | None = None,
) -> Ending:  # fmt: skip
    """Return the failures of the frame that ended in `step`.

    Arguments: see `judge`. `others` are further numbers that must be finite, shape [worlds, n]; `fallen` says whether
    the robot failed by the task, shape [worlds], bool, if that is known.
    """
    state = step.state
    implausible = bounds.outside(state.q, state.qd, state.channels, others)
    failed = (task.terminated(now, memory) if fallen is None else fallen) | implausible
    if step.termination is not None:
        failed = failed | (step.termination > LIKELY)
    return Ending(failed, implausible)


def judge_later(task: Task, end: Ending, now: Quantities, memory: Memory, action: Tensor) -> FrameEnd:
    """Return the rewards of many frames with known failures, shape [n] each; no gradient passes through failures.

    A reward that is not finite counts as that of an implausible state, though the episode went on. Other arguments: see
    `judge`.
    """
    terms = task.reward(now, memory, action)
    return settle_later(task, end, tuple(terms), torch.stack(list(terms.values())))


def settle_later(task: Task, end: Ending, names: tuple[str, ...], parts: Tensor) -> FrameEnd:
    """Return the rewards of many frames from their terms, shape [terms, n]; see `judge_later`."""
    reward = parts.sum(0)
    whole = Ending(end.failed, end.implausible | ~reward.detach().isfinite())
    return _settle(task, whole, reward, names, parts)


def _settle(task: Task, end: Ending, reward: Tensor, names: tuple[str, ...], parts: Tensor) -> FrameEnd:
    """Replace rewards by `implausible_reward`, and their terms by zero, where the state is implausible."""
    implausible = end.implausible
    return FrameEnd(
        end.failed, implausible, reward.masked_fill(implausible, task.implausible_reward), names,
        parts.masked_fill(implausible, 0.0),
    )  # fmt: skip


@dataclass(frozen=True)
class WorldsState:
    """State of the worlds between two frames."""

    carry: Carry
    state: State
    torque: Tensor | None
    """Torques of the last frame [N m or N], shape [worlds, nu]; None if targets drive the robot."""
    memory: Memory
    now: Quantities


class TaskFrames:
    """Starts and steps a task in some dynamics; stateless.

    Attributes:
        task: The task.
        dynamics: The dynamics.
        environment: Ground and obstacles; None for dynamics limited to the surroundings of their logs.
        bounds: Plausible states, outside of which an episode fails.
        quantities: Returns the quantities of a state, from the state, the step that ended in it, and the torques during
            that step [N m or N], shape [worlds, nu]. Step and torques are None at a start.
    """

    quantities: Callable[[State, Step | None, Tensor | None], Quantities]

    def __init__(
        self,
        task: Task,
        dynamics: Dynamics,
        environment: Environment | None = None,
        parameters: WorldParameters | None = None,
    ) -> None:
        """Prepare the quantities of states.

        Args:
            task: The task.
            dynamics: Dynamics compatible with the task (`require_fit`).
            environment: Ground and obstacles. Heights of the base are measured above this ground (`control.starts`).
                None for the robot's default ground.
            parameters: Quantities of the robot that differ between worlds, which may be edited in place.
        """
        self.task, self.dynamics = task, dynamics
        self.bounds = episode_bounds(task, dynamics)
        uneven = None if environment is None or not dynamics.spec.floating else environment.ground
        if environment is None and not dynamics.measured:  # measured dynamics know only the ground of their logs
            environment = home_ground(task)
        if parameters is not None:
            environment = replace(environment or Environment(), parameters=parameters)
        self.environment = environment
        reader = dynamics.reader(environment)
        read = reader.read
        of_ground = () if uneven is None else ("base_height", "base_position")
        self._measured = (*reader.measured, "contact", "joint_torque", *of_ground)
        self.quantities = read if uneven is None else lambda *given: heights_above(read(*given), uneven)
        self._torques = dynamics.spec.control_kind == "torque"
        self._scale = dynamics.epistemic_scale

    def no_torque(self, state: State) -> Tensor | None:
        """Return zero torques before a first frame, shape [worlds, nu]; None if targets drive the robot."""
        return state.q.new_zeros(state.worlds, self.dynamics.spec.nu) if self._torques else None

    def begin(
        self,
        context: State | Window,
        generator: torch.Generator,
        *,
        memory: Memory | None = None,
        uncertainty: bool = False,
        of_mean: bool = False,
    ) -> WorldsState:
        """Start worlds with a history.

        Args:
            context: History up to the start.
            generator: Random generator of the task, for example of commands.
            memory: Task memory; None for a new episode.
            uncertainty: Whether steps must report their epistemic uncertainty.
            of_mean: Whether worlds follow the mean of an ensemble, if available, instead of its members in turn.

        Raises:
            InputError: The dynamics lack a quantity that the task reads.
        """
        state = present_state(context)
        torque = self.no_torque(state)
        now = self.quantities(state, None, torque)
        self.task.require(now)
        if of_mean:
            carry = self.dynamics.begin(context, self.environment)
        else:
            carry = self.dynamics.imagine(context, self.environment, uncertainty=uncertainty)
        return WorldsState(carry, state, torque, memory or self.task.begin(now, generator), now)

    def frame(
        self, before: WorldsState, action: Tensor, generator: torch.Generator, *, tracked: bool = False
    ) -> tuple[WorldsState, Step, FrameEnd]:
        """Advance one frame.

        Args:
            before: State of the worlds; overwritten unless `tracked`.
            action: Actions, clipped to the task's limit, shape [worlds, actions].
            generator: Random generator of the task.
            tracked: Whether gradients are needed.
        """
        action = action.clamp(-self.task.limit, self.task.limit)
        after, step = self.advance(before, action, generator, tracked=tracked)
        return after, step, judge(self.task, self.bounds, step, after.now, before.memory, action)

    def advance(
        self,
        before: WorldsState,
        action: Tensor,
        generator: torch.Generator,
        *,
        tracked: bool = False,
        sent: Tensor | None = None,
        correction: State | None = None,
    ) -> tuple[WorldsState, Step]:
        """Advance one frame without rewards and failures.

        Arguments: see `frame`; actions within the limit. `sent` are the actions that reach the robot instead, if given,
        `correction` what is added to the positions and velocities at the end of the frame.
        """
        control = self._control(before, action if sent is None else sent)
        advance = self.dynamics.step if tracked else self.dynamics.step_
        carry, step = advance(before.carry, before.state, control)
        if correction is not None:
            state = replace(step.state, q=step.state.q + correction.q, qd=step.state.qd + correction.qd)
            step = replace(step, state=state)
        torque = control.torque if self._torques else None
        now = self.quantities(step.state, step, torque)
        memory = self.task.advance(before.memory, now if now.judged is None else now.judged, action, generator)
        return WorldsState(carry, step.state, torque, memory, now), step

    def compiled(self, after: WorldsState, memory: Memory, action: Tensor) -> TaskProgram | None:
        """Return the compiled task; None if that is not possible: it may use any operation of torch.

        `after` and `action` are those of an example of a frame, `memory` the task's at its start.
        """
        if after.now.judged is not None or not after.state.q.is_cpu:
            return None
        try:
            return TaskProgram(
                self.task, lambda state: self.quantities(state, None, None), self._measured, after.now, memory,
                after.memory, action,
            )  # fmt: skip
        except InputError:
            return None

    def _control(self, before: WorldsState, action: Tensor) -> Control:
        control = self.task.control(action, before.now, before.memory)
        if self._torques and (control.target is not None or control.torque is None):  # controllers act once a frame
            control = Control.make_unchecked(torque=frame_torque(self.dynamics.spec, before.state, control))
        return control

    def outside(self, before: WorldsState, action: Tensor) -> Tensor | None:
        """Return whether frames lie outside of what the dynamics' networks have seen, bool, shape [worlds].

        Arguments: see `frame`; None for dynamics that do not know it (`Dynamics.outside`).
        """
        return self.dynamics.outside(before.state, self._control(before, action), self.environment)

    def push(self, current: WorldsState, change: Tensor) -> WorldsState:
        """Return the worlds with their bases' velocities changed between two frames (`dynamics.control.push`)."""
        state = push(self.dynamics.spec, current.state, change)
        return replace(current, state=state, now=self.quantities(state, None, current.torque))

    def disagreement(self, step: Step) -> Tensor | None:
        """Return the epistemic standard deviation relative to that of the data, summed over the state, shape [worlds].

        None for dynamics that do not report it.
        """
        if step.epistemic is None or self._scale is None:
            return None
        return (step.epistemic / self._scale).sum(-1)


_MOST_REPORTS = 3
"""Implausible states that are reported of one run of episodes: a policy that falls brings dozens of the same kind."""


class FaultWatch:
    """Keeps the last frames of all worlds and reports episodes that end in implausible states.

    Such episodes count as failures and are reset in any case. Exploring policies cause many of them, so only the first
    few are reported.
    """

    def __init__(self, frames: TaskFrames, run_name: str) -> None:
        """Watch a task in some dynamics; `run_name` names the run in messages."""
        self._frames, self._run_name = frames, run_name
        self._recent: deque[tuple[State, Tensor | None]] = deque(maxlen=KEPT_STATES + frames.dynamics.spec.context)
        self._remaining_reports = _MOST_REPORTS

    def see(self, before: WorldsState, after: WorldsState, step: Step, end: Ending, lengths: Tensor) -> None:
        """Record a frame and report an implausible state.

        Args:
            before: State of the worlds at the start of the frame.
            after: State of the worlds at the end of the frame.
            step: Prediction of the dynamics.
            end: Failures of the frame.
            lengths: Length of the current episodes, including this frame [frames], shape [worlds].
        """
        if not self._remaining_reports:
            return
        self._recent.append((before.state, after.torque))
        if not bool(end.implausible.any()):
            return
        self._remaining_reports -= 1
        bad, state, bounds = end.implausible, step.state, self._frames.bounds
        world = int(bad.int().argmax())
        frame = int(lengths[world])
        if not bool(bounds.outside(state.q, state.qd, state.channels)[world]):
            return  # the reward was not finite, as its terms show
        fault = state_fault(bounds, state.rows(torch.tensor([world], device=bad.device)), self._run_name, frame=frame)
        fault = msgspec.structs.replace(fault, world=world, worlds=int(bad.sum()), of=len(bad))
        report(fault, self._fault_history(world, frame))

    def _fault_history(self, world: int, frame: int) -> FaultHistory | None:
        """Return the last states of a world's episode; None if targets drive it, as torques are unknown."""
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
        return FaultHistory(self._frames.dynamics.spec, window, self._frames.environment, world)


def require_fit(task: Task, dynamics: Dynamics, penalty: float | Literal["auto"] = 0.0) -> None:
    """Check that dynamics are for the task's robot and time step, and trained, and that the penalty is valid.

    Raises:
        InputError: The penalty is negative, the dynamics report no uncertainty, or the model is not trained.
        MismatchError: Joints, controls or dt differ from the task's robot.
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
    mine, theirs = ([joint.name for joint in spec.joints if joint.kind != "free"] for spec in (wanted, given))
    pairs = (("controls", list(wanted.controls), list(given.controls)), ("joints", mine, theirs))
    differences = [f"{what} are {other} instead of {own}" for what, own, other in pairs if own != other]
    if abs(given.dt - wanted.dt) > 1e-6 * wanted.dt:
        differences.append(f"dt is {given.dt:.6g} s instead of {wanted.dt:.6g} s")
    if differences:
        raise MismatchError(f"task {task.name!r} is not for these dynamics of {name!r}: {'; '.join(differences[:3])}")


class MeasurementNoise(Config, frozen=True):
    """Standard deviations of measurement noise."""

    position: float = 0.0
    """Of positions and rotations [rad or m]."""
    velocity: float = 0.0
    """Of velocities [rad/s or m/s]."""

    def __post_init__(self) -> None:
        require_fields(self, "noise", least=("position", "velocity"))


def add_noise(spec: StateSpec, state: State, noise: MeasurementNoise, generator: torch.Generator) -> State:
    """Return states with measurement noise; quaternions are rotated by a random vector, in world axes."""
    if not noise.position and not noise.velocity:
        return state
    q = state.q.clone()

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=q.dtype, device=q.device)

    for place in spec.places:
        quaternion, shift = place.quaternion, slice(place.q.start, place.quaternion.start)
        if quaternion.start < quaternion.stop:
            turn = rotation.exponential(noise.position * draw(len(q), 3))
            q[:, quaternion] = rotation.multiply(turn, q[:, quaternion])
        q[:, shift] += noise.position * draw(len(q), shift.stop - shift.start)
    qd = state.qd + noise.velocity * draw(*state.qd.shape)
    return State.make_unchecked(q=q, qd=qd, channels=state.channels)
