# SPDX-License-Identifier: Apache-2.0
"""Hovering at a point: by any free body that rotors push (hover@ROBOT), such as a quadrotor.

A robot may declare settings, `tasks: {hover: {near: 0.05, frames: 500}}`, but need not.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.actuation import BodyWrench
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.quantities import Quantities, base_rotation
from neurodyn.geometry import rotation
from neurodyn.geometry.tensors import constant
from neurodyn.robots import Robot
from neurodyn.tasks.commands import GOAL, Command, GoalCommand
from neurodyn.tasks.declared import DeclaredSettings, DeclaredTask
from neurodyn.tasks.observations import POLICY, Memory, ObservationTerm, ObservationTerms, each
from neurodyn.tasks.task import uniform

_LEVEL = 0.2
"""Cosine of the tilt at which the robot has tipped over: 78 degrees."""
_ACTION = 0.25
"""Change of a command for an action of 1, as a share of its range."""


class HoverSettings(DeclaredSettings, frozen=True):
    """Settings of `Hover`.

    Attributes:
        frames: Length of an episode [frames].
        near: Distance from the goal at which it counts as reached [m].
        scale: Distance by which the reward for nearness has fallen by three quarters [m].
        height: Height of the goals' mean and of starts, world axes [m].
        spread: Largest offset of a goal from there along each axis [m].
        tilt: Largest tilt at a start [rad].
        speed: Largest velocity at a start along each axis [m/s].
        rate: Largest angular velocity at a start about each axis [rad/s].
        lost: Distance from the goal beyond which an episode ends [m].
    """

    frames: int = 400
    near: float = 0.05
    scale: float = 0.5
    height: float = 1.0
    spread: float = 0.5
    tilt: float = 0.3
    speed: float = 0.5
    rate: float = 1.0
    lost: float = 3.0

    positive = (*DeclaredSettings.positive, "near", "scale", "lost")


class Hover(DeclaredTask):
    r"""Bring a flying body to a goal and hold it there, level and without turning.

    $r = 1 - \tanh(d/scale) + e^{-(d/near)^2} - .02 |v|^2 - .01 |w|^2 - .1 |a - a'|^2$: its distance d from the goal,
    linear and angular velocity v and w of its base, and the last action a'.
    """

    key = "hover"
    optional = True
    settings_type: ClassVar[type[DeclaredSettings]] = HoverSettings
    settings: HoverSettings  # pyright: ignore[reportIncompatibleVariableOverride]
    needs = (
        "base_position", "base_rotation", "base_linear_velocity", "base_angular_velocity", "projected_gravity",
        "joint_velocity",
    )  # fmt: skip
    action_meaning = "command of a rotor less that of hovering"
    along_gradients = True

    def __init__(self, robot: str) -> None:
        """Prepare the task; errors: see `DeclaredTask`, and a robot that nothing but its rotors can hold."""
        super().__init__(robot)
        declared = self.declaration()
        self._trim = _trim(declared)
        self._range = tuple(zip(*declared.control_intervals(), strict=True))
        self.action_scale = tuple(_ACTION * (high - low) for low, high in zip(*self._range, strict=True))

    def start(self, worlds: int, generator: torch.Generator) -> State:
        """Draw poses and velocities about hovering, under random headings."""
        settings, state = self.settings, super().start(worlds, generator)

        def drawn(most: float) -> Tensor:
            columns = [uniform((-most, most), worlds, generator) for _ in range(3)]
            return torch.stack(columns, -1).to(state.q.dtype)

        lean, towards = drawn(settings.tilt), torch.zeros_like(state.q[:, :3])
        lean[:, 2] = 0.0
        towards[:, 2] = uniform((-torch.pi, torch.pi), worlds, generator)
        q, qd = state.q.clone(), state.qd.clone()
        q[:, :3] = constant((0.0, 0.0, settings.height), q)
        q[:, 3:7] = rotation.multiply(rotation.exponential(towards), rotation.exponential(lean))
        qd[:, :6] = torch.cat([drawn(settings.speed), drawn(settings.rate)], -1)
        return State(q, qd)

    def commands(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Draw goals [m], world axes, shape [worlds, 3]."""
        settings = self.settings
        intervals = [(-settings.spread, settings.spread)] * 2
        intervals.append((settings.height - settings.spread, settings.height + settings.spread))
        return torch.stack([uniform(one, worlds, generator) for one in intervals], -1)

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return commands of the rotors about those of hovering, within their ranges."""
        low, high = constant(self._range, action)
        value = (constant(self._trim, action) + constant(self.action_scale, action) * action).clamp(low, high)
        return Control(torque=value) if self.declaration().command == "torque" else Control(target=value)

    def distance(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return the distance of the base from its goal [m], shape [worlds]."""
        return torch.linalg.vector_norm(quantities["base_position"] - memory.command, dim=-1)

    def commanded(self, quantities: Quantities, memory: Memory) -> Mapping[str, Command]:
        """Return the distance to the goal."""
        return {GOAL: GoalCommand(self.distance(quantities, memory))}

    def observation_terms(self) -> ObservationTerms:
        """Return the way to the goal, velocities and gravity in base axes, and the last action.

        Positions and velocities are of motion capture, or of a camera on board.
        """
        terms = (
            ObservationTerm("way", self._way, each("way_{}", "xyz"), noise=0.01, sensor="camera"),
            ObservationTerm(
                "base_linear_velocity", columns=each("base_linear_velocity.{}", "xyz"), noise=0.05, sensor="camera"
            ),
            ObservationTerm("base_angular_velocity", columns=each("base_angular_velocity.{}", "xyz"), noise=0.1),
            ObservationTerm("projected_gravity", columns=each("projected_gravity.{}", "xyz"), noise=0.02),
            ObservationTerm("last_action", lambda now, memory: memory.action, each("last_action.{}", self.actions)),
        )
        return {POLICY: terms}

    def _way(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return the way to the goal [m], base axes, shape [worlds, 3]."""
        way = memory.command - quantities["base_position"]
        return rotation.rotate_rows(way[:, None], base_rotation(quantities))[:, 0]

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return rewards of nearness and of being there, and the costs of motion and of jumps."""
        d = self.distance(quantities, memory)
        return {
            "near": 1.0 - torch.tanh(d / self.settings.scale),
            "there": torch.exp(-(d / self.settings.near).square()),
            "speed": -0.02 * quantities["base_linear_velocity"].square().sum(-1),
            "turning": -0.01 * quantities["base_angular_velocity"].square().sum(-1),
            "jump": -0.1 * (action - memory.action).square().sum(-1),
        }

    def terminated(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return where the robot tipped over or flew away."""
        tipped = quantities["projected_gravity"][:, 2] > -_LEVEL
        return tipped | (self.distance(quantities, memory) > self.settings.lost)

    def succeeded(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return whether the goal is reached."""
        return self.distance(quantities, memory) < self.settings.near


def _trim(robot: Robot) -> tuple[float, ...]:
    """Return the commands under which a robot hovers, level, as small as possible.

    Raises:
        InputError: Its drives are not rotors on its base, or cannot carry it.
    """
    from neurodyn.sim.simulators import articulation, mechanism  # tasks load without a simulator

    begin = f"task 'hover' is not for robot {robot.name!r}"
    wrenches = [robot.drives[name].wrench if name in robot.drives else None for name in robot.actuated]
    if robot.fixed_base or not all(isinstance(one, BodyWrench) for one in wrenches) or not wrenches:
        raise InputError(f"{begin}; valid: a floating body pushed by rotors: drives with a `wrench` on its base")
    body = mechanism(articulation(robot), robot).links[0]
    columns = []
    for drive, wrench in zip(robot.drives.values(), wrenches, strict=True):
        assert isinstance(wrench, BodyWrench)
        per_command = drive.per_command if isinstance(drive.per_command, float) else 1.0
        force = np.array(wrench.force)
        moment = np.array(wrench.moment) + np.cross(np.subtract(wrench.point, body.com), force)
        columns.append(per_command * np.concatenate([force, moment]))
    matrix, weight = np.stack(columns, 1), np.array([0.0, 0.0, -robot.gravity[2] * body.mass, 0.0, 0.0, 0.0])
    commands = np.linalg.lstsq(matrix, weight, rcond=None)[0]
    low, high = np.array(robot.control_intervals()).T
    within = np.clip(commands, low, high)
    if np.abs(matrix @ within - weight)[2] > 0.05 * weight[2]:
        raise InputError(
            f"{begin}: its rotors within their ranges push by {(matrix @ within)[2]:.3g} N, it weighs {weight[2]:.3g} N"
        )
    return tuple(within.tolist())
