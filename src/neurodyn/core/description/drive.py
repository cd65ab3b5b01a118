# SPDX-License-Identifier: Apache-2.0
"""Drives as plain data, from joint command to torque: laws, networks, and the drives behind logs of targets.

A motor of a declaration, an actuator of an asset, the controller behind the targets of a log and the gains that hold a
pose are all a `Drive`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.config import Config, expand_keys
from neurodyn.core.description.actuation import (
    PLACES,
    BodyWrench,
    DriveState,
    FrameOffset,
    Muscle,
    Pivot,
    SliderCrank,
    TurningJoint,
    links_of,
    require_factors,
    require_range,
)
from neurodyn.core.description.record import require_fields
from neurodyn.core.errors import InputError, among, require
from neurodyn.core.registry import Registry

Command = Literal["torque", "target", "velocity", "command"]
"""Kind of command: a torque [N m or N], the position target of the drive's controller [rad or m], a velocity that the
joint follows exactly, whatever the load [rad/s or m/s], or the input of the robot's own actuators, each in its own
unit.
"""

ACTUATOR = "actuator."
"""Prefix of the names of the quantities of drives, such as "actuator.knee.kp"."""

_SIGNED = ("bias", "per_command", "offset", "per_position", "per_velocity")
_ABOVE_ZERO = (
    "effort_limit", "saturation_effort", "velocity_limit", "stribeck_speed", "stribeck_exponent", "stiffness",
    "rotor_inertia",
)  # fmt: skip


class Drive(Config, frozen=True):
    """Drive of one joint, or one of the robot's actuators. All values are on the joint side of the gear.

    Units are for a revolute joint; for a prismatic joint read N for N m and m for rad.
    """

    kind: str = "torque"
    """Law from command to torque: "torque" (the command times `gain`), "pd" (gain (kp (command - q) - kd qd)),
    "velocity" (the joint follows the commanded velocity exactly: prescribed motion, without parameters),
    "velocity_servo" (gain kd (command - qd)), "dc_motor" (gain command - kd qd: a motor at a voltage, in units of its
    stall torque, with its back-EMF), "dc_servo" (gain kp (command - q), at most the stall torque `saturation_effort` of
    the full duty, - kd qd), "servo" (as "pd", but with the damping implicit in a step, and for any `transmission`),
    "affine" (gain ((per_command + per_position q + per_velocity qd) command + offset - kp q - kd qd),
    also implicit), "muscle" (`muscle`), "pivot" (the command, 0 or 1, says whether `pivot` holds), or another one of
    `DRIVE_KINDS`."""
    delay: float = 0.0
    """Time from the command to its effect [s]; fractions of a frame are allowed."""
    longest_delay: float | None = None
    """Largest delay that the model can hold in memory, an upper bound in identification [s]; None for twice `delay`."""
    gain: float = 1.0
    """Factor on the law's torque."""
    kp: float | None = None
    """Stiffness of a PD law [N m/rad]; may be negative for an affine law."""
    kd: float | None = None
    """Damping of a PD law [N m s/rad]; may be negative for an affine law."""
    per_command: float | UnsetType = UNSET
    """Torque per unit of command of an affine law [N m]."""
    offset: float | UnsetType = UNSET
    """Torque of an affine law at zero command, position and velocity [N m]."""
    per_position: float | UnsetType = UNSET
    """Increase of `per_command` per unit of position [N m/rad]."""
    per_velocity: float | UnsetType = UNSET
    """Increase of `per_command` per unit of velocity [N m s/rad]."""
    updates: int | UnsetType = UNSET
    """Evaluations of the law per frame, a divisor of the engine's substeps; the torque is held in between. Unset for
    every step."""
    effort_limit: float | None = None
    """Largest torque of the motor [N m]; None for no limit."""
    saturation_effort: float | None = None
    """Stall torque, the start of the torque-speed line [N m]; None for no such line. Of a "dc_servo" at the full duty,
    with `kd` as the slope of the line."""
    velocity_limit: float | None = None
    """No-load speed, where that line reaches zero [rad/s]."""
    lag: float | None = None
    """Time constant of a first-order lag [s]: of the torque, or of the command of a "servo" or "affine" drive, whose
    own stiffness and damping stay at once; None for none."""
    coulomb: float = 0.0
    """Coulomb friction of motor and gear [N m]; without a spring it adds to JOINT.friction."""
    viscous: float = 0.0
    """Viscous friction of motor and gear [N m s/rad]; without a spring it adds to JOINT.damping."""
    stribeck: float = 0.0
    """Static friction in excess of Coulomb friction [N m]."""
    stribeck_speed: float = 0.1
    """Speed at which the excess has fallen to 1/e [rad/s]."""
    stribeck_exponent: float | UnsetType = UNSET
    """Exponent of the speed in that fall; unset for 2."""
    load_motor: float | UnsetType = UNSET
    """Friction per motor torque (`multibody.drives.friction` has the law); unset for none."""
    load_external: float | UnsetType = UNSET
    """Friction per torque of gravity and motion on the joint; unset for that of the motor torque."""
    stribeck_load_motor: float | UnsetType = UNSET
    """Static friction in excess of that, per motor torque."""
    stribeck_load_external: float | UnsetType = UNSET
    """The same per external torque."""
    square_load_motor: float | UnsetType = UNSET
    """Static friction per square of the motor torque, where the load drives the motor [1/(N m)]."""
    square_load_external: float | UnsetType = UNSET
    """Static friction per square of the external torque, where the motor drives the load [1/(N m)]."""
    dead_band: float | UnsetType = UNSET
    """Error to either side within which a position controller rests, and by which larger errors are less [rad]."""
    supply: float | UnsetType = UNSET
    """Supply voltage over the nominal one, a factor on the torque at stall of "dc" motors; 0 turns any motor off, its
    back-EMF or damping with it. Unset for a motor that is always on. A log's map may give it by run, or where a motor
    was enabled."""
    stiffness: float | None = None
    """Stiffness of the spring between motor and joint [N m/rad]; None for a rigid drive."""
    elastic_damping: float = 0.0
    """Damping of that spring [N m s/rad]."""
    rotor_inertia: float | None = None
    """Inertia of the motor before the spring [kg m^2]; without a spring use JOINT.armature."""
    backlash: float = 0.0
    """Width of the dead zone before the spring [rad]."""
    feedback: Literal["joint", "motor"] = "joint"
    """Side of the spring that the law, its encoder and the torque-speed line use."""
    encoder: Literal["joint", "motor"] = "joint"
    """Side of the spring whose positions states and logs hold; the other side is memory."""
    bias: float = 0.0
    """Encoder reading minus joint position [rad]. States of a model with a bias are readings."""
    transmission: dict[str, float] | UnsetType = UNSET
    """Factor by joint from drive torque to joint torque, and from joint positions to the drive's position: gears and
    fixed tendons. Unset for the joint of the drive's own name."""
    tendons: dict[str, float] | UnsetType = UNSET
    """Factor by tendon instead; the drive's length is the weighted sum of tendon lengths."""
    wrench: BodyWrench | UnsetType = UNSET
    """Force and moment on a link instead, for a drive independent of position."""
    turning: TurningJoint | UnsetType = UNSET
    """Force and moment across a ball or free joint instead."""
    between: FrameOffset | UnsetType = UNSET
    """Position and rotation between two frames instead."""
    crank: SliderCrank | UnsetType = UNSET
    """A slider-crank instead."""
    adhesion: str | UnsetType = UNSET
    """Link that adheres to what it touches with the drive's force instead, in soft contacts."""
    pivot: Pivot | UnsetType = UNSET
    """Point that the drive holds in place instead, for kind "pivot", which has no other parameters."""
    muscle: Muscle | UnsetType = UNSET
    """Curves of a muscle; unset for none."""
    command_range: tuple[float, float] | UnsetType = UNSET
    """Range to which commands are clipped; unset for none."""
    force_range: tuple[float, float] | UnsetType = UNSET
    """Torque limits of the drive [N m]; unset for none."""
    state: DriveState | UnsetType = UNSET
    """State between command and torque; unset for none."""

    def __post_init__(self) -> None:
        signed = (*_SIGNED, "kp", "kd") if self.kind == "affine" else _SIGNED
        least = {"longest_delay", *DRIVE_NUMBERS}.difference(signed, _ABOVE_ZERO)
        require_fields(self, above=_ABOVE_ZERO, least=least, finite=signed)
        require(self.updates is UNSET or self.updates >= 1, "updates", self.updates, "at least 1")
        require(
            self.delay <= self.longest_held_delay,
            "longest_delay",
            self.longest_delay,
            f"at least the delay, {self.delay:g} s",
        )
        for what, first, second in (
            ("a torque-speed line", "saturation_effort", "velocity_limit"), ("a spring", "stiffness", "rotor_inertia"),
        ):  # fmt: skip
            whole = (getattr(self, first) is None) == (getattr(self, second) is None)
            whole = whole or (self.kind == "dc_servo" and first == "saturation_effort")
            require(whole, what, "half given", f"{first} and {second} together")
        for name in () if self.elastic else ("elastic_damping", "backlash"):
            value = getattr(self, name)
            require(not value, name, value, "0 without a spring; give stiffness and rotor_inertia")
        for name in ("feedback", "encoder"):
            side = getattr(self, name)
            require(side == "joint" or self.elastic, name, side, "joint, where there is no spring")
        require(self.encoder == "joint" or self.feedback == "motor", "feedback", self.feedback, "that of the encoder")
        for name in LOADS if self.acts_elsewhere else ():
            require(getattr(self, name) is UNSET, name, getattr(self, name), "none for a drive that acts elsewhere")
        for name in ("command_range", "force_range"):
            require_range(name, getattr(self, name))
        given = [name for name in PLACES if getattr(self, name) is not UNSET]
        require(len(given) <= 1, "drive: places", " and ".join(given), f"one of {', '.join(PLACES)}")
        for name in given:
            if name in ("transmission", "tendons"):
                require_factors(name, getattr(self, name))
            require(not self.bias, "bias", self.bias, f"0 for a drive with a {name}")
            require(not self.elastic, "stiffness", self.stiffness, f"none for a drive with a {name}")
        if self.wrench is not UNSET or self.adhesion is not UNSET:
            of_motion = ["kp", "per_position", "saturation_effort"]
            if self.adhesion is not UNSET:
                of_motion += ["kd", "per_velocity", "viscous", "coulomb", "stribeck"]
            moving = [name for name in of_motion if getattr(self, name)]
            require(not moving, given[0], f"beside {', '.join(moving)}", "a force that does not depend on position")

    @property
    def joints(self) -> tuple[str, ...]:
        """Joints of the transmission; empty for the joint of the drive's own name and for other places."""
        return () if self.transmission is UNSET else tuple(self.transmission)

    @property
    def links(self) -> tuple[str, ...]:
        """Links, by joint, that it acts on other than through a transmission or tendons; empty for the world."""
        links = []
        for name in PLACES:
            place = getattr(self, name)
            if place is not UNSET and name not in ("transmission", "tendons"):
                links += links_of(place)
        return tuple(links)

    @property
    def acts_elsewhere(self) -> bool:
        """Whether the drive acts elsewhere than at the joint of its own name."""
        return any(getattr(self, name) is not UNSET for name in PLACES)

    @property
    def loaded(self) -> bool:
        """Whether friction depends on the load."""
        return any(getattr(self, name) is not UNSET for name in LOADS)

    @property
    def state_kind(self) -> str | None:
        """Kind of its state; None without one."""
        return None if self.state is UNSET else self.state.kind

    @property
    def longest_held_delay(self) -> float:
        """Longest delay that the model can hold in memory [s]."""
        return 2.0 * self.delay if self.longest_delay is None else self.longest_delay

    @property
    def lags_command(self) -> bool:
        """Whether its lag is that of the command, because its damping is implicit in a step."""
        return self.lag is not None and DRIVE_KINDS[self.kind].damping is not None and not self.pushes

    @property
    def pushes(self) -> bool:
        """Whether it pushes a body by its command alone, as a rotor does."""
        slopes = (self.kp, self.kd, self.per_position, self.per_velocity)
        return self.wrench is not UNSET and not any(isinstance(one, float) and one for one in slopes)

    @property
    def remembers(self) -> bool:
        """Whether the torque depends on the past, through a delay, a lag, a spring or an actuator state."""
        return self.longest_held_delay > 0 or self.lag is not None or self.elastic or self.state is not UNSET

    def without_memory(self) -> "Drive":
        """Return the drive without delay, lag, spring and state."""
        return msgspec.structs.replace(
            self, delay=0.0, longest_delay=None, lag=None, stiffness=None, elastic_damping=0.0, rotor_inertia=None,
            backlash=0.0, feedback="joint", encoder="joint", state=UNSET,
        )  # fmt: skip

    @property
    def prescribes_motion(self) -> bool:
        """Whether the joint follows a prescribed motion, so that there is no torque."""
        return self.kind in DRIVE_KINDS and DRIVE_KINDS[self.kind].command == "velocity"

    @property
    def constrains(self) -> bool:
        """Whether it constrains motion, by a prescribed path or a pivot, and has no torque of its own."""
        return self.prescribes_motion or self.pivot is not UNSET

    @property
    def is_outside_force(self) -> bool:
        """Whether its command is itself a force or moment in axes of the world, as a push that a log holds."""
        if self.between is UNSET or self.between.reference:
            return False
        law = self.kp, self.kd, self.per_position, self.per_velocity, self.offset
        return self.kind == "affine" and self.per_command == 1.0 and not any(one for one in law if one is not UNSET)

    @property
    def elastic(self) -> bool:
        """Whether there is a spring between motor and joint."""
        return self.stiffness is not None

    def pd_gains(self) -> tuple[float, float, set[str]] | None:
        """Return stiffness and damping of an equivalent PD controller and the parameters they use; None without one."""
        law = DRIVE_KINDS[self.kind]
        if law.gains is None:
            return None
        kp, kd = law.gains(lambda name: getattr(self, name) or 0.0)
        return self.gain * kp, self.gain * kd, {"gain", *law.needs, *law.zero}

    def quantities(self) -> dict[str, float]:
        """Return this drive's parameters by name, without "actuator.JOINT." and without those of absent stages."""
        if self.constrains:
            return {}
        absent = set() if self.longest_held_delay else {"delay"}
        if not self.elastic:
            absent |= {"elastic_damping", "backlash"}
        if self.acts_elsewhere:
            absent |= {"bias"}
        zero = DRIVE_KINDS[self.kind].zero if self.kind in DRIVE_KINDS else ()
        values = {}
        for name in DRIVE_NUMBERS:
            value = getattr(self, name)
            if name not in absent and (name in zero or value not in (None, UNSET)):
                values[name] = 0.0 if value in (None, UNSET) else float(value)
        for part in (self.state, self.muscle):
            values |= {} if part is UNSET else part.quantities()
        return values

    def with_quantities(self, named: Mapping[str, float]) -> "Drive":
        """Return the drive with other values of its `quantities`."""
        if self.constrains:
            return self
        changes: dict[str, Any] = {what: named[what] for what in self.quantities() if what in DRIVE_NUMBERS}
        for name, part in (("state", self.state), ("muscle", self.muscle)):
            if part is not UNSET:
                changes[name] = part.with_quantities(named)
        return msgspec.structs.replace(self, longest_delay=self.longest_held_delay, **changes)


