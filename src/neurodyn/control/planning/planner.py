# SPDX-License-Identifier: Apache-2.0
"""A planner as an object.

Maps states to the robot's current commands, frame by frame, with the history that the model needs.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from neurodyn.control.planning.ilqr import Ilqr
from neurodyn.control.planning.optimiser import Imagination, PlanningCost, PlanOptimiser, Value
from neurodyn.control.planning.sampling import Annealed, Cem, Gradient, Mppi
from neurodyn.control.planning.settings import DEFAULT_PLANNER, PlannerSettings, load_settings
from neurodyn.control.task_frames import TaskFrames, require_fit
from neurodyn.core.errors import InputError
from neurodyn.core.registry import Registry
from neurodyn.core.seeds import derive_seed
from neurodyn.dynamics.batch import Control, Environment, State, Window, device_generator
from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.quantities import Quantities
from neurodyn.tasks import Memory, Task
from neurodyn.tasks import load as load_task

PLANNERS: Registry[type[PlanOptimiser]] = Registry(
    "planner", mppi=Mppi, cem=Cem, annealed=Annealed, gradient=Gradient, ilqr=Ilqr
)
"""Planners by name."""


class History:
    """The last frames of a batch of worlds, whose episodes may have started at different times."""

    def __init__(self, frames: int) -> None:
        """Keep `frames` frames; models without a memory need none."""
        self._frames = frames if frames > 1 else 0
        self._states: deque[State] = deque(maxlen=self._frames + 1)
        self._controls: deque[Tensor] = deque(maxlen=self._frames)
        self._ages = torch.empty(0, dtype=torch.long)  # frames since the start of each world

    def add(self, state: State, control: Tensor | None) -> None:
        """Add a state, and the control of the frame that led to it, shape [worlds, nu]; None for a first state."""
        if control is None:
            self._states.clear()
            self._controls.clear()
            self._ages = torch.zeros(state.worlds, dtype=torch.long, device=state.q.device)
        else:
            self._controls.append(control)
            self._ages = self._ages + 1
        self._states.append(state)

    def restart(self, mask: Tensor) -> None:
        """Clear the history of some worlds, shape [worlds], bool: their next state is a first one."""
        self._ages = self._ages.masked_fill(mask, -1)

    @property
    def first(self) -> Tensor:
        """Worlds whose current state is a first one, shape [worlds], bool."""
        return self._ages == 0

    def groups(self) -> Iterator[tuple[Tensor, State | Window, bool]]:
        """Yield groups of worlds with equally long histories.

        Yields:
            Rows of the worlds; their current states, with their history; whether these are first states.
        """
        ages = self._ages.clamp(max=max(1, len(self._controls)))
        for age in ages.unique().tolist():
            rows = (ages == age).nonzero()[:, 0]
            context = self._context(min(age, len(self._controls)))
            yield rows, context if len(rows) == len(ages) else context.rows(rows), age == 0

    def _context(self, frames: int) -> State | Window:
        """Return the current states with `frames` frames of history."""
        present = self._states[-1]
        if not frames:
            return present
        states, controls = list(self._states)[-frames - 1 :], list(self._controls)[-frames:]
        measured = [x.channels for x in states if x.channels is not None]
        channels = torch.stack(measured, 1) if measured else None
        return Window(
            torch.stack([x.q for x in states], 1), torch.stack([x.qd for x in states], 1), torch.stack(controls, 1),
            channels,
        )  # fmt: skip


class Planner:
    """Plans in a model at every frame, for one or several worlds in parallel.

    Example:
        ```python
        planner = Planner(neurodyn.load("pretrained:cartpole"), "cartpole-swingup", "cem")
        control = planner.act(state)        # torques of this frame; call it once a frame
        ```

    Attributes:
        task: The task.
        model: Dynamics in which it plans.
        settings: Settings of the planner.
        delay: Frames between a decision and its effect, as known to the planner.
        decided: Last decided action, shape [worlds, actions]; None before the first decision.
        action: Action of the current frame: the last decided one, or with a delay an earlier one.
        spent: Cost of planning so far.
        fallbacks: Decisions without a candidate of finite return, which continued the last plan.
        refused: Worlds whose last decision the model refuses (`Dynamics.refused`): the history contradicts it, or it
            has seen nothing like state and control. Shape [worlds], bool; None if it does not know.
    """

    def __init__(
        self,
        model: Dynamics,
        task: Task | str,
        planner: str = DEFAULT_PLANNER,
        settings: PlannerSettings | Path | None = None,
        *,
        environment: Environment | None = None,
        delay: int = 0,
        value: Value | None = None,
        **flags: Any,
    ) -> None:
        """Prepare the planner.

        Args:
            model: Any dynamics of the task's robot.
            task: A task, or its name.
            planner: Name of the planner (`PLANNERS`).
            settings: Its settings, or a file with them; None for the task's.
            environment: Ground and obstacles; None for the robot's default ground.
            delay: Frames between a decision and its effect, known to the planner.
            value: A critic of the return after a plan; None for none.
            flags: Single settings to override, by name.

        Raises:
            InputError: There is no such planner, it cannot plan in the model, or a value is not valid.
            MismatchError: The model is of another robot or frame length.
        """
        self.task = load_task(task) if isinstance(task, str) else task
        self.model = model
        kind = PLANNERS[planner]
        if isinstance(settings, PlannerSettings):
            if type(settings) is not kind.settings_type:
                raise InputError(f"settings are {type(settings).__name__}; valid for {planner!r}: "
                                 f"{kind.settings_type.__name__}")  # fmt: skip
            self.settings: PlannerSettings = settings
        else:
            self.settings = load_settings(kind.settings_type, planner, self.task.name, settings, **flags)
        if delay < 0 or delay >= self.settings.horizon:
            raise InputError(f"delay is {delay} frames; valid: 0 to {self.settings.horizon - 1}, less than the horizon")
        require_fit(self.task, model, self.settings.penalty)
        if self.settings.caution and (model.known_inputs is None or not model.known_inputs.fitted):
            raise InputError(
                f"caution is {self.settings.caution:g}, but these {model.kind} dynamics of {model.spec.robot!r} do not "
                "know what they have seen; valid here: 0; world models and neural models trained by this version do"
            )
        if self.settings.correction and not all(joint.scalar for joint in model.spec.joints):
            raise InputError(
                f"correction is {self.settings.correction:g}, but {model.spec.robot!r} has joints without a single "
                "position; valid here: 0"
            )
        device = torch.device(model.device)
        self._generator = device_generator(device, derive_seed(self.settings.seed, "planner", planner))
        self._optimiser = kind(self.settings, self._generator)
        self._optimiser.require_model(model)
        self._frames = TaskFrames(self.task, model, environment)
        self.delay, self._value = delay, value
        self.spent, self.fallbacks = PlanningCost(), 0
        self.reset()

    def reset(self) -> None:
        """Clear plans and history: the next state starts an episode."""
        self.decided: Tensor | None = None
        self.action: Tensor | None = None
        self._plan: Tensor | None = None
        self._pending: Tensor | None = None
        self._memory: Memory | None = None
        self._history = History(self.model.spec.context)
        self._torque: Tensor | None = None
        self._expected: State | None = None
        self._error: State | None = None
        self.refused: Tensor | None = None

    @torch.no_grad()
    def act(self, state: State, memory: Memory | None = None) -> Control:
        """Return the control of the frame that starts in `state`.

        Args:
            state: The current states.
            memory: Task memory of the worlds, with commands; None to let the planner keep one, with commands that it
                draws (`command` replaces them).
        """
        self._history.add(state, self._torque)
        self._learn_error(state)
        torques = self.model.spec.control_kind == "torque"
        before = self._torque if torques and self._torque is not None else self._frames.no_torque(state)
        now = self._frames.quantities(state, None, before)
        self._memory = self._own_memory(now) if memory is None else memory
        plan = self._plan  # shifted by one frame, with its last action repeated; zeros at first
        if plan is None:
            plan = state.q.new_zeros(state.worlds, self.settings.horizon, len(self.task.actions))
        else:
            plan = torch.cat([plan[:, 1:], plan[:, -1:]], 1)
        if self._pending is None and self.delay:  # nothing acts before the first decision takes effect
            self._pending = plan.new_zeros(len(plan), self.delay, plan.shape[2])
        better = torch.empty_like(plan)
        for rows, context, first in self._history.groups():
            imagined = Imagination(
                self._frames, context, self._memory.rows(rows), self.settings, self._generator,
                pending=None if self._pending is None else self._pending[rows], value=self._value,
                correction=None if self._error is None else self._error.rows(rows), spent=self.spent,
            )  # fmt: skip
            better[rows] = self._optimiser.improve(imagined, plan[rows], first=first)
        finite = better.isfinite().flatten(1).all(1)
        self.fallbacks += int((~finite).sum())
        self._plan = torch.where(finite[:, None, None], better, plan)
        self.decided = self._plan[:, self.delay].clamp(-self.task.limit, self.task.limit)
        self.action = self.decided
        if self._pending is not None:
            self.action = self._pending[:, 0]
            self._pending = torch.cat([self._pending[:, 1:], self.decided[:, None]], 1)
        if self.settings.correction:
            self._expected = self._next_state(state)
        control = self.task.control(self.action, now, self._memory)
        self.refused = self._refused(control)
        self._torque = frame_torque(self.model.spec, state, control) if torques else control.target
        return self.task.control(self.decided, now, self._memory)

    @property
    def command(self) -> Tensor | None:
        """The command that the planner follows, shape [worlds, commands]; None before the first frame."""
        return None if self._memory is None else self._memory.command

    @command.setter
    def command(self, command: Tensor) -> None:
        if self._memory is None:
            raise InputError("the planner has seen no state yet; valid: set its command after the first frame")
        self._memory = replace(self._memory, command=command)

    def restart(self, mask: Tensor) -> None:
        """Start new episodes in some worlds, shape [worlds], bool, as `reset` does in all.

        Their next state is a first one: without plan, history, task memory and delayed actions.
        """
        if self._plan is None:
            return
        self._plan, self._torque = _clear(self._plan, mask), _clear(self._torque, mask)
        self._pending = _clear(self._pending, mask)
        self.decided, self.action = _clear(self.decided, mask), _clear(self.action, mask)
        self._history.restart(mask)

    def _refused(self, control: Control) -> Tensor | None:
        """Return which worlds the model refuses in the current frame, shape [worlds], bool."""
        known, environment = [], self._frames.environment
        if self.model.known_inputs is None:
            return None
        for rows, context, _ in self._history.groups():
            refused = self.model.refused(context, control.rows(rows), environment)
            if refused is None:
                return None
            known.append((rows, refused))
        whole = torch.empty(sum(len(rows) for rows, _ in known), dtype=torch.bool, device=known[0][0].device)
        for rows, refused in known:
            whole[rows] = refused
        return whole

    def _next_state(self, state: State) -> State:
        """Return the states at the end of the current frame, as the model predicts them without correction."""
        assert self._memory is not None
        assert self.action is not None
        q, qd = torch.empty_like(state.q), torch.empty_like(state.qd)
        for rows, context, _ in self._history.groups():
            begun = self._frames.begin(context, self._generator, memory=self._memory.rows(rows), of_mean=True)
            after, _ = self._frames.advance(begun, self.action[rows], self._generator, tracked=True)
            q[rows], qd[rows] = after.state.q, after.state.qd
            self.spent.frames += len(rows)
        return State.make_unchecked(q=q, qd=qd)

    def _learn_error(self, state: State) -> None:
        """Take the last frame's error into the running mean, which is 0 at the start of an episode."""
        if self._expected is None:
            return
        share, first, expected = self.settings.correction, self._history.first[:, None], self._expected
        errors = position_difference(self.model.spec, state.q, expected.q), state.qd - expected.qd
        before = tuple(map(torch.zeros_like, errors)) if self._error is None else (self._error.q, self._error.qd)
        q, qd = (torch.where(first, 0.0, old + share * (new - old)) for old, new in zip(before, errors, strict=True))
        self._error = State.make_unchecked(q=q, qd=qd)

    def _own_memory(self, now: Quantities) -> Memory:
        """Return the planner's own task memory of worlds in `now`."""
        if self._memory is None or self.action is None:
            return self.task.begin(now, self._generator)
        memory, first = self.task.advance(self._memory, now, self.action, self._generator), self._history.first
        return memory.renew(first, self.task.begin(now, self._generator)) if bool(first.any()) else memory


def _clear(values: Tensor | None, mask: Tensor) -> Tensor | None:
    return None if values is None else values.masked_fill(mask.view(-1, *[1] * (values.ndim - 1)), 0.0)
