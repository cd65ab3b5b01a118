# SPDX-License-Identifier: Apache-2.0
"""Following commanded velocities: base class for legged robots, and the task of any robot that declares its legs.

The latter has the terms of mjlab's velocity task and, for steps, a gait: feet follow sines, of whose phase the policy
knows. Heights of feet have gradients where times in the air have none.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Self

import msgspec
import torch
from torch import Tensor

from neurodyn.core.description.drive import Drive
from neurodyn.core.description.scene import Vector3
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control
from neurodyn.dynamics.quantities import Quantities
from neurodyn.geometry.tensors import columns, constant
from neurodyn.robots import Robot, load, locate
from neurodyn.robots.sections import Legs
from neurodyn.tasks.commands import SPEED, TURNING, Command, VelocityCommand
from neurodyn.tasks.observations import POLICY, Memory, ObservationTerm, ObservationTerms, each
from neurodyn.tasks.task import Task
from neurodyn.tasks.views import SENSORS

COMMAND_FRAMES = (100, 120)
"""Range of the number of frames for which a command holds."""
PUSH_FRAMES = (48, 96)
"""Range of the number of frames between pushes."""
PUSH = 0.5
"""Largest change of the base's velocity along x and along y in a push [m/s], for a robot that walks at 1 m/s."""
UPRIGHT = -0.5
"""The z component of gravity in base axes above which the robot has fallen: 60 degrees."""

# Columns of the memory's command: target velocities, frames until the next command, and, with a gait, its phase [rad].
ASKED, _UNTIL, PHASE = slice(0, 3), slice(3, 4), slice(4, 5)