DRIVE_NUMBERS = tuple(
    name for name, kind in Drive.__annotations__.items()
    if kind in (float, float | None, float | UnsetType) and name != "longest_delay"
)  # fmt: skip
"""Named parameters of a drive."""
LOADS = tuple(name for name in DRIVE_NUMBERS if "load" in name)
"""Parameters of friction that grows with the load of the gear."""
_TIMES = ("time_constant", "release")
_OF_MUSCLES = {
    "force": (1e-9, None), "speed": (1e-9, None), "passive": (0.0, None), "shortest": (None, 1.0 - 1e-6),
    "longest": (1.0 + 1e-6, None), "eccentric": (1.0 + 1e-6, None),
}  # fmt: skip


def bounds(name: str, drive: Drive) -> tuple[float | None, float | None]:
    """Return the lower and upper bound of a drive's parameter; None for no bound."""
    value = getattr(drive, name, None)
    if name in _SIGNED or (name in ("kp", "kd") and value not in (None, UNSET) and value < 0):
        return None, None
    if name.startswith("muscle."):
        return _OF_MUSCLES.get(name.partition(".")[2], (None, None))
    return (1e-9 if name in _ABOVE_ZERO or name in _TIMES else 0.0), (
        drive.longest_held_delay if name == "delay" else None
    )


