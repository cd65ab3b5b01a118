# SPDX-License-Identifier: Apache-2.0
"""Base class of tasks: observation, reward, failure and start states, as pure functions of named quantities."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property, lru_cache
from itertools import groupby
from types import MappingProxyType
from typing import Self

import msgspec
import torch
from torch import Tensor

from neurodyn.core.description.spec import JointSpec
from neurodyn.core.errors import InputError, choices, unknown
from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.quantities import Quantities
from neurodyn.geometry import rotation
from neurodyn.geometry.tensors import constant, shared_tensor
from neurodyn.robots import Robot, load
from neurodyn.robots.sections import Interval
from neurodyn.tasks.commands import Command
from neurodyn.tasks.observations import (
    CRITIC,
    POLICY,
    SENSED,
    Memory,
    ObservationGroup,
    ObservationTerm,
    ObservationTerms,
)
from neurodyn.tasks.sensing import sensed_terms
from neurodyn.tasks.views import SENSORS, STATE, VIEWS, View

_ANYWHERE = (-math.pi, math.pi)


def reset_states(robot: Robot, worlds: int, generator: torch.Generator, *, heading: Interval | None = None) -> State:
    """Draw states from the robot's `reset` ranges, with its base above the world origin.

    Args:
        robot: The declared robot; its ball joints start at rest.
        worlds: Number of states.
        generator: Random numbers; its device is that of the states.
        heading: Range of a floating base's angle about the vertical [rad], for robots whose resets give no `rotation`.
            None for that of the resets.
    """
    q, qd = list[Tensor](), list[Tensor]()
    for scalar, joints in groupby(robot.spec.joints, key=lambda joint: joint.kind not in ("free", "ball")):
        for joint in () if scalar else joints:
            q.append(_reset_pose(robot, joint, worlds, generator, heading))
            qd.append(_each([robot.reset_interval("qd", name) for name in joint.qd_names], worlds, generator))
        if scalar:
            both = [robot.reset_interval(part, joint.name) for joint in joints for part in ("q", "qd")]
            drawn = _each(both, worlds, generator)
            q.append(drawn[:, ::2])
            qd.append(drawn[:, 1::2])
    return State(torch.cat(q, dim=1), torch.cat(qd, dim=1))


def _reset_pose(
    robot: Robot, joint: JointSpec, worlds: int, generator: torch.Generator, heading: Interval | None
) -> Tensor:
    """Draw positions of a free joint; ball joints are at rest."""
    if joint.kind == "ball":
        return shared_tensor((0.0, 0.0, 0.0, 1.0), generator.device, torch.get_default_dtype()).expand(worlds, 4)
    if joint.name in robot.spec.objects:
        return _object_pose(robot.object_intervals(joint.name, reset=True), worlds, generator)
    return _pose(robot, worlds, generator, heading or robot.reset_interval("q", f"{joint.name}.heading"))


def _each(intervals: Sequence[Interval], worlds: int, generator: torch.Generator) -> Tensor:
    """Draw numbers uniformly, each within its interval, shape [worlds, intervals]."""
    drawn = torch.rand(len(intervals), worlds, generator=generator, device=generator.device)
    lowest, width = constant(tuple((lower, upper - lower) for lower, upper in intervals), drawn).T[..., None]
    return (lowest + width * drawn).T


def uniform(interval: Interval, worlds: int, generator: torch.Generator) -> Tensor:
    """Draw numbers uniformly, shape [worlds]."""
    lower, upper = interval
    return lower + (upper - lower) * torch.rand(worlds, generator=generator, device=generator.device)


def _object_pose(intervals: tuple[Interval, ...], worlds: int, generator: torch.Generator) -> Tensor:
    """Draw upright poses of a free body beside a robot: position [m], then heading [rad] as a quaternion."""
    position = torch.stack([uniform(interval, worlds, generator) for interval in intervals], dim=-1)
    rotation_vector = torch.zeros_like(position[:, :3])
    rotation_vector[:, 2] = position[:, 3]
    return torch.cat([position[:, :3], rotation.exponential(rotation_vector)], dim=-1)


def _pose(robot: Robot, worlds: int, generator: torch.Generator, heading: Interval) -> Tensor:
    """Draw poses of a floating base: lifted, and rotated about any axis, or about the vertical and then tilted."""
    position = torch.zeros(worlds, 3, device=generator.device)
    if robot.reset.height is not None:
        position[:, 2] = uniform(robot.reset.height, worlds, generator)
    if robot.reset.rotation is not None:
        axis = torch.nn.functional.normalize(
            torch.randn(worlds, 3, generator=generator, device=generator.device), dim=-1
        )
        angle = uniform((0.0, robot.reset.rotation), worlds, generator)
        return torch.cat([position, rotation.exponential(angle[:, None] * axis)], dim=-1)
    rotation_vector = position.new_zeros(worlds, 3)
    rotation_vector[:, 2] = uniform(heading, worlds, generator)
    towards = uniform(_ANYWHERE, worlds, generator)
    tilt = uniform((0.0, robot.reset.tilt), worlds, generator)
    lean = torch.stack([tilt * towards.cos(), tilt * towards.sin(), torch.zeros_like(tilt)], dim=-1)
    return torch.cat(
        [position, rotation.multiply(rotation.exponential(rotation_vector), rotation.exponential(lean))], dim=-1
    )


class Task(ABC):
    """One task of one robot.

    Attributes:
        name: Name of the task.
        robot: Name of the robot.
        observes: Whether policies see the state, or what sensors tell (`tasks.sensing`).
        needs: Names of the quantities that it reads, beside those that its observations show.
        contacts: Bodies whose contact it reads.
        actions: Names of the components of an action, each nominally within -1 and 1.
        action_scale: Factor on each component, in the units of `action_meaning`.
        action_meaning: Meaning of the scaled action, in words.
        frames: Length of an episode in frames.
        dt: Length of a frame [s]; None for the robot's own.
        penalty_scale: Cost per frame of a world model's uncertainty of 1, at lambda = 1, in reward.
        foresight: Frames from which `hindsight` infers a command.
        limit: Magnitude at which components of an action are clipped.
        unseen_command: Meanings of a command's numbers after those that policies observe as "command.NAME".
        presets: Names of settings that suit it better than those of its name.
        along_gradients: Whether policies learn it best along gradients of the dynamics, where there are any.
        implausible_reward: Reward of a frame that ends an episode because its state is implausible. If rewards are
            costs, the largest cost of an episode: otherwise breaking the simulator is the best policy.
        mirrored: Columns of observations whose mirror image does not follow from their name, with the image's column
            and sign (`policy.learners.symmetry`).
    """

    name: str
    robot: str
    observes: View = STATE
    needs: tuple[str, ...]
    contacts: tuple[str, ...] = ()
    actions: tuple[str, ...]
    action_scale: tuple[float, ...]
    action_meaning: str
    frames: int
    dt: float | None = None
    penalty_scale: float = 1.0
    foresight: int = 1
    limit: float = 1.0
    unseen_command: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()
    along_gradients: bool = False
    implausible_reward: float = 0.0
    mirrored: Mapping[str, tuple[str, float]] = MappingProxyType({})

    @property
    def disturbances(self) -> tuple[str, ...]:
        """Disturbances of every episode, in `--randomise` syntax, such as "push.velocity=0:1"; empty by default."""
        return ()

    def declaration(self) -> Robot:
        """Return the robot at the task's frame length."""
        return _declaration_at(self.robot, self.dt)

    def nominal(self, like: Tensor) -> Tensor:
        """Return nominal positions of the driven joints [rad or m], shape [nu], with dtype and device of `like`."""
        return constant(self._nominal, like)

    @cached_property
    def _nominal(self) -> tuple[float, ...]:
        return self.declaration().nominal_q()

    def observation_terms(self) -> ObservationTerms:
        """Return the terms of the observations of a policy that sees the state, by group.

        The group "policy" is what the policy sees and policies store, "critic" what PPO's critic sees beside it. A
        policy that sees sensors (`tasks.sensing`) also sees the group "sensed".
        """
        return {}

    def observing(self, view: View | None) -> Self:
        """Return the task with policies that see the state or sensors; None for what they see already.

        Raises:
            InputError: There is no such view.
        """
        if view is None or view == self.observes:
            return self
        if view not in VIEWS:
            raise unknown("view of a policy", view, VIEWS)
        other = copy(self)
        other.observes = view
        for name in ("groups", "_policy_group", "observations", "noise", "quantities"):
            vars(other).pop(name, None)
        return other

    @cached_property
    def groups(self) -> dict[str, ObservationGroup]:
        """Groups of observations.

        Raises:
            InputError: There is a group of another name, or the task does not say of which terms it consists.
        """
        terms = self.observation_terms()
        for name in terms:
            if name not in (POLICY, CRITIC, SENSED):
                raise unknown("group of observations", name, (POLICY, CRITIC, SENSED))
        if self.observes == SENSORS:
            if POLICY not in terms:
                raise InputError(
                    f"task {self.name!r}: observes in a way of its own; valid with sensors: `observation_terms`"
                )
            terms = sensed_terms(self.declaration(), terms, self.actions)
        return {name: ObservationGroup(group) for name, group in terms.items() if name != SENSED}

    @cached_property
    def _policy_group(self) -> ObservationGroup:
        if POLICY not in self.groups:
            raise InputError(f"task {self.name!r}: has no group {POLICY!r} in `observation_terms`; valid: one with it")
        return self.groups[POLICY]

    @cached_property
    def observations(self) -> tuple[str, ...]:
        """Names of the columns of the policy's observation, in order."""
        return self._policy_group.columns

    @cached_property
    def noise(self) -> tuple[float, ...]:
        """Half the width of the uniform noise of each of these columns in training; empty for none."""
        return self.groups[POLICY].noise if POLICY in self.groups else ()

    @property
    def readings(self) -> tuple[ObservationTerm, ...]:
        """Terms of the policy's observation; empty if the task observes in a way of its own."""
        return self.groups[POLICY].terms if POLICY in self.groups else ()

    def said_of_sensors(self) -> str:
        """Return in words what a policy of sensors sees, and what only its critic sees."""
        seen = {term.name for term in self.readings}
        only = [
            term.name for term in self.observation_terms()[POLICY]
            if term.name not in seen and term.source not in ("base_angular_velocity", "projected_gravity")
        ]  # fmt: skip
        critic = f"; its critic alone {', '.join(only)}" if only else ""
        return f"The policy sees {', '.join(term.name for term in self.readings)}{critic} (--observe state: the state)"

    @cached_property
    def quantities(self) -> tuple[str, ...]:
        """Names of the quantities that it reads: `needs`, and those that its observations show."""
        shown = (term.source for group in self.groups.values() for term in group.terms)
        return tuple(dict.fromkeys([*self.needs, *(name for name in shown if isinstance(name, str))]))

    def require(self, quantities: Quantities) -> None:
        """Check that dynamics provide everything the task reads.

        Raises:
            InputError: A quantity or a contact is missing; the message names it and the available ones.
        """
        try:
            quantities.require(self.quantities)
        except InputError as error:
            raise InputError(f"task {self.name!r}: {error}") from None
        for contact in self.contacts:
            if contact not in quantities.contact_names:
                raise InputError(
                    f"task {self.name!r}: {quantities.owner} does not offer the contact of {contact!r}; it offers "
                    f"{choices(quantities.contact_names)}"
                )

    def start(self, worlds: int, generator: torch.Generator) -> State:
        """Draw start states: by default the robot's declared resets."""
        return reset_states(self.declaration(), worlds, generator)

    def begin(self, quantities: Quantities, generator: torch.Generator) -> Memory:
        """Return the memory of worlds at the start of an episode."""
        velocity = quantities["joint_velocity"]
        worlds = len(velocity)
        return Memory(
            action=velocity.new_zeros(worlds, len(self.actions)),
            command=self.commands(worlds, generator).to(velocity.dtype),
            joint_velocity=velocity,
            air_time=velocity.new_zeros(worlds, 0),
            frame=torch.zeros(worlds, dtype=torch.long, device=velocity.device),
        )

    def commands(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Draw commands, shape [worlds, commands]; none by default."""
        return torch.zeros(worlds, 0, device=generator.device)

    def advance(self, memory: Memory, quantities: Quantities, action: Tensor, generator: torch.Generator) -> Memory:
        """Return the memory after a frame that ended in `quantities`."""
        return Memory(
            action=action,
            command=memory.command,
            joint_velocity=quantities["joint_velocity"],
            air_time=memory.air_time,
            frame=memory.frame + 1,
        )

    def commanded(self, quantities: Quantities, memory: Memory) -> Mapping[str, Command]:
        """Return the commands that the robot is under, beside what it does, by a name with its unit; none by default.

        Trainings and evaluations report them, and say if a policy stands or ignores its command.
        """
        return {}

    def hindsight(self, ahead: Quantities) -> Tensor:
        """Return the command that the observed motion follows, shape [worlds, commands].

        Args:
            ahead: Quantities of the `foresight` frames that followed, one after another for each world in turn.
        """
        return torch.zeros(len(ahead["joint_velocity"]) // self.foresight, 0)

    def action_of(self, control: Tensor) -> Tensor:
        """Return the action behind a logged control, shape [worlds, actions].

        Raises:
            InputError: The task has no inverse of `control`.
        """
        raise InputError(f"task {self.name!r} cannot imitate a log: it does not say which action a control came from")

    def within_ranges(self, action: Tensor) -> Control:
        """Return the control for an action between -1 and 1, scaled to the full ranges of the robot's controls.

        The ranges are those of `Robot.sampling_interval`: of the commands of actuators, or the efforts of torques.

        Args:
            action: Actions, shape [worlds, nu].
        """
        robot = self.declaration()
        low, high = (constant(edge, action) for edge in zip(*robot.control_intervals(), strict=True))
        value = low + (0.5 * (high - low)) * (action + 1.0)
        return Control(torque=value) if robot.command == "torque" else Control(target=value)

    @abstractmethod
    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return the robot's control under an action, shape [worlds, actions]."""

    def observe(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return the policy's observation without noise, shape [worlds, observations]."""
        return self._policy_group(quantities, memory)

    @abstractmethod
    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return the terms of the reward of a frame by name, each of shape [worlds]; their sum is the reward."""

    @abstractmethod
    def terminated(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return in which worlds the robot failed, shape [worlds], bool."""

    def succeeded(self, quantities: Quantities, memory: Memory) -> Tensor | None:
        """Return in which worlds the task is accomplished, shape [worlds], bool; None for tasks without success."""
        return None


@lru_cache(maxsize=16)
def _declaration_at(robot: str, dt: float | None) -> Robot:
    """Return a declared robot at a frame length; cached, as starts are drawn in every frame."""
    declared = load(robot)
    return declared if dt is None else msgspec.structs.replace(declared, dt=dt)