class VelocityTracking(Task):
    """Track velocities vx, vy and yaw rate wz in base axes.

    Attributes:
        feet: Bodies whose steps are counted.
        fastest: Largest commanded vx and vy [m/s] and wz [rad/s].
        standing: Share of commands to stand still.
        velocity_noise: Half the width of the noise of observed joint velocities in training [rad/s or m/s].
    """

    feet: tuple[str, ...]
    fastest: Vector3 = (1.0, 1.0, 1.0)
    standing: float = 0.02
    velocity_noise: float = 0.5
    foresight = 25
    unseen_command = ("frames until the next command",)
    _declaration: Robot

    def declaration(self) -> Robot:
        """Return the robot at the task's frame length."""
        return self._declaration

    def on_terrain(self) -> Self:
        """Return the task for training on uneven ground."""
        return self

    @abstractmethod
    def joint_nominal(self, like: Tensor) -> Tensor:
        """Return the positions of all joints in the nominal pose [rad or m], shape [nj]."""

    def begin(self, quantities: Quantities, generator: torch.Generator) -> Memory:
        """Return the memory of worlds at the start of an episode, with all feet on the ground."""
        memory = super().begin(quantities, generator)
        return replace(memory, air_time=memory.action.new_zeros(len(memory.action), len(self.feet)))

    @property
    def disturbances(self) -> tuple[str, ...]:
        """Pushes along x and y, scaled from `PUSH` for a robot that walks at 1 m/s."""
        most, seconds = PUSH * self.fastest[0], [frames * self._declaration.dt for frames in PUSH_FRAMES]
        return (f"push.velocity.[xy]={-most}:{most}", f"push.interval={seconds[0]}:{seconds[1]}")

    def commands(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Draw velocities and the number of frames for which they hold, shape [worlds, 4]."""
        asked = self._symmetric(worlds, generator)
        standing = torch.rand(worlds, 1, generator=generator, device=generator.device) < self.standing
        return torch.cat([asked.masked_fill(standing, 0.0), _whole(COMMAND_FRAMES, worlds, generator)], dim=-1)

    def advance(self, memory: Memory, quantities: Quantities, action: Tensor, generator: torch.Generator) -> Memory:
        """Return the memory after a frame: air times continue or restart, and expired commands are redrawn."""
        contact = quantities.contacts(self.feet) > 0.5
        until = memory.command[:, _UNTIL] - 1.0
        command = torch.cat([memory.command[:, ASKED], until, memory.command[:, PHASE]], dim=-1)
        return replace(
            super().advance(memory, quantities, action, generator),
            command=torch.where(until <= 0.0, self.commands(len(action), generator).to(action.dtype), command),
            air_time=(memory.air_time + self._declaration.dt).masked_fill(contact, 0.0),
        )

    def commanded(self, quantities: Quantities, memory: Memory) -> Mapping[str, Command]:
        """Return the commanded horizontal velocity and yaw rate beside those of the base."""
        asked, velocity = memory.command[:, ASKED], quantities["base_linear_velocity"]
        return {
            SPEED: VelocityCommand.of(asked[:, :2], velocity[:, :2]),
            TURNING: VelocityCommand.of(asked[:, 2:], quantities["base_angular_velocity"][:, 2:]),
        }

    def hindsight(self, ahead: Quantities) -> Tensor:
        """Return the mean velocities of the frames that followed, shape [worlds, 4]."""
        velocity, spin = ahead["base_linear_velocity"], ahead["base_angular_velocity"]
        moved = torch.cat([velocity[:, :2], spin[:, 2:]], dim=-1).unflatten(0, (-1, self.foresight)).mean(1)
        return torch.cat([moved, constant((COMMAND_FRAMES[0],), moved).expand(len(moved), 1)], dim=-1)

    def action_of(self, control: Tensor) -> Tensor:
        """Return the action whose targets are `control`, shape [worlds, actions]."""
        return (control - self.nominal(control)) / constant(self.action_scale, control)

    def observation_terms(self) -> ObservationTerms:
        """Return the robot's own measurements, its command, and its last action."""
        spec = self._declaration.spec
        joints, rates = spec.q_names[spec.joint_q], spec.qd_names[spec.joint_qd]

        def term(
            name: str, parts: Sequence[str], noise: float = 0.0,
            value: Callable[[Quantities, Memory], Tensor] | None = None,
        ) -> ObservationTerm:  # fmt: skip
            return ObservationTerm(name, value or name, each(f"{name}.{{}}", parts), noise)

        terms = (
            term("base_linear_velocity", "xyz", 0.1),
            term("base_angular_velocity", "xyz", 0.2),
            term("projected_gravity", "xyz", 0.05),
            term("command", ("vx", "vy", "wz"), value=lambda now, memory: memory.command[:, ASKED]),
            term("joint_position", joints, 0.01,
                 lambda now, memory: now["joint_position"] - self.joint_nominal(memory.action)),
            term("joint_velocity", rates, self.velocity_noise),
            term("last_action", self.actions, value=lambda now, memory: memory.action),
        )  # fmt: skip
        return {POLICY: terms}

    def _weigh(self, terms: dict[str, tuple[float, Tensor]], like: Tensor) -> dict[str, Tensor]:
        weights = constant(tuple((self._declaration.dt * weight,) for weight, _ in terms.values()), like)
        scaled = weights * torch.stack([value for _, value in terms.values()])
        return dict(zip(terms, scaled.unbind(), strict=True))

    def _symmetric(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Draw velocities up to the largest commands, shape [worlds, 3]."""
        drawn = torch.rand(worlds, 3, generator=generator, device=generator.device)
        lowest = tuple(-most for most in self.fastest)
        return torch.lerp(constant(lowest, drawn), constant(self.fastest, drawn), drawn)  # one kernel


def _whole(frames: tuple[int, int], worlds: int, generator: torch.Generator) -> Tensor:
    """Draw integer numbers of frames, both ends included, shape [worlds, 1]."""
    lower, upper = frames
    dtype = torch.get_default_dtype()
    return torch.randint(lower, upper + 1, (worlds, 1), generator=generator, device=generator.device, dtype=dtype)


_FRAME = 0.02
"""Time between two actions [s], or the robot's frame if that is longer."""
_FROUDE = 0.6
"""Largest commanded speed over sqrt(g h), with the base height h; at most 1 m/s."""
_LOWEST = 0.6
"""Base height below which the robot has fallen, relative to its nominal height."""
_STRIDES = 0.35
"""Frequency of the gait over sqrt(g / h), with the base height h: 2 Hz for a Go1, 1.3 Hz for a G1."""
_ACTION = 0.25
"""Force of a servo for an action of 1 at rest, as a share of its force limit (mjlab)."""
_LEAST = 0.3
"""Least change of a servo's command for an action of 1 [rad]: otherwise stiff servos would not be explored."""
_LIFT, _LIFT_ON_TERRAIN, _NEAR = 0.15, 0.25, 0.5
"""Height to which the gait lifts feet on planes and on terrains, relative to the base's height, at most 0.1 m; and
deviation from it, relative to it, at which its reward has fallen to 1/e."""
_SPREAD_STANDING, _SPREAD_SWING, _SPREAD_OTHER = 0.08, 0.4, 0.15
"""Deviations from the nominal pose at which the reward of a joint is halved: standing; walking, for joints that swing
legs and for others [rad or m]."""


class Velocity(VelocityTracking):
    """Track velocities on the robot's declared legs (`legs`), by targets of its servos.

    Feet take turns: diagonal ones trot, two alternate. A command therefore has a fifth number, the phase of the gait
    [rad], which grows by `stride` in every frame.

    Robots that take torques get a servo in each driven joint, with the gains that hold the nominal pose.
    """

    name = "velocity"
    needs = (
        "base_height", "base_linear_velocity", "base_angular_velocity", "projected_gravity", "joint_position",
        "joint_velocity", "contact_height", "contact_speed",
    )  # fmt: skip
    action_meaning = "command of each drive less that of the nominal pose"
    frames = 500
    limit = 4.0
    standing = 0.1
    observes = SENSORS
    along_gradients = True
    mirrored: Mapping[str, tuple[str, float]] = MappingProxyType(
        {name: (name, -1.0) for name in ("clock.sin", "clock.cos")}  # the other legs' turn
    )

    def __init__(self, robot: str) -> None:
        """Load the robot, by name or path.

        Raises:
            InputError: It cannot walk: its base is bolted, or it declares no legs or no drives.
        """
        declared = load(robot)
        self.legs = legs = _legs_of(declared)
        self.robot = locate(robot)
        self.name = f"{type(self).name}@{self.robot}"
        self._gains = declared.hold_gains()
        self._declaration = _at_frame(declared if declared.holds else _with_servos(declared))
        self.feet, self.contacts = legs.feet, tuple(declared.contacts)
        self.presets = ("velocity-biped",) if len(legs.feet) == 2 else ()
        self._others = tuple(name for name in declared.contacts if name not in legs.feet)
        spec, rest = self._declaration.spec, legs.height
        self.actions = spec.controls
        self.action_scale = tuple(_reach(self._declaration, name) for name in spec.controls)
        joints = spec.q_names[spec.joint_q]
        fast = min(1.0, _FROUDE * math.sqrt(9.81 * rest))
        self.fastest = (fast, 0.5 * fast, 1.0)
        self._lift = min(0.1, _LIFT * rest)
        self._pose = tuple(declared.nominal.get(name, 0.0) for name in joints)
        posed = {joint.name: joint for joint in declared.joints if joint.scalar}
        swing = {name: _SPREAD_SWING if name in legs.swing else _SPREAD_OTHER for name in posed}
        self._spread = tuple(swing[name] ** -2 if name in posed else 0.0 for name in joints)
        self._spread_standing = tuple(_SPREAD_STANDING**-2 if name in posed else 0.0 for name in joints)
        self.stride = 2.0 * math.pi * _STRIDES * math.sqrt(9.81 / rest) * self._declaration.dt
        self.unseen_command = (
            *super().unseen_command,
            f"phase of the gait [rad], {self.stride:.6g} more in every frame",
        )
        self._limits = tuple(_soft_limits(posed[name].lower, posed[name].upper) if name in posed else _ANY
                             for name in joints)  # fmt: skip

    def on_terrain(self) -> Self:
        """Return the task with feet that are lifted higher."""
        other = copy(self)
        other._lift = min(0.1, _LIFT_ON_TERRAIN * self.legs.height)
        return other

    def joint_nominal(self, like: Tensor) -> Tensor:
        """Return the nominal pose, shape [nj]."""
        return constant(self._pose, like)

    def commands(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Draw velocities, the number of frames for which they hold, and the phase of the gait, shape [worlds, 5]."""
        drawn = super().commands(worlds, generator)
        phase = torch.rand(worlds, 1, generator=generator, device=generator.device)
        return torch.cat([drawn, 2.0 * math.pi * phase], dim=-1)

    def advance(self, memory: Memory, quantities: Quantities, action: Tensor, generator: torch.Generator) -> Memory:
        """Return the memory after a frame: the gait goes on, whatever is commanded."""
        after = super().advance(memory, quantities, action, generator)
        phase = torch.remainder(memory.command[:, PHASE] + self.stride, 2.0 * math.pi)
        return replace(after, command=torch.cat([after.command[:, :4], phase], dim=-1))

    def hindsight(self, ahead: Quantities) -> Tensor:
        """Return the mean velocities of the frames that followed, with a gait that begins, shape [worlds, 5]."""
        moved = super().hindsight(ahead)
        return torch.cat([moved, torch.zeros_like(moved[:, :1])], dim=-1)

    def observation_terms(self) -> ObservationTerms:
        """Return the terms of every walking robot, and the phase of the gait."""
        terms = super().observation_terms()
        clock = ObservationTerm("clock", self._clock, ("clock.sin", "clock.cos"), sensor="clock")
        return {**terms, POLICY: (*terms[POLICY], clock)}

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return commands around those of the nominal pose."""
        target = torch.addcmul(self.nominal(action), action, constant(self.action_scale, action))
        if self._gains is None:
            return Control(target=target)
        kp, kd = self._gains  # for models of the robot that take torques; servos have their own
        return Control(target=target, kp=constant((kp,), action), kd=constant((kd,), action))

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return the terms, each times dt."""
        asked = memory.command[:, ASKED]
        velocity, spin = quantities["base_linear_velocity"], quantities["base_angular_velocity"]
        touching = quantities.contacts(self.feet) > 0.5
        moving = asked.norm(dim=-1) > 0.05
        terms = {
            "track_velocity": (3.0, torch.exp(-4.0 * _off(asked[:, :2], velocity))),
            "track_turning": (2.0, torch.exp(-2.0 * (asked[:, 2] - spin[:, 2]).square())),
            "roll_and_pitch": (-0.05, spin[:, :2].square().sum(-1)),
            "upright": (1.0, torch.exp(-5.0 * quantities["projected_gravity"][:, :2].square().sum(-1))),
            "pose": (0.5, self._posture(quantities["joint_position"], moving)),
            "limits": (-1.0, self._beyond(quantities["joint_position"])),
            "action_change": (-0.01, (action - memory.action).square().sum(-1)),
            "slip": (-0.2, (self._of_feet(quantities, "contact_speed") * touching).sum(-1)),
            "gait": (1.0, self._gait(quantities, memory, moving)),
        }
        return self._weigh(terms, action)

    def terminated(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return whether the robot has fallen: far from upright, too low, or with its trunk on the ground."""
        fallen = quantities["projected_gravity"][:, 2] > UPRIGHT
        fallen = fallen | (quantities["base_height"][:, 0] < _LOWEST * self.legs.height)
        if self._others:
            fallen = fallen | (quantities.contacts(self._others) > 0.5).any(-1)
        return fallen

    def _gait(self, quantities: Quantities, memory: Memory, moving: Tensor) -> Tensor:
        """Return the nearness of the feet's heights to those of the gait, between 0 and 1, shape [worlds]."""
        phase = memory.command[:, PHASE] + self.stride + constant(self._beat, memory.command)
        wanted = self._lift * phase.sin().clamp_min(0.0) * moving[:, None]
        off = (self._of_feet(quantities, "contact_height") - wanted) / (_NEAR * self._lift)
        return torch.exp(-off.square().mean(-1))

    @cached_property
    def _beat(self) -> tuple[float, ...]:
        """Phases of the feet [rad]: in rows from front to hind, right and left alternate, and so do the rows.

        Two feet alternate, four trot, six walk on tripods.
        """
        from neurodyn.sim.declaration.pose import foot_places  # tasks load without a simulator

        places = foot_places(self._declaration)
        by_row, beats = (-places[:, 0]).argsort(kind="stable"), [0.0] * len(places)
        for start in range(0, len(places), 2):
            for side, foot in enumerate(sorted(by_row[start : start + 2], key=lambda foot: places[foot, 1])):
                beats[foot] = math.pi * ((start // 2 + side) % 2)
        return tuple(beats)

    def _clock(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return sine and cosine of the gait's phase, 0 while the robot stands, shape [worlds, 2]."""
        phase = memory.command[:, PHASE]
        moving = memory.command[:, ASKED].norm(dim=-1, keepdim=True) > 0.05
        return torch.cat([phase.sin(), phase.cos()], -1) * moving

    def _posture(self, position: Tensor, moving: Tensor) -> Tensor:
        """Return the nearness of the joints to the nominal pose, between 0 and 1, shape [worlds]."""
        away = (position - self.joint_nominal(position)).square()
        spreads = constant((self._spread_standing, self._spread), position)
        # A mean of heavy-tailed kernels: one joint that is far away, such as a wrist, hides none of the others.
        return (1.0 / (1.0 + torch.where(moving[:, None], away * spreads[1], away * spreads[0]))).mean(-1)

    def _beyond(self, position: Tensor) -> Tensor:
        """Return how far joints are in the outer twentieths of their ranges, summed, shape [worlds]."""
        low, high = constant(tuple(zip(*self._limits, strict=True)), position)
        return ((low - position).clamp_min(0.0) + (position - high).clamp_min(0.0)).sum(-1)

    def _of_feet(self, quantities: Quantities, name: str) -> Tensor:
        return columns(quantities[name], tuple(quantities.contact_names.index(foot) for foot in self.feet))


_ANY = (-math.inf, math.inf)


def _off(asked: Tensor, velocity: Tensor) -> Tensor:
    """Return the squared error of the horizontal velocity plus the squared vertical velocity, shape [worlds]."""
    return (asked - velocity[:, :2]).square().sum(-1) + velocity[:, 2].square()


def _soft_limits(lower: float | None, upper: float | None) -> tuple[float, float]:
    if lower is None or upper is None:
        return _ANY
    slack = 0.05 * (upper - lower)
    return lower + slack, upper - slack


def _legs_of(robot: Robot) -> Legs:
    """Return the legs of a robot that can walk.

    Raises:
        InputError: Its base is bolted, or it declares no legs or no drives.
    """
    begin = f"task 'velocity' is not for robot {robot.name!r}"
    if robot.fixed_base:
        raise InputError(f"{begin}: its base is bolted to the world; valid: a robot with a floating base and feet")
    if robot.legs is None:
        raise InputError(
            f"{begin}: it declares no legs; valid: `legs: {{feet: [...], height: ...}}` with feet among `contacts`, as "
            "`neurodyn init` finds them"
        )
    if not robot.actuated:
        raise InputError(
            f"{begin}: nothing drives it; add `actuated: {{JOINT: greatest torque}}` and `gains`, or motors to its "
            "asset, and `neurodyn init` it again"
        )
    return robot.legs


def _with_servos(robot: Robot) -> Robot:
    """Return a robot of torques with servos in its driven joints, which act in every step of its simulator.

    Raises:
        InputError: The robot declares no gains.
    """
    held = robot.hold_gains()
    if held is None:
        raise InputError(
            f"task 'velocity' is not for robot {robot.name!r}: its joints take torques and it declares no gains; "
            "valid: `gains: {kp: [...], kd: [...], spread: ..., hold: [KP, KD]}`, or `drives` of kind pd"
        )
    servos = {
        name: Drive(kind="servo", kp=kp, kd=kd, force_range=(-effort, effort))
        for (name, effort), kp, kd in zip(robot.actuated.items(), *held, strict=True)
    }
    return msgspec.structs.replace(robot, drives=servos, gains=None)


def _at_frame(robot: Robot) -> Robot:
    """Return the robot at a frame of about 20 ms, a multiple of its own, with steps of the same length."""
    return robot.with_longer_frames(max(1, round(_FRAME / robot.dt)))


def _reach(robot: Robot, name: str) -> float:
    """Return the change of a command for an action of 1.

    For a servo, the deflection by a quarter of its force limit: scale = effort / (4 kp), as in mjlab, at least 0.3 rad
    and at most half of its range. For another actuator, a quarter of its range.
    """
    drive = robot.drives.get(name, Drive())
    low, high = robot.sampling_interval("control", name)
    if not drive.kp:
        return _ACTION * (high - low)
    per_command = drive.per_command if isinstance(drive.per_command, float) else drive.kp
    per_position = drive.kp / abs(per_command)  # commands per rad
    return min(max(_ACTION * robot.actuated[name] / abs(per_command), _LEAST * per_position), 0.5 * (high - low))