_PLURALS = {"torque": "torques", "target": "targets", "velocity": "velocities", "command": "commands"}

Number = Callable[[str], Any]
"""Looks up a drive parameter by name, for example "kp"."""


TorqueOf = Callable[[Number, Any, Any, Any], Any]
"""Computes a drive's value, such as its torque, from its parameters, command, position and velocity."""


@dataclass(frozen=True)
class DriveLaw:
    """A law from command to torque."""

    command: Command
    torque: TorqueOf | None = None
    """Torque from the drive's parameters, the command (for a target: its error), position and velocity; works on
    floats, tensors and traced values. None in a law whose formulas `multibody.drives` adds."""
    needs: tuple[str, ...] = ()
    """Parameters that a drive of this kind requires."""
    free: tuple[str, ...] = ()
    """Parameters that `identify` fits by default."""
    gains: Callable[[Number], tuple[Any, Any]] | None = None
    """Stiffness and damping of an equivalent PD controller, from the drive's parameters, for simulators without this
    law. None if there is no such controller."""
    zero: tuple[str, ...] = ()
    """Parameters that default to zero."""
    back_emf: TorqueOf | None = None
    """Torque of the motor's own voltage, which neither gain nor limits of the law change; it is subtracted."""
    damping: TorqueOf | None = None
    """Minus the derivative of the torque with respect to velocity, from the same arguments, for a law with an implicit
    velocity term; None for an explicit one."""
    target: Literal["position", "velocity"] = "position"
    """What a target is: a position, whose error is wrapped at a continuous joint, or a velocity."""


