# SPDX-License-Identifier: Apache-2.0
"""Tasks with a free body beside a robot: push it to a goal, or lift it.

A robot declares their settings, `tasks: {lift: {object: cube, ...}}`, and the task is then named lift@ROBOT.

The object is moved by the end effector if the robot declares one, else by the floating base, taken at its origin. The
policy observes everything in the axes of a floating base, or in world axes if the base is bolted, without the robot's
position in the world.
"""

import math
from collections.abc import Mapping
from typing import cast

import msgspec
import torch
from torch import Tensor

from neurodyn.core.errors import InputError, choices
from neurodyn.dynamics.quantities import Quantities, base_rotation
from neurodyn.geometry import rotation
from neurodyn.robots import Robot
from neurodyn.robots.sections import Interval, check_interval
from neurodyn.tasks.commands import GOAL, Command, GoalCommand
from neurodyn.tasks.declared import DeclaredSettings, DeclaredTask
from neurodyn.tasks.observations import POLICY, Memory, ObservationTerm, ObservationTerms, each
from neurodyn.tasks.task import uniform

AXES = "xyz"
TILT = 1.0
"""Angle between a floating base's z axis and the vertical from which on the robot has fallen [rad]."""
_JOINT_RATE = 0.1
"""Factor on joint velocities in observations."""


class ObjectSettings(DeclaredSettings, frozen=True):
    """Settings of a task with an object.

    Attributes:
        object: Name of its free joint.
        goal: Goal position, drawn per episode: ranges of x, y (and z to lift it), world axes [m].
        near: Distance from the goal at which it counts as reached [m].
        reach: Length scale of the reward for nearness to the object [m].
    """

    object: str = ""
    goal: dict[str, Interval] = msgspec.field(default_factory=dict)
    near: float = 0.05
    reach: float = 0.1

    positive = (*DeclaredSettings.positive, "near", "reach")

    def __post_init__(self) -> None:
        super().__post_init__()
        for axis, interval in self.goal.items():
            check_interval(f"goal: {axis}", interval)


