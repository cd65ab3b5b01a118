# SPDX-License-Identifier: Apache-2.0
"""Reaching for a point with the end effector: by any bolted robot (reach@ROBOT), and what all such tasks share.

Goals are places of the end effector in random poses, so that each can be reached. A robot may declare settings,
`tasks: {reach: {near: 0.01, frames: 100}}`, but need not.
"""

from abc import ABC
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import InputError, require
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.quantities import Maker, Quantities, declared_end_effector
from neurodyn.tasks.commands import GOAL, Command, GoalCommand
from neurodyn.tasks.declared import DeclaredSettings, DeclaredTask
from neurodyn.tasks.observations import POLICY, Memory, ObservationTerm, ObservationTerms, each
from neurodyn.tasks.task import Task

_PLACE = "end_effector_position"
_POSES = 4096
"""Random poses from which goals are drawn."""


class PointReaching(Task, ABC):
    """Base class of tasks whose command is a place of the end effector, shape [worlds, 3].

    Attributes:
        near: Distance at which it counts as reached [m].
    """

    near: float

    def place(self, quantities: Quantities) -> Tensor:
        """Return the place of the end effector [m], world axes, shape [worlds, 3]."""
        return quantities[_PLACE]

    def distance(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return the distance of the end effector to its goal [m], shape [worlds]."""
        return torch.linalg.vector_norm(self.place(quantities) - memory.command, dim=-1)

    def commanded(self, quantities: Quantities, memory: Memory) -> Mapping[str, Command]:
        """Return the distance of the end effector to its goal."""
        return {GOAL: GoalCommand(self.distance(quantities, memory))}

    def terminated(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return false everywhere: only time ends an episode."""
        return torch.zeros_like(memory.frame, dtype=torch.bool)

    def succeeded(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return whether the goal is reached."""
        return self.distance(quantities, memory) < self.near


class ReachSettings(DeclaredSettings, frozen=True):
    """Settings of `Reach`.

    Attributes:
        near: Distance from the goal at which it counts as reached [m].
        scale: Distance by which the reward for nearness has fallen by three quarters [m].
        span: Share of each joint's range, about its middle, in which poses of starts and goals are drawn.
        lowest: Least height of a goal, world axes [m]; negative for a robot that hangs.
    """

    near: float = 0.01
    scale: float = 0.1
    span: float = 0.6
    lowest: float = 0.02

    positive = (*DeclaredSettings.positive, "near", "scale", "span")
    signed = ("lowest",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.span <= 1.0, "task reach: span", self.span, "a share of the joints' ranges, at most 1")


class Reach(PointReaching, DeclaredTask):
    r"""Bring the end effector to a goal and hold it there.

    $r = 1 - \tanh(d/scale) + e^{-(d/near)^2} - .1 |a - a'|^2$: its distance d from the goal, and the last action a'.
    """

    key = "reach"
    optional = True
    settings_type: ClassVar[type[DeclaredSettings]] = ReachSettings
    settings: ReachSettings  # pyright: ignore[reportIncompatibleVariableOverride]
    needs = ("joint_position", "joint_velocity")

    def __init__(self, robot: str) -> None:
        """Prepare the task; errors: see `DeclaredTask`, and a floating base or no end effector."""
        super().__init__(robot)
        declared = self.declaration()
        if declared.end_effector is None or not declared.fixed_base:
            raise InputError(
                f"task 'reach' is not for robot {declared.name!r}; valid: a bolted robot that declares an end_effector"
            )
        self.near = self.settings.near

    def place(self, quantities: Quantities) -> Tensor:
        """Return the place of the end effector; by the declared joints in models that know no bodies, [worlds, 3]."""
        if _PLACE in quantities:
            return super().place(quantities)
        state = State(quantities["joint_position"], quantities["joint_velocity"])
        return self._by_joints(Quantities(quantities.owner, {}, state=state))

    @cached_property
    def _by_joints(self) -> Maker:
        from neurodyn.sim.simulators import articulation  # tasks load without a simulator

        robot = self.declaration()
        return declared_end_effector(robot, lambda: articulation(robot).joints)[_PLACE]

    def start(self, worlds: int, generator: torch.Generator) -> State:
        """Draw poses in which goals lie, too, at rest; objects are where resets put them."""
        state, (poses, _) = super().start(worlds, generator), self._poses
        own = self._drawn(poses, worlds, generator)
        scalar = torch.tensor([joint.scalar for joint in self.declaration().joints for _ in range(joint.nq)])
        return State(torch.where(scalar.to(own.device), own, state.q), torch.zeros_like(state.qd))

    def commands(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Draw goals [m], shape [worlds, 3]."""
        return self._drawn(self._poses[1], worlds, generator)

    @staticmethod
    def _drawn(rows: Tensor, worlds: int, generator: torch.Generator) -> Tensor:
        chosen = torch.randint(len(rows), (worlds,), generator=generator, device=generator.device)
        return rows.to(generator.device, torch.get_default_dtype())[chosen]

    @cached_property
    def _poses(self) -> tuple[Tensor, Tensor]:
        """Random poses [poses, nq] whose end effector is high enough, and where it is [m], shape [poses, 3].

        Raises:
            InputError: There are none.
        """
        from neurodyn.sim.declaration.pose import full_position  # tasks load without a simulator

        robot, rng = self.declaration(), np.random.default_rng(0)
        names = robot.spec.q_names
        q = np.tile(full_position(robot, robot.nominal), (_POSES, 1))
        for joint in robot.joints:
            if joint.scalar:
                low, high = robot.sampling_interval("q", joint.name)
                middle, half = 0.5 * (low + high), 0.5 * self.settings.span * (high - low)
                q[:, names.index(joint.name)] = rng.uniform(middle - half, middle + half, _POSES)
        poses = torch.from_numpy(q)
        state = State(poses, poses.new_zeros(_POSES, len(robot.spec.qd_names)))
        places = self._by_joints(Quantities(robot.name, {}, state=state))
        high_enough = places[:, 2] >= self.settings.lowest
        if not high_enough.any():
            raise InputError(
                f"task {self.name!r}: in {_POSES:,} poses the end effector is at most {places[:, 2].max():.3g} m high; "
                f"valid: tasks: {{reach: {{lowest: ...}}}} below that"
            )
        return poses[high_enough], places[high_enough]

    def observation_terms(self) -> ObservationTerms:
        """Return joints and their rates, the way from the end effector to the goal, and the last action."""
        joints = [joint for joint in self.declaration().spec.joints if joint.kind != "free"]
        rates = [name for joint in joints for name in joint.qd_names]
        terms = (
            ObservationTerm("joint_position", columns=tuple(name for joint in joints for name in joint.q_names)),
            ObservationTerm("joint_velocity", columns=each("{}_velocity", rates)),
            ObservationTerm(
                "way", lambda now, memory: memory.command - self.place(now), each("way_{}", "xyz"),
                sensor="encoder",
            ),
            ObservationTerm("last_action", lambda now, memory: memory.action, each("last_{}", self.actions)),
        )  # fmt: skip
        return {POLICY: terms}

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return rewards of nearness and of being there, and the cost of jumps."""
        d = self.distance(quantities, memory)
        return {
            "near": 1.0 - torch.tanh(d / self.settings.scale),
            "there": torch.exp(-(d / self.near).square()),
            "jump": -0.1 * (action - memory.action).square().sum(-1),
        }