def pd_law(number: Number, error: Any, q: Any, qd: Any) -> Any:
    """Return kp error - kd qd [N m or N]."""
    return number("kp") * error - number("kd") * qd


POSITION_DRIVES = ("servo", "pd")
"""Kinds of drives whose command is a position."""
DRIVE_KINDS: Registry[DriveLaw] = Registry(
    "kind of drive",
    torque=DriveLaw("torque", lambda number, command, q, qd: command, free=("gain", "delay")),
    pd=DriveLaw(
        "target",
        pd_law,
        needs=("kp", "kd"),
        free=("kp", "kd", "delay", "bias"),
        gains=lambda number: (number("kp"), number("kd")),
    ),
    velocity=DriveLaw("velocity", lambda number, command, q, qd: 0.0),
    dc_motor=DriveLaw(
        "torque",
        lambda number, command, q, qd: number("gain") * command,
        needs=("kd",),
        free=("gain", "kd", "delay"),
        back_emf=lambda number, command, q, qd: number("kd") * qd,
    ),
    dc_servo=DriveLaw(
        "target",
        needs=("kp", "kd", "saturation_effort"),
        free=("kp", "kd", "saturation_effort", "delay", "bias"),
        gains=lambda number: (number("kp"), number("kd")),
        back_emf=lambda number, error, q, qd: number("kd") * qd,
    ),
    velocity_servo=DriveLaw(
        "target",
        lambda number, error, q, qd: number("kd") * error,
        needs=("kd",),
        free=("kd", "delay"),
        target="velocity",
    ),
    servo=DriveLaw(
        "command",
        lambda number, command, q, qd: pd_law(number, command - q, q, qd),
        needs=("kp",),
        free=("kp", "kd", "delay"),
        gains=lambda number: (number("kp"), number("kd")),
        zero=("kd",),
        damping=lambda number, command, q, qd: number("kd"),
    ),
    affine=DriveLaw(
        "command",
        lambda number, command, q, qd: (
            (number("per_command") + number("per_position") * q + number("per_velocity") * qd) * command
            + number("offset")
            - number("kp") * q
            - number("kd") * qd
        ),
        needs=("per_command",),
        free=("per_command", "kd", "delay"),
        zero=("offset", "per_position", "per_velocity", "kp", "kd"),
        damping=lambda number, command, q, qd: number("kd") - number("per_velocity") * command,
    ),
    muscle=DriveLaw("command", needs=("muscle",), free=("muscle.force", "time_constant", "release")),
    pivot=DriveLaw("command", needs=("pivot",)),
)
"""Laws from command to torque, by the `kind` of a drive."""