class ObjectTask(DeclaredTask):
    """Base class of tasks with an object: goals, observation, falls and success."""

    settings_type = ObjectSettings
    settings: ObjectSettings  # pyright: ignore[reportIncompatibleVariableOverride]
    axes: str
    """Axes of the goal."""

    def __init__(self, robot: str) -> None:
        """Prepare the task; errors: see `DeclaredTask`, and an unknown object or a goal with other axes."""
        super().__init__(robot)
        self._prepare(self.declaration(), self.settings, self.name)

    def _prepare(self, robot: Robot, settings: ObjectSettings, name: str) -> None:
        if settings.object not in robot.spec.objects:
            raise InputError(
                f"task {name!r}: object is {settings.object!r}; valid: a free body beside the robot, "
                f"{choices(robot.spec.objects)}"
            )
        if set(settings.goal) != set(self.axes):
            raise InputError(f"task {name!r}: goal has {choices(settings.goal)}; valid: ranges of {choices(self.axes)}")
        self._floating, self._handed = robot.spec.floating, robot.end_effector is not None
        if not self._floating and not self._handed:
            raise InputError(
                f"task {name!r}: nothing says what acts on {settings.object!r}; declare an end_effector of the robot"
            )
        own = [f"{settings.object}.{what}" for what in ("position", "orientation", "linear_velocity")]
        base = ["base_position", "base_linear_velocity", "base_angular_velocity", "projected_gravity"]
        hand = ["end_effector_position", "end_effector_velocity"]
        self.needs = (
            "joint_position", "joint_velocity", *own, *(base if self._floating else []),
            *(hand if self._handed else []),
        )  # fmt: skip

    def commands(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Draw goals [m], shape [worlds, axes of the goal]."""
        return torch.stack([uniform(self.settings.goal[axis], worlds, generator) for axis in self.axes], dim=-1)

    def observation_terms(self) -> ObservationTerms:
        """Return joints, base, object from the actor, goal from the object, the object's motion, and last action."""
        joints = [joint for joint in self.declaration().spec.joints if joint.kind != "free"]
        rates = [name for joint in joints for name in joint.qd_names]
        shown = ("object", "goal", "object_velocity", "object_x", "object_y")
        base = (
            ObservationTerm("base_linear_velocity", columns=each("velocity_{}", AXES)),
            ObservationTerm("base_angular_velocity", columns=each("turning_{}", AXES)),
            ObservationTerm("projected_gravity", columns=each("down_{}", AXES)),
        )
        height = ObservationTerm("height", lambda now, memory: self.object_position(now)[:, 2:], sensor="camera")
        terms = (
            ObservationTerm("joint_position", columns=tuple(name for joint in joints for name in joint.q_names)),
            ObservationTerm("joint_velocity", columns=each("{}_velocity", rates), scale=_JOINT_RATE),
            *(base if self._floating else ()),
            ObservationTerm(
                "object", self._object, tuple(f"{name}_{axis}" for name in shown for axis in AXES), sensor="camera"
            ),
            ObservationTerm("last_action", lambda now, memory: memory.action, each("last_{}", self.actions)),
            *(() if self._floating else (height,)),
        )
        return {POLICY: terms}

    def _object(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return object from the actor, goal from the object, its velocity and its x and y axes, [worlds, 15]."""
        ahead = self.ahead(quantities, memory)
        if ahead.shape[-1] < 3:
            ahead = torch.cat([ahead, torch.zeros_like(ahead[:, :1])], dim=-1)
        orientation = rotation.matrix(quantities[f"{self.settings.object}.orientation"])
        parts = [self.object_position(quantities) - self.actor(quantities)[0], ahead, self.velocity(quantities)]
        rows = torch.stack([*parts, orientation[..., 0], orientation[..., 1]], dim=1)
        return (rotation.rotate_rows(rows, base_rotation(quantities)) if self._floating else rows).flatten(1)

    def object_position(self, quantities: Quantities) -> Tensor:
        """Return the object's origin [m], world, shape [worlds, 3]."""
        return quantities[f"{self.settings.object}.position"]

    def velocity(self, quantities: Quantities) -> Tensor:
        """Return the velocity of the object's centre of mass [m/s], world axes, shape [worlds, 3]."""
        return quantities[f"{self.settings.object}.linear_velocity"]

    def actor(self, quantities: Quantities) -> tuple[Tensor, Tensor]:
        """Return position [m] and velocity [m/s] of the actor on the object, world axes, each of shape [worlds, 3]."""
        if self._handed:
            return quantities["end_effector_position"], quantities["end_effector_velocity"]
        turned = rotation.rotate_rows(quantities["base_linear_velocity"][:, None], base_rotation(quantities).mT)
        return quantities["base_position"], turned[:, 0]

    def ahead(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return the vector from the object to its goal [m], world axes, shape [worlds, axes of the goal]."""
        return memory.command - self.object_position(quantities)[:, : len(self.axes)]

    def commanded(self, quantities: Quantities, memory: Memory) -> Mapping[str, Command]:
        """Return the distance of the object to its goal."""
        return {GOAL: GoalCommand(length(self.ahead(quantities, memory)))}

    def terminated(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return whether a floating base has fallen; an arm never fails."""
        if not self._floating:
            return torch.zeros_like(memory.frame, dtype=torch.bool)
        return quantities["projected_gravity"][:, 2] > -math.cos(TILT)

    def succeeded(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return whether the object is at its goal."""
        return length(self.ahead(quantities, memory)) < self.settings.near


class PushSettings(ObjectSettings, frozen=True):
    """Settings of `Push`.

    Attributes:
        behind: Distance behind the object, seen from the goal, from which to push it [m].
        speed: Largest speed that is rewarded [m/s].
    """

    behind: float = 0.05
    speed: float = 0.5

    positive = (*ObjectSettings.positive, "behind", "speed")


class Push(ObjectTask):
    r"""Push an object over the ground to a goal.

    $r = \frac{1}{2}(1 - \tanh(|p - p_b|/reach)) + \frac{1}{2} v_b + 2 v_g + 1 - \tanh(d/5 near) + 4 e^{-(d/near)^2}
    - 0.01 |a|^2$: nearness of the pusher (p) to the point behind the object (p_b), its speed towards that point
      ($v_b$), the
    object's speed towards the goal ($v_g$), both relative to `speed` and at most 1, and the object's distance to the
    goal (d).
    """

    settings_type = PushSettings
    settings: PushSettings  # pyright: ignore[reportIncompatibleVariableOverride]
    key, axes = "push", "xy"

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return rewards of nearness, both speeds and the goal, and the cost of effort."""
        settings, ahead = self.settings, self.ahead(quantities, memory)
        far = length(ahead)
        # At the goal there is no direction, and no need to be behind the object.
        towards = ahead / far.clamp_min(settings.near)[:, None]
        position, velocity = (part[:, :2] for part in self.actor(quantities))
        way = self.object_position(quantities)[:, :2] - settings.behind * towards - position
        away = length(way)
        approach = (velocity * way).sum(-1) / away.clamp_min(settings.reach)
        carried = (self.velocity(quantities)[:, :2] * towards).sum(-1)
        return {
            "behind": 0.5 * (1.0 - torch.tanh(away / settings.reach)),
            "approach": 0.5 * (approach / settings.speed).clamp_max(1.0),
            "progress": 2.0 * (carried / settings.speed).clamp_max(1.0),
            "near": 1.0 - torch.tanh(far / (5.0 * settings.near)),
            "there": 4.0 * torch.exp(-(far / settings.near).square()),
            "effort": -0.01 * action.square().sum(-1),
        }


class LiftSettings(ObjectSettings, frozen=True):
    """Settings of `Lift`.

    Attributes:
        rise: Height above the object's start from which it counts as lifted [m].
    """

    rise: float = 0.04

    positive = (*ObjectSettings.positive, "rise")


class Lift(ObjectTask):
    r"""Lift an object to a goal.

    $r = 1 - \tanh(|p - x|/reach) + l (4 + 8 (1 - \tanh(d/3 reach)) + 8 e^{-(d/near)^2}) - 0.01 |a|^2$: nearness of the
    end effector (p) to the object (x); how far it is lifted (l, 0 to 1 at `rise`), and its distance to the goal (d).
    """

    settings_type = LiftSettings
    settings: LiftSettings  # pyright: ignore[reportIncompatibleVariableOverride]
    key, axes = "lift", "xyz"

    def __init__(self, robot: str) -> None:
        """Prepare the task; errors: see `ObjectTask`."""
        super().__init__(robot)
        self._rest = self.declaration().reset_interval("q", f"{self.settings.object}.z")[0]

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return rewards of nearness, height and the goal, and the cost of effort."""
        settings, position = self.settings, self.object_position(quantities)
        far = length(self.ahead(quantities, memory))
        lifted = ((position[:, 2] - self._rest) / settings.rise).clamp(0.0, 1.0)
        return {
            "reach": 1.0 - torch.tanh(length(position - self.actor(quantities)[0]) / settings.reach),
            "lifted": 4.0 * lifted,
            "goal": 8.0 * lifted * (1.0 - torch.tanh(far / (3.0 * settings.reach))),
            "there": 8.0 * lifted * torch.exp(-(far / settings.near).square()),
            "effort": -0.01 * action.square().sum(-1),
        }


def length(vectors: Tensor) -> Tensor:
    """Return the lengths of vectors, shape [worlds]; their gradient at zero is zero."""
    return cast(Tensor, torch.linalg.vector_norm(vectors, dim=-1))
