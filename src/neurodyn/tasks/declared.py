# SPDX-License-Identifier: Apache-2.0
"""Tasks of any robot whose settings stand in its declaration, `tasks: {lift: {object: cube, ...}}`.

Joints and drives are read from the declaration, so that one class serves every robot.
"""

from functools import cached_property
from typing import Any, ClassVar

import msgspec
import torch
from torch import Tensor

from neurodyn.core.config import Config, expand_keys, from_dict, require_numbers
from neurodyn.core.description.drive import POSITION_DRIVES, Drive
from neurodyn.core.errors import InputError, choices, require
from neurodyn.dynamics.batch import Control
from neurodyn.dynamics.quantities import Quantities
from neurodyn.geometry.tensors import constant
from neurodyn.robots import Robot, load, locate
from neurodyn.tasks.observations import Memory
from neurodyn.tasks.task import Task


class DeclaredSettings(Config, frozen=True):
    """Settings of all declared tasks.

    Attributes:
        frames: Length of an episode [frames].
        steps: Largest offset of a servo's target from its position, by drive, in the units of its command. Other drives
            take commands within their ranges; but PD drives of targets without a limit of effort, which would then pull
            with any torque, the offset at which they reach that of their joint.
    """

    frames: int = 150
    steps: dict[str, float] = msgspec.field(default_factory=dict)

    positive: ClassVar[tuple[str, ...]] = ("frames",)
    """Numbers above 0."""
    signed: ClassVar[tuple[str, ...]] = ()
    """Numbers that may be negative."""

    def __post_init__(self) -> None:
        require_numbers(self, above=self.positive, signed=self.signed)
        for name, step in self.steps.items():
            require(0 < step < float("inf"), f"steps of {name!r}", step, "a finite number above 0")


def _unlimited(robot: Robot) -> dict[str, float]:
    """Return the deflections of PD drives without a limit at which they reach the efforts of their joints, by drive."""
    return {
        name: robot.actuated[name] / drive.kp
        for name, drive in robot.drives.items()
        if name in robot.actuated and drive.kind == "pd" and drive.kp and drive.effort_limit is None
    }


class DeclaredTask(Task):
    """A task whose settings a robot declares.

    Attributes:
        key: Its name in `Robot.tasks` and in `TASKS_OF_ROBOTS`.
        settings_type: Type of its settings.
        settings: Its settings, as declared.
        optional: Whether robots need not declare any.
    """

    key: ClassVar[str]
    optional: ClassVar[bool] = False
    settings_type: ClassVar[type[DeclaredSettings]]
    settings: DeclaredSettings
    action_meaning = "command of a drive: from where it is if it has a step, else from the middle of its range"

    def __init__(self, robot: str) -> None:
        """Prepare the task for a robot, given by name or path.

        Raises:
            InputError: There is no such robot, it does not declare the task, or the settings are not valid.
        """
        declared = load(robot)
        self.robot = locate(robot)
        self.name = name = f"{self.key}@{self.robot}"
        self.settings = settings = from_dict(self.declared_settings(declared), self.settings_type, f"task {name!r}")
        self.frames = settings.frames
        self.actions = declared.spec.controls
        self._steps = _unlimited(declared) | expand_keys(settings.steps, self.actions, f"task {name!r}: steps")
        for drive in self._steps:
            if drive not in self.actions:
                raise InputError(f"task {name!r}: steps name {drive!r}; valid: {choices(self.actions)}")
            if declared.drives.get(drive, Drive()).kind not in POSITION_DRIVES:
                raise InputError(
                    f"task {name!r}: steps name {drive!r}; valid: drives of kind {choices(POSITION_DRIVES)}"
                )
        half = [0.5 * (high - low) for low, high in declared.control_intervals()]
        self.action_scale = tuple(self._steps.get(drive, own) for drive, own in zip(self.actions, half, strict=True))

    @classmethod
    def declared_settings(cls, robot: Robot) -> dict[str, Any]:
        """Return the settings that a robot declares.

        Raises:
            InputError: It declares none, and they are not optional.
        """
        if cls.optional:
            return robot.tasks.get(cls.key, {})
        if cls.key not in robot.tasks:
            raise InputError(f"robot {robot.name!r} declares no task {cls.key!r}; it declares {choices(robot.tasks)}")
        return robot.tasks[cls.key]

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return commands: offsets from the current position for drives in `steps`, values within ranges for others."""
        given = self.within_ranges(action)
        if given.target is None or not self._steps:
            return given
        rows, size, low, high = (constant(part, action) for part in self._lengths)
        ahead = quantities["joint_position"] @ rows.mT + size * action
        return Control(target=torch.where(size > 0, ahead.clamp(low, high), given.target))

    @cached_property
    def _lengths(self) -> tuple[tuple[tuple[float, ...], ...], ...]:
        """Return transmissions [nu, joints], and step, lowest and highest command of each drive, shape [1, nu]."""
        robot = self.declaration()
        joints = [name for joint in robot.spec.joints if joint.kind != "free" for name in joint.q_names]
        rows = []
        for name in self.actions:
            drive = robot.drives.get(name, Drive())
            row = {name: 1.0} if not isinstance(drive.transmission, dict) else drive.transmission
            rows.append(tuple(row.get(joint, 0.0) for joint in joints))
        low, high = zip(*robot.control_intervals(), strict=True)
        return tuple(rows), (tuple(self._steps.get(name, 0.0) for name in self.actions),), (low,), (high,)