def require_simulated(drives: Mapping[str, Drive], robot: str) -> None:
    """Raise an InputError for a joint with prescribed motion or a pivot, which force-based simulators do not have."""
    for name, drive in drives.items():
        if drive.constrains:
            what = "has a commanded velocity" if drive.prescribes_motion else "is a pivot"
            raise InputError(
                f"robot {robot!r}: {name!r} {what}, which only the hybrid engine knows; valid: hybrid dynamics, or "
                "drives that take torques or targets"
            )


def require_drives(drives: Mapping[str, Drive], controls: tuple[str, ...], where: str) -> Command:
    """Check a robot's drives, by control, and return the kind of its commands; torques where there is no drive.

    Kinds may differ only on a robot with an actuator that takes commands of its own.

    Raises:
        InputError: A control does not exist, a kind is unknown, a parameter is missing or not one of its kind, or
            joints mix kinds of commands.
    """
    for name, drive in drives.items():
        if name not in controls:
            raise InputError(f"{where}: there is no driven joint {name!r}{among(name, controls)}")
        _require_law(name, drive, where)
    kinds: dict[Command, str] = {}
    for name in controls:
        kinds[DRIVE_KINDS[drives[name].kind].command if name in drives else "torque"] = name
    if "command" in kinds:
        return "command"
    if len(kinds) > 1:
        each = " and ".join(f"{_PLURALS[kind]} at {joint!r}" for kind, joint in sorted(kinds.items()))
        raise InputError(f"{where}: commands are {each}; valid: drives of one sort of command for all driven joints")
    return next(iter(kinds)) if kinds else "torque"


