# SPDX-License-Identifier: Apache-2.0
"""Drives as plain data, from the command of a joint to its torque: laws, networks, and controllers of logs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from neurodyn.core.activations import require_activation
from neurodyn.core.config import Config
from neurodyn.core.errors import InputError, choices, require
from neurodyn.core.registry import Registry

Command = Literal["torque", "target", "velocity"]
"""What a command is: a torque [N m or N], a position that a controller in the drive goes to [rad or m], or a velocity
that the joint has whatever acts on it [rad/s or m/s]."""

UNITS = {
    "delay": "s",
    "gain": "1",
    "kp": "N m/rad",
    "kd": "N m s/rad",
    "effort_limit": "N m",
    "saturation_effort": "N m",
    "velocity_limit": "rad/s",
    "lag": "s",
    "coulomb": "N m",
    "viscous": "N m s/rad",
    "stribeck": "N m",
    "stribeck_speed": "rad/s",
    "stiffness": "N m/rad",
    "elastic_damping": "N m s/rad",
    "rotor_inertia": "kg m^2",
    "backlash": "rad",
    "bias": "rad",
}
"""The numbers of a drive that have names as quantities, and their units at a joint that turns."""

_SIGNED = ("bias",)
_ABOVE_ZERO = ("effort_limit", "saturation_effort", "velocity_limit", "stribeck_speed", "stiffness", "rotor_inertia")


class Drive(Config, frozen=True):
    """The drive of one joint; all numbers are those at the joint, behind the gear.

    Units are those of a joint that turns; of one that slides, N for N m and m for rad.

    Attributes:
        kind: What the command is turned into torque by: "torque" (it is one, times `gain`), "pd"
            (gain (kp (command - q) - kd qd)), "velocity" (the joint has the commanded one whatever acts on it, and no
            other number: what is on a prescribed path), or another one of `DRIVE_LAWS`.
        delay: From the command to its effect [s]; k frames are k dt, fractions are allowed.
        longest_delay: Greatest delay that the model has memory for, which bounds what is identified [s]; None for twice
            `delay`.
        gain: Factor on the torque of the law.
        kp: Stiffness of a PD law [N m/rad].
        kd: Damping of a PD law [N m s/rad].
        effort_limit: Greatest torque of the motor [N m]; None for no limit.
        saturation_effort: Torque of the motor at standstill, from which the torque-speed line falls [N m]; None for
            no such line.
        velocity_limit: Speed at which that line reaches zero [rad/s].
        lag: Time constant with which the torque follows, of first order [s]; None for none.
        coulomb: Coulomb friction of the motor and gear [N m]. Of a drive without spring it adds to JOINT.friction.
        viscous: Viscous friction of the motor and gear [N m s/rad]. Without spring it adds to JOINT.damping.
        stribeck: Static friction beyond Coulomb's [N m].
        stribeck_speed: Speed at which that has fallen to 1/e [rad/s].
        stiffness: Stiffness of the spring between motor and joint [N m/rad]; None for none (a rigid drive).
        elastic_damping: Damping of that spring [N m s/rad].
        rotor_inertia: Inertia of the motor before the spring [kg m^2]; without spring it is JOINT.armature.
        backlash: Width of the dead zone before the spring [rad].
        feedback: Which side of the spring the law, the torque-speed line and the encoder of the law see.
        bias: What the encoder reads more than the joint's position [rad]. States of a model with a bias are readings.
    """

    kind: str = "torque"
    delay: float = 0.0
    longest_delay: float | None = None
    gain: float = 1.0
    kp: float | None = None
    kd: float | None = None
    effort_limit: float | None = None
    saturation_effort: float | None = None
    velocity_limit: float | None = None
    lag: float | None = None
    coulomb: float = 0.0
    viscous: float = 0.0
    stribeck: float = 0.0
    stribeck_speed: float = 0.1
    stiffness: float | None = None
    elastic_damping: float = 0.0
    rotor_inertia: float | None = None
    backlash: float = 0.0
    feedback: Literal["joint", "motor"] = "joint"
    bias: float = 0.0

    def __post_init__(self) -> None:
        for name in ("longest_delay", *UNITS):
            value = getattr(self, name)
            if value is None:
                continue
            if name in _SIGNED:
                require(math.isfinite(value), name, value, "a finite number")
            elif name in _ABOVE_ZERO:
                require(0 < value < math.inf, name, value, "a finite number above 0")
            else:
                require(0 <= value < math.inf, name, value, "a finite number of at least 0")
        require(self.delay <= self.reach, "longest_delay", self.longest_delay, f"at least the delay, {self.delay:g} s")
        line = (self.saturation_effort is None, self.velocity_limit is None)
        require(line[0] == line[1], "a torque-speed line", "half given", "saturation_effort and velocity_limit")
        spring = (self.stiffness is None, self.rotor_inertia is None)
        require(spring[0] == spring[1], "a spring", "half given", "stiffness and rotor_inertia (of the motor) together")
        for name in ("elastic_damping", "backlash"):
            given = self.stiffness is None and getattr(self, name) > 0
            require(not given, name, getattr(self, name), "0 without a spring; give stiffness and rotor_inertia")
        require(self.feedback == "joint" or not spring[0], "feedback", self.feedback, "joint, where there is no spring")

    @property
    def reach(self) -> float:
        """Longest delay that there is memory for [s]."""
        return 2.0 * self.delay if self.longest_delay is None else self.longest_delay

    @property
    def leads(self) -> bool:
        """Whether the joint moves as commanded, so that there is no torque: it is on a prescribed path."""
        return self.kind in DRIVE_LAWS and DRIVE_LAWS[self.kind].command == "velocity"

    @property
    def elastic(self) -> bool:
        """Whether a spring lies between motor and joint."""
        return self.stiffness is not None

    def quantities(self) -> dict[str, float]:
        """Return the numbers that this drive has, by name without "actuator.JOINT."; those of absent stages are not."""
        if self.leads:
            return {}
        absent = set()
        if not self.reach:
            absent.add("delay")
        if not self.elastic:
            absent |= {"elastic_damping", "backlash"}
        given = {name: getattr(self, name) for name in UNITS if name not in absent}
        return {name: float(value) for name, value in given.items() if value is not None}


def bounds(name: str, drive: Drive) -> tuple[float | None, float | None]:
    """Return the least and the greatest value that a number of a drive can have; None for no bound."""
    if name in _SIGNED:
        return None, None
    return (1e-9 if name in _ABOVE_ZERO else 0.0), (drive.reach if name == "delay" else None)


_PLURALS = {"torque": "torques", "target": "targets", "velocity": "velocities"}

Number = Callable[[str], Any]
"""From the name of a number of the drive ("kp") to its value."""


@dataclass(frozen=True)
class DriveLaw:
    """What turns a command into torque.

    Attributes:
        command: What the command is.
        torque: From the drive's numbers, the command (of a target: the position error, by the shorter way where the
            joint turns without end), position and velocity to the torque, on floats or traced values.
        needs: Numbers that a drive of this kind must have.
    """

    command: Command
    torque: Callable[[Number, Any, Any, Any], Any]
    needs: tuple[str, ...] = ()


def _direct(number: Number, command: Any, q: Any, qd: Any) -> Any:
    return command


def _pd(number: Number, error: Any, q: Any, qd: Any) -> Any:
    return number("kp") * error - number("kd") * qd


def _none(number: Number, command: Any, q: Any, qd: Any) -> Any:
    return 0.0


DRIVE_LAWS: Registry[DriveLaw] = Registry("kind of drive")
"""What turns a command into torque, by the `kind` of a drive."""
DRIVE_LAWS.add("torque", DriveLaw("torque", _direct))
DRIVE_LAWS.add("pd", DriveLaw("target", _pd, ("kp", "kd")))
DRIVE_LAWS.add("velocity", DriveLaw("velocity", _none))


def require_simulated(drives: Mapping[str, Drive], robot: str) -> None:
    """Refuse drives that no simulator of forces knows.

    Raises:
        InputError: A joint is on a prescribed path.
    """
    leading = [name for name, drive in drives.items() if drive.leads]
    if leading:
        raise InputError(
            f"robot {robot!r}: {leading[0]!r} has a commanded velocity, which only the hybrid engine knows; valid: "
            "hybrid dynamics, or drives that take torques or targets"
        )


def require_drives(drives: Mapping[str, Drive], controls: tuple[str, ...], where: str) -> Command:
    """Refuse drives that cannot be, and return what commands are.

    Args:
        drives: Drives by joint.
        controls: The driven joints; those without a drive take torques.
        where: Where the drives are declared, for messages.

    Raises:
        InputError: A joint is not there or not driven, a kind is unknown, a number is missing, or commands of some
            joints are torques and those of others targets.
    """
    for joint, drive in drives.items():
        if joint not in controls:
            raise InputError(f"{where}: there is no driven joint {joint!r}; valid: {choices(controls)}")
        DRIVE_LAWS.require(drive.kind)
        if drive.leads and drive != Drive(kind=drive.kind):
            raise InputError(
                f"{where}: drive of {joint!r} is of kind {drive.kind!r}, which the joint follows exactly; valid: no "
                "other numbers"
            )
        for name in DRIVE_LAWS[drive.kind].needs:
            if getattr(drive, name) is None:
                raise InputError(f"{where}: drive of {joint!r} is of kind {drive.kind!r} and has no {name}; give one")
    kinds: dict[Command, str] = {}
    for joint in controls:
        kinds[DRIVE_LAWS[drives[joint].kind].command if joint in drives else "torque"] = joint
    if len(kinds) > 1:
        each = " and ".join(f"{_PLURALS[kind]} at {joint!r}" for kind, joint in sorted(kinds.items()))
        raise InputError(f"{where}: commands are {each}; valid: drives of one sort of command for all driven joints")
    return next(iter(kinds)) if kinds else "torque"


Signal = Literal["position_error", "velocity", "position", "effort_command", "target_position"]
"""What a network sees: command - q, qd, q, the command where it is a torque, the command where it is a target."""


class DriveNetwork(Config, frozen=True):
    """What the files of an actuator network say.

    Attributes:
        network: "mlp" or "gru".
        joints: Joints whose drives it stands for, each by itself.
        signals: What it sees, in order.
        scales: Factor on each signal.
        effort_scale: Factor on its output [N m or N].
        history: Ages at which an "mlp" sees signals, newest first [s]; (0,) for a "gru".
        period: Time between two evaluations in training [s]; ages are multiples of it.
        hidden: Widths of the hidden layers; of a "gru" its one width.
        activation: Activation of the hidden layers of an "mlp".
        command: What the command is, "torque" or "target".
        error: Root mean square of its torque error on held-out logs [N m or N].
    """

    network: Literal["mlp", "gru"]
    joints: tuple[str, ...]
    signals: tuple[Signal, ...]
    scales: tuple[float, ...]
    effort_scale: float
    history: tuple[float, ...]
    period: float
    hidden: tuple[int, ...] = (32, 32, 32)
    activation: str = "softsign"
    command: Literal["torque", "target"] = "target"
    error: float | None = None

    def __post_init__(self) -> None:
        require_activation(self.activation, "value")
        require(len(self.signals) > 0, "signals", list(self.signals), "at least one")
        right = len(self.scales) == len(self.signals) and all(math.isfinite(s) and s != 0 for s in self.scales)
        require(right, "scales", list(self.scales), "a finite number other than 0 for each signal")
        require(0 < self.period < math.inf, "period", self.period, "a finite number above 0 [s]")
        ages = list(self.history)
        rising = bool(ages) and ages[0] == 0 and ages == sorted(set(ages))
        on_grid = all(abs(age / self.period - round(age / self.period)) < 1e-6 for age in ages)
        require(rising and on_grid, "history", ages, "0 and then rising multiples of `period` [s]")
        if self.network == "gru":
            require(len(self.hidden) == 1 and len(ages) == 1, "hidden and history", ages, "one width and [0] for a gru")

    @property
    def steps(self) -> tuple[int, ...]:
        """The ages in periods."""
        return tuple(round(age / self.period) for age in self.history)

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return len(self.signals) * len(self.history)


GAINS: Registry[tuple[str, ...]] = Registry(
    "controller",
    pd=("kp", "kd"),
    velocity=("kd",),
)
"""Gains of each kind of controller; what they do is in `dynamics.controllers`."""

Gain = float | dict[str, float]


class Controller(Config, frozen=True):
    """A controller of driven joints, whose targets are the controls of a log.

    Attributes:
        kind: A name of `GAINS`: "pd", or "velocity", whose targets are velocities.
        kp: Stiffness, of all driven joints or by joint [N m/rad or N/m].
        kd: Damping [N m s/rad or N s/m].
        limit: Greatest torque or force [N m or N]; none where it is left out.
        updates: How often it runs in a frame; the engine's substeps must be a multiple of it.
    """

    kind: str = "pd"
    kp: Gain = 0.0
    kd: Gain = 0.0
    limit: Gain = math.inf
    updates: int = 1

    def __post_init__(self) -> None:
        GAINS.require(self.kind)
        require(self.updates >= 1, "updates", self.updates, "at least 1")
        for name in ("kp", "kd", "limit"):
            given = getattr(self, name)
            for value in given.values() if isinstance(given, dict) else (given,):
                if not value >= 0 or (name != "limit" and value == math.inf):
                    raise ValueError(f"{name} is {value}; valid: finite numbers of at least 0")
            if name != "limit" and name not in GAINS[self.kind] and given != 0.0:
                raise ValueError(f"{name} is given, but {self.kind!r} has {' and '.join(GAINS[self.kind])} alone")

    def gains(self, joints: Sequence[str]) -> dict[str, float]:
        """Return gain by quantity, "controller.JOINT.kp", of all driven joints.

        Raises:
            InputError: A gain lacks a driven joint, or names one that is none.
        """
        values: dict[str, float] = {}
        for name in GAINS[self.kind]:
            values |= {f"controller.{joint}.{name}": x for joint, x in self.by_joint(name, joints).items()}
        return {f"controller.{j}.{g}": values[f"controller.{j}.{g}"] for j in joints for g in GAINS[self.kind]}

    def by_joint(self, name: str, joints: Sequence[str]) -> dict[str, float]:
        """Return one of its numbers by joint.

        Raises:
            InputError: As of `gains`.
        """
        given = getattr(self, name)
        if not isinstance(given, dict):
            return dict.fromkeys(joints, float(given))
        for joint in given:
            if joint not in joints:
                raise InputError(f"controller: {name} names {joint!r}, which is not driven; valid: {choices(joints)}")
        if missing := [joint for joint in joints if joint not in given]:
            raise InputError(f"controller: {name} has no {missing[0]!r}; valid: one for each of {', '.join(joints)}")
        return {joint: float(given[joint]) for joint in joints}
