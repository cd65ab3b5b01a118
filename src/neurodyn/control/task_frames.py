# SPDX-License-Identifier: Apache-2.0
"""Frames of a task in some dynamics: the one loop body of environments, planners and whatever else acts.

A frame: the task turns an action into a control, the dynamics predict what it does, the frame is judged, and the task's
memory moves on.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.control.frame_end import FrameEnd, episode_bounds, judge
from neurodyn.control.grounds import heights_above, home_ground
from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.interface import Carry, Control, Dynamics, Environment, State, Step, Window, present_state
from neurodyn.dynamics.quantities import Quantities
from neurodyn.tasks import Memory, Task


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
    """

    def __init__(self, task: Task, dynamics: Dynamics, environment: Environment | None = None) -> None:
        """Prepare.

        Args:
            task: What is to be done.
            dynamics: What happens; they fit the task (`control.compatibility`).
            environment: What the worlds are in, with heights of the base above the ground (`control.grounds`); None for
                the robot's default ground.
        """
        self.task, self.dynamics = task, dynamics
        self.bounds = episode_bounds(task, dynamics)
        uneven = environment is not None and environment.ground is not None and dynamics.spec.floating
        self._uneven = environment.ground if uneven and environment is not None else None
        if environment is None and not dynamics.measured:  # which know that of their logs alone
            environment = home_ground(task)
        self.environment = environment
        self._torques = dynamics.spec.control_kind == "torque"
        self._scale = dynamics.epistemic_scale

    def quantities(self, state: State, step: Step | None, torque: Tensor | None) -> Quantities:
        """Return what is known of states; arguments as of `Dynamics.quantities`."""
        found = self.dynamics.quantities(state, step, torque=torque, environment=self.environment)
        return found if self._uneven is None else heights_above(found, self._uneven)

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
        control, torque = self.task.control(action, at.now, at.memory), at.torque
        if self._torques:
            torque = frame_torque(self.dynamics.spec, at.state, control)
            control = Control(torque=torque)
        advance = self.dynamics.step if tracked else self.dynamics.step_
        carry, step = advance(at.carry, at.state, control)
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