_OF_ACTUATORS = (
    "per_command", "offset", "per_position", "per_velocity", "muscle", *PLACES, "command_range", "force_range", "state",
)  # fmt: skip


def _require_law(name: str, drive: Drive, where: str) -> None:
    """Check that a drive has all parameters of its law, and no others."""
    law, begin = DRIVE_KINDS[drive.kind], f"{where}: drive of {name!r} is of kind {drive.kind!r}"
    if drive.dead_band is not UNSET and law.gains is None:
        raise InputError(f"{begin} and has a dead_band; valid with one: a position controller, such as pd or servo")
    if drive.prescribes_motion and drive != Drive(kind=drive.kind):
        raise InputError(f"{begin}, which the joint follows exactly; valid: no other numbers")
    if (drive.pivot is not UNSET or law is DRIVE_KINDS["pivot"]) and drive != Drive(kind="pivot", pivot=drive.pivot):
        raise InputError(f"{begin} and holds a point; valid: kind pivot, and pivot with link and point alone")
    for what in law.needs:
        if getattr(drive, what) in (None, UNSET):
            raise InputError(f"{begin} and has no {what}; give one")
    if law.command == "command":
        return
    if given := [what for what in _OF_ACTUATORS if getattr(drive, what) is not UNSET]:
        kinds = [kind for kind, other in DRIVE_KINDS.items() if other.command == "command"]
        raise InputError(f"{begin} and takes no {given[0]}; valid with one: kind {' or '.join(kinds)}")


def combine_drives(
    drives: Mapping[str, Drive], leading: Mapping[str, Drive], joints: Sequence[str]
) -> dict[str, Drive]:
    """Return drives behind those of a log: for each joint the law of `leading`, then the stages of both.

    Args:
        drives: The robot's own drives, which take torques; a joint without one has an ideal drive.
        leading: Drives that follow the log's targets, by joint or pattern, for each of the joints.
        joints: The driven joints.

    Raises:
        InputError: A leading drive is invalid or missing, or one of the robot's own drives takes no torques.
    """
    where, combined = "drives of the log", {}
    leading = expand_keys(leading, joints, where)
    if missing := [joint for joint in joints if joint not in leading]:
        raise InputError(f"{where}: {missing[0]!r} has none; valid: one for each of {', '.join(joints)}")
    require_drives(leading, tuple(joints), where)
    for joint in joints:
        own, first = drives.get(joint, Drive()), leading[joint]
        if own.kind != "torque":
            raise InputError(f"{where}: the robot's own drive of {joint!r} is of kind {own.kind!r}; valid: torque")
        changes = {name: value for name in Drive.__struct_fields__ if (value := getattr(first, name)) != _PLAIN[name]}
        limits = [drive.effort_limit for drive in (own, first) if drive.effort_limit is not None]
        combined[joint] = msgspec.structs.replace(own, **changes | {"effort_limit": min(limits, default=None)})
    return combined


_PLAIN = {name: getattr(Drive(), name) for name in Drive.__struct_fields__}


def pd_gains(drives: Mapping[str, Drive], joints: Sequence[str]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return stiffness and damping of the equivalent PD controllers of joints [N m/rad, N m s/rad].

    Raises:
        InputError: A drive has no equivalent PD controller.
    """
    gains = []
    for joint in joints:
        drive = drives.get(joint, Drive())
        if (own := drive.pd_gains()) is None:
            raise InputError(f"drive of {joint!r} is of kind {drive.kind!r} without stiffness and damping; valid: pd")
        gains.append(own[:2])
    return tuple(kp for kp, _ in gains), tuple(kd for _, kd in gains)
