# SPDX-License-Identifier: Apache-2.0
"""Column maps, which define the meaning of each column of a log, and the registry of log formats.

A column map is a small YAML or TOML file:

    robot: my-arm
    format: csv
    time: t_ms
    time_unit: ms
    q: {shoulder: {column: pos, unit: deg, sign: -1, offset: 12.5}}
    qd: differentiate
    control: {shoulder: {column: [tau_feedback, tau_feedforward], unit: N m}}

`q: "position[*]"`, short for `q: {"*": {column: "position[*]"}}`, stands for a column of each joint
(`data.readers.patterns`). A free or ball joint is declared under `floating`, with the order of its quaternion and the
axes of its velocities; a base that nothing tracks is `unmeasured`. A file's reader is found in `READERS` from the
file's contents.
"""

import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.config import Aliases, Config, from_dict, read_config, read_plain, rename_keys, to_dict
from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.drive_tables import drives_of_controller, read_drives
from neurodyn.core.description.scene import Scene, Vector3
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError, choices, require, suggestion, unreadable
from neurodyn.core.extras import import_extra
from neurodyn.core.registry import Registry
from neurodyn.data.readers.floating import FloatingColumns
from neurodyn.data.readers.sensor_columns import SensorColumns
from neurodyn.data.readers.source import factor, state_units

if TYPE_CHECKING:
    from neurodyn.data.readers.source import Source


_HEAD = 4096
HDF5 = b"\x89HDF\r\n\x1a\n"
"""First bytes of an HDF5 file."""

READERS: "Registry[LogFormat | Callable[..., Any]]" = Registry("format of logs")
"""Log readers by format: a `LogFormat`, or a function (path, column map, spec) -> runs whose name is the suffix."""


@dataclass(frozen=True)
class LogFormat:
    """A log format.

    Attributes:
        what: Description for messages.
        recognises: Whether a path is such a log, from the path and the first bytes of the file (empty for a folder).
        open: Opens a log; the column map is None while one is being drafted.
        times: Source of times: a "column" or constant period in the column map; "steps" of a length that the file or
            the column map gives; or the file's "own" clock.
        extra: Packages needed beyond the dependencies of neurodyn.
        keys: Keys of a column map that this format reads among those that not every one does.
    """

    what: str
    recognises: Callable[[Path, bytes], bool]
    open: "Callable[[Path, ColumnMap | None], Source]"
    times: Literal["column", "steps", "own"] = "column"
    extra: tuple[str, ...] = ()
    keys: frozenset[str] = frozenset()

    def source(self, path: Path, columns: "ColumnMap | None" = None) -> "Source":
        """Open a log; raise an InputError if it is missing or damaged, or the extra `logs` is not installed."""
        require_logs(path, self.extra)
        return self.open(path, columns)


def require_logs(where: Path, modules: Sequence[str]) -> None:
    """Raise an InputError unless the given modules of the extra `logs` are installed."""
    for module in modules:
        import_extra(module, str(where), "logs", package=module.partition(".")[0])


def recognise(path: Path) -> str | None:
    """Return the format name of a readable file or folder, from its contents; None if unknown."""
    head = b""
    try:
        if not path.is_dir():
            with path.open("rb") as file:
                head = file.read(_HEAD)
    except OSError as error:
        raise unreadable(path, error, "a log") from None
    for name, reader in READERS.items():
        if isinstance(reader, LogFormat):
            if reader.recognises(path, head):
                return name
        elif path.suffix.lower() == f".{name}":
            return name
    return None


def require_format(path: Path) -> str:
    """Return the format name of a file or folder, or raise an InputError that lists the formats."""
    name = recognise(path)
    if name is None:
        known = "; ".join(reader.what for reader in READERS.values() if isinstance(reader, LogFormat))
        size = "is an empty folder" if path.is_dir() and not any(path.iterdir()) else "is no log of a known format"
        if path.is_file() and not path.stat().st_size:
            size = "is empty"
        raise InputError(f"{path}: {size}; valid: {known}; write others as npz or CSV")
    return name


def is_log(path: Path) -> bool:
    """Return whether a path is a log (not a store): by its contents, or by its suffix if it does not exist."""
    if path.exists():
        with suppress(InputError):
            if recognise(path) is not None:
                return True
    return path.suffix.lower().removeprefix(".") in READERS


def zip_names(path: Path, head: bytes) -> list[str]:
    """Return the array names of an npz file; empty if it is another zip archive, or damaged."""
    if not head.startswith(b"PK"):
        return []
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    except (zipfile.BadZipFile, OSError):
        return []


class Column(Config, frozen=True):
    """Columns that make up one coordinate. SI value = factor * unit * (column - minus + shift).

    The factor is sign * scale, and the shift is the offset, or both follow from two `points`.

    Attributes:
        column: Name of the column (CSV), "array[index]" or "array" (npz), or as `neurodyn inspect` lists it; several
            are summed, or with weights, such as {"/cmd_vel.linear.x": 28.6, "/cmd_vel.angular.z": -4.3} of a wheel.
        minus: Columns that are subtracted, for example the parent's absolute angle for a relative angle.
        unit: Unit of the column; empty for the SI unit of the coordinate.
        sign: -1 if the log counts in the opposite direction.
        scale: Further factor, for example a gear ratio, or N m per ampere.
        offset: Offset added to the raw value, in the column's unit.
        points: In place of sign, scale and offset: two values of the column, each with its value in the unit, such as
            [0, 0] and [1, 0.04] of a gripper that counts from 0 to 1 and opens by 40 mm.
        wrapped: Whether the logged angle wraps around and must be unwrapped.
    """

    column: str | tuple[str, ...] | dict[str, float]
    minus: str | tuple[str, ...] = ()
    unit: str = ""
    sign: Literal[1, -1] = 1
    scale: float = 1.0
    offset: float = 0.0
    points: tuple[tuple[float, float], tuple[float, float]] | UnsetType = UNSET
    wrapped: bool = False

    def __post_init__(self) -> None:
        weights = list(self.column.values()) if isinstance(self.column, dict) else []
        require(all(map(math.isfinite, weights)), "column", f"weights of {weights}", "finite numbers")
        if self.points is UNSET:
            return
        (first, low), (last, high) = self.points
        fine = all(map(math.isfinite, (first, low, last, high))) and first != last and low != high
        require(fine, "points", [list(one) for one in self.points], "two different [value of the column, value in SI]")
        if (self.sign, self.scale, self.offset) != (1, 1.0, 0.0):
            raise ValueError("points are given, and sign, scale or offset, too; valid: one of them")

    @property
    def factor(self) -> float:
        """Factor from the shifted raw value to that in the unit."""
        if self.points is UNSET:
            return self.sign * self.scale
        (first, low), (last, high) = self.points
        return (high - low) / (last - first)

    @property
    def shift(self) -> float:
        """Offset that is added to the raw value."""
        return self.offset if self.points is UNSET else self.points[0][1] / self.factor - self.points[0][0]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the summed columns."""
        return (self.column,) if isinstance(self.column, str) else tuple(self.column)

    @property
    def subtracted(self) -> tuple[str, ...]:
        """Names of the subtracted columns."""
        return (self.minus,) if isinstance(self.minus, str) else self.minus

    @property
    def weights(self) -> tuple[tuple[float, str], ...]:
        """What is summed: weights, and names of all columns."""
        weights = self.column.values() if isinstance(self.column, dict) else (1.0,) * len(self.columns)
        return (*zip(weights, self.columns, strict=True), *((-1.0, name) for name in self.subtracted))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns."""
        return (*self.columns, *self.subtracted)


PAYLOAD = ".payload"
"""End of the name of a payload's mass among the parameters of a log."""


class ParameterColumn(Column, frozen=True):
    """Column of a quantity of the robot that differs between runs.

    Attributes:
        averaged: Whether the mean over an episode counts; otherwise an episode ends where the value changes.
        place: Of "JOINT.payload": centre of the payload in the body frame of the joint's link [m].
        radius: Of "JOINT.payload": radius of gyration of the payload about its centre [m].
    """

    averaged: bool = False
    place: Vector3 | UnsetType = UNSET
    radius: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.radius >= 0.0, "radius", self.radius, "a number from 0 on [m]")


_OF_SOME_FORMATS = frozenset({
    "clock", "comment", "decimal", "delimiter", "episodes", "group", "group_names", "run_names", "split", "time_unit",
    "together",
})  # fmt: skip
"""Keys of a column map that not every format reads."""


class ColumnMap(Config, frozen=True, rename={"contact_points": "probes"}):
    """Meaning of the columns of a log.

    Attributes:
        format: Format of the files: the name of a reader.
        q: Column of each position coordinate, by its name in the robot's spec; here and in the next two also patterns
            of joints, with a * in the column for the joint's name or number.
        control: Column of each control, by the name of its joint. "differentiate" (joints with prescribed motion) takes
            velocities as position differences over the frame, so that the motion is followed exactly. That of a pivot
            may be "found": where its point rests (`data.held_points`).
        qd: Column of each velocity coordinate. "differentiate" takes position differences over the frame around each
            sample; for single joints, over the rows around each row.
        floating: Columns of each free or ball joint, by name; these joints are not in `q` and `qd`. A floating base
            whose pose nobody measures is "unmeasured".
        parameters: Quantities of the robot that the log knows, such as a firmware's gain, a supply voltage, whether a
            motor was on, or the mass of a payload ("JOINT.payload", with its place), by their names; one value per row,
            or in an npz per run.
        measured: Columns of further sensors, by sensor name (`data.readers.sensor_columns`).
        control_kind: "torque"; "target" of a controller, which identification simulates; "velocity" of joints with
            prescribed motion; or "command" of the robot's own actuators, as which the default counts for such robots.
        drives: Drives that follow the targets, by joint or pattern, such as PD controllers with their gains; empty if
            unknown. In a column-map file, also the name of a CSV file
            (`core.description.drive_tables.read_drives`).
        length_scale: Factor on all lengths, if the log's lengths are known to be off.
        scene: Shapes around the robot; None if unknown or in free space.
        contact_points: Contact points of the robot; in a column-map file, the name of another file.
        robot: Name or path of the robot.
        time: Column of the time stamps; None for a constant `period`.
        time_unit: Unit of the time stamps.
        period: Constant time between two rows [s] without time stamps; npz: or the name of the array that holds it.
        rate: Expected rate of the log [Hz]; a deviation of more than a fifth is an error.
        velocity: "sampled" interpolates logged velocities linearly at the frame; "averaged" averages them over the
            frame around it. With differentiated positions, "past" takes the slope of a parabola through the last 20 ms
            instead: noisier and delayed, but causal.
        alignment: Shift of the commands [s], for clocks that are known to differ: one logged at t acts at t +
            alignment. "auto" shifts by nothing: the delay that is measured belongs to the robot.
        max_gap: Longest gap between two rows that is interpolated [s]; a longer one starts a new episode.
        missing: Treatment of values that are not numbers: an "error", or a "gap" that starts a new episode.
        clock: Message times: from the "header", or the log times.
        episodes: npz: array of offsets (run k is rows offsets[k]:offsets[k + 1]); CSV: column whose change starts a
            new run.
        split: Array (npz, one value per run) or column (CSV): 0 training, 1 validation, 2 test. A file may lack it, as
            well as the next two.
        group: Array (npz) or column (CSV) of the group that a run belongs to.
        together: Array (npz) or column (CSV) whose value is equal for runs of one event; a random split keeps them
            together.
        group_names: npz: array of the names of groups, if `group` holds indices.
        run_names: npz: array of the names of runs.
        select_groups: Patterns (with * and ?) of the groups to read; empty for all.
        select_runs: Patterns (with * and ?) of the runs to read; empty for all.
        mirrored_runs: Patterns of the runs in which the robot's other side is at work, such as the other stance leg:
            positions, velocities and controls of all joints change their sign.
        delimiter: CSV: separator of columns.
        decimal: CSV: separator of decimals, a point or, with another separator of columns, a comma.
        comment: CSV: start of a comment line.
    """

    aliases: ClassVar[Aliases] = {
        "contact_points": "probes",  # stores keep the former key
        "controller": ("drives", drives_of_controller),
    }

    format: str
    q: dict[str, Column] = msgspec.field(default_factory=dict)
    control: dict[str, Column | Literal["found"]] | Literal["differentiate"] = msgspec.field(default_factory=dict)
    qd: dict[str, Column | Literal["differentiate"]] | Literal["differentiate"] = msgspec.field(default_factory=dict)
    floating: dict[str, FloatingColumns | Literal["unmeasured"]] = msgspec.field(default_factory=dict)
    measured: dict[str, SensorColumns] = msgspec.field(default_factory=dict)
    parameters: dict[str, ParameterColumn] = msgspec.field(default_factory=dict)
    control_kind: Literal["torque", "target", "velocity", "command"] = "torque"
    drives: dict[str, Drive] = msgspec.field(default_factory=dict)
    length_scale: float = 1.0
    scene: Scene | None = None
    contact_points: ContactPointLayout | None = None
    robot: str | None = None
    time: str | None = None
    time_unit: str = "s"
    period: float | str | None = None
    rate: float | None = None
    velocity: Literal["sampled", "averaged", "past"] = "sampled"
    alignment: Literal["auto"] | float = "auto"
    max_gap: float = 0.1
    missing: Literal["error", "gap"] = "error"
    clock: Literal["header", "log"] = "header"
    episodes: str | None = None
    split: str | None = None
    group: str | None = None
    together: str | None = None
    group_names: str | None = None
    run_names: str | None = None
    select_groups: tuple[str, ...] = ()
    select_runs: tuple[str, ...] = ()
    mirrored_runs: tuple[str, ...] = ()
    delimiter: str = ","
    decimal: Literal[".", ","] = "."
    comment: str = "#"

    def __post_init__(self) -> None:
        self._check_times()
        self._require_read()
        named = isinstance(self.period, str) and self.format != "npz"
        require(not named, "period", repr(self.period), "a number above 0 (an array's name: for npz only)")
        for name in ("period", "rate", "max_gap", "length_scale"):
            value = getattr(self, name)
            require(not isinstance(value, float) or 0 < value < float("inf"), name, value, "a number above 0")
        if self.velocity == "past" and self.qd != "differentiate":
            raise ValueError("velocity: past is a way to differentiate positions; add qd: differentiate")
        short = self.alignment == "auto" or abs(self.alignment) <= 1.0
        require(short, "alignment", f"{self.alignment} s", "'auto' or at most one second")
        require(len(self.delimiter) == 1, "delimiter", repr(self.delimiter), "one character")
        require(self.decimal != self.delimiter, "decimal", repr(self.decimal), "another character than `delimiter`")
        velocities = () if isinstance(self.qd, str) else (one for one in self.qd.values() if isinstance(one, Column))
        rates = {} if isinstance(self.qd, str) else self.qd
        shifted = [name for name, one in rates.items() if isinstance(one, Column) and one.points is not UNSET]
        require(not shifted, "qd", f"points of {', '.join(shifted)}", "`scale` of velocities, or differentiate")
        unknown = [
            name for name in self.differentiated if not any(fnmatchcase(name, own) or name == own for own in self.q)
        ]
        require(not unknown, "qd: differentiate", ", ".join(unknown), "joints with a column of positions in `q`")
        coordinates = [*self.q.values(), *self.controls.values(), *velocities, *self.parameters.values()]
        if self.control == "differentiate" and self.control_kind != "velocity":
            raise ValueError(f"control: differentiate makes velocities, not each {self.control_kind}; valid with it: "
                             "control_kind: velocity")  # fmt: skip
        if not (self.q or self.floating):
            raise ValueError("q and floating are both empty; name the columns of the positions")
        if self.drives and self.control_kind != "target":
            raise ValueError("drives are given, but controls are torques; valid with them: control_kind: target")
        if self.mirrored_runs and (self.floating or self.measured):
            raise ValueError("mirrored_runs are given, but a mirror image of a base or of sensors is no change of "
                             "signs; valid with them: joints alone")  # fmt: skip
        for name, one in self.measured.items():
            one.stream(name)
        for name, one in self.parameters.items():
            if name.endswith(PAYLOAD) != (one.place is not UNSET):
                given = "no" if one.place is UNSET else "a"
                raise ValueError(
                    f"parameters: {name!r} has {given} `place`; valid: the mass of a payload, JOINT.payload, with the "
                    "`place` of its centre on the joint's link"
                )
        if any(not column.columns for column in coordinates):
            raise ValueError("a column is an empty list; valid: the name of a column, or several to add up")

    def _require_read(self) -> None:
        """Refuse keys that the format does not read."""
        reader = READERS[self.format]
        if not isinstance(reader, LogFormat):
            return
        keys = _OF_SOME_FORMATS - reader.keys
        usual = {field.name: field.default for field in msgspec.structs.fields(self)}
        given = [name for name in self.__struct_fields__ if name in keys and getattr(self, name) != usual[name]]
        if given:
            formats = [name for name, one in READERS.items() if isinstance(one, LogFormat) and given[0] in one.keys]
            raise ValueError(
                f"{given[0]} is given, but nothing reads it of {reader.what}; valid for {choices(formats)}"
            )

    def _check_times(self) -> None:
        reader = READERS[self.format]
        times, what = (reader.times, reader.what) if isinstance(reader, LogFormat) else ("column", self.format)
        given = [name for name in ("time", "period") if getattr(self, name) is not None]
        if times == "own" and given:
            raise ValueError(f"{given[0]} is given, but {what} has its own clock; leave it out")
        if times == "steps" and "time" in given:
            raise ValueError(f"time is given, but {what} has no clock; valid: period [s], if the file has none")
        if times == "column" and len(given) != 1:
            raise ValueError("give either time (a column) or period (seconds)")

    @property
    def coordinates(self) -> tuple[Column, ...]:
        """All columns of q, qd and control."""
        return (*self.positions.values(), *self.velocities.values(), *self.controls.values())

    def stored_spec(self, spec: StateSpec) -> StateSpec:
        """Return the robot's spec with the log's kind of controls.

        Raises:
            InputError: They are commands of actuators, which the robot does not have.
        """
        kind = spec.control_kind if self.control_kind == "torque" else self.control_kind
        if kind == "command" != spec.control_kind:
            raise InputError(
                f"control_kind: command is of a robot's own actuators, which {spec.robot!r} does not declare in "
                "`drives`; valid: torque, target"
            )
        return msgspec.structs.replace(spec, control_kind=kind)

    @property
    def controls(self) -> dict[str, Column]:
        """Column of each control; empty if controls are position differences."""
        if isinstance(self.control, str):
            return {}
        given = {name: one for name, one in self.control.items() if not isinstance(one, str)}
        if not self.found or not self.positions:
            return given
        nothing = Column(column=next(iter(self.positions.values())).column, scale=0.0)  # until it is found
        return {name: given.get(name, nothing) for name in self.control}

    @property
    def found(self) -> tuple[str, ...]:
        """Controls that are found from the robot's motion."""
        return (
            () if isinstance(self.control, str) else tuple(n for n, one in self.control.items() if isinstance(one, str))
        )

    @property
    def positions(self) -> dict[str, Column]:
        """Column of each position coordinate, `floating` included."""
        return self.q | self._floating_columns(0)

    @property
    def velocities(self) -> dict[str, Column]:
        """Column of each velocity coordinate, `floating` included; empty if positions are differentiated."""
        if isinstance(self.qd, str):
            return {}
        # In the place of a velocity that is not logged stands the position, until `streams` differentiates it.
        own = {
            name: msgspec.structs.replace(self.q[name], unit="") if isinstance(one, str) else one
            for name, one in self.qd.items()
        }
        return own | self._floating_columns(1)

    @property
    def differentiated(self) -> tuple[str, ...]:
        """Coordinates without a column of velocities, beside others that have one."""
        return () if isinstance(self.qd, str) else tuple(name for name, one in self.qd.items() if isinstance(one, str))

    @property
    def poses(self) -> dict[str, FloatingColumns]:
        """Columns of each free or ball joint that is measured, by name."""
        return {name: joint for name, joint in self.floating.items() if isinstance(joint, FloatingColumns)}

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Free joints that are not measured."""
        return tuple(name for name, joint in self.floating.items() if not isinstance(joint, FloatingColumns))

    def logged_spec(self, spec: StateSpec, where: str) -> StateSpec:
        """Return the spec without a floating base that is not measured.

        Raises:
            InputError: Something else is declared as unmeasured, or nothing else is measured.
        """
        base = spec.joints[0].name if spec.floating else None
        for name in self.unmeasured:
            if name != base:
                valid = f"only the floating base may be: {base!r}" if base else f"{spec.robot!r} has no floating base"
                raise InputError(f"{where}: floating: {name!r} is unmeasured; {valid}")
        if not self.unmeasured:
            return spec
        if len(spec.joints) == 1 or not self.measured:
            need = "a robot with joints" if len(spec.joints) == 1 else "an IMU under `measured`"
            raise InputError(
                f"{where}: the base {base!r} is unmeasured, and no sensor measures its motion; valid: {need}"
            )
        return msgspec.structs.replace(spec, joints=spec.joints[1:])

    def _floating_columns(self, what: int) -> dict[str, Column]:
        """Return the position (0) or velocity (1) columns of the floating joints, by coordinate."""
        columns: dict[str, Column] = {}
        for name, joint in self.poses.items():
            spec = JointSpec(name=name, kind="free" if joint.position else "ball")
            names, pairs = ((spec.q_names, joint.q_columns()), (spec.qd_names, joint.qd_columns()))[what]
            clock = next(column for column, _ in joint.q_columns() if isinstance(column, str))
            if not joint.angular_velocity and what == 1:  # differentiated later, as of joints without one
                pairs = [(clock, "")] * len(names)
            for own, (column, unit) in zip(names, pairs, strict=True):
                columns[own] = (
                    Column(column=column, unit=unit) if isinstance(column, str)
                    else Column(column=clock, minus=clock, offset=column, unit=unit)  # at the times of another
                )  # fmt: skip
        return columns

    def factors(self, spec: StateSpec, where: str) -> dict[str, dict[str, float]]:
        """Return factors from logged to SI values of q, qd and control, by coordinate in the order of `spec`.

        Raises:
            InputError: A coordinate is missing or unknown, or a unit does not fit.
        """
        self._check_floating(spec, where)
        wanted = state_units(spec)
        given = {"q": self.positions, "qd": self.velocities, "control": self.controls}
        if self.control == "differentiate":
            wanted["control"] = {}
        if self.qd == "differentiate":
            given_too = [name for name, joint in self.poses.items() if joint.angular_velocity]
            if given_too:
                raise InputError(
                    f"{where}: {given_too[0]!r} has velocities, but `qd: differentiate` computes them; give one of them"
                )
            wanted["qd"] = {}
        factors: dict[str, dict[str, float]] = {}
        for what, units in wanted.items():
            columns = given[what]
            wrong = [name for name in columns if name not in units]
            missing = [name for name in units if name not in columns]
            if wrong or missing:
                trouble = (
                    f"names the unknown {wrong[0]!r}{suggestion(wrong[0], units)}"
                    if wrong
                    else f"has no column for {missing[0]!r}"
                )
                raise InputError(
                    f"{where}: {what} {trouble}; coordinates of {spec.robot!r}: {', '.join(units) or '(none)'}"
                )
            factors[what] = {
                name: factor(columns[name].unit, unit, f"{where}: {what} of {name!r}")
                * columns[name].factor
                * (self.length_scale if unit in {"m", "m/s"} else 1.0)
                for name, unit in units.items()
            }
        return factors

    def _check_floating(self, spec: StateSpec, where: str) -> None:
        kinds = {joint.name: joint.kind for joint in spec.joints if not joint.scalar}
        for name in self.poses:
            if name not in kinds:
                raise InputError(
                    f"{where}: floating names {name!r}, which is no free or ball joint of {spec.robot!r}; valid: "
                    f"{', '.join(kinds) or '(none)'}"
                )
        for name, kind in kinds.items():
            if name not in self.poses:
                unmeasured = f", or `{name}: unmeasured`" if name == spec.joints[0].name and kind == "free" else ""
                raise InputError(
                    f"{where}: has no columns for the {kind} joint {name!r}; declare them in `floating`{unmeasured}"
                )
            if bool(self.poses[name].position) != (kind == "free"):
                need = "needs" if kind == "free" else "has no"
                raise InputError(f"{where}: the {kind} joint {name!r} {need} position and linear_velocity")


def permissive_map(form: str) -> ColumnMap:
    """Return a permissive column map to read a log before it has one: rows 1 s apart, gaps allowed."""
    return ColumnMap(format=form, q={"": Column(column="")}, period=1.0, missing="gap")


def read_column_map(path: Path) -> ColumnMap:
    """Read a column map, or raise an InputError; its key `extends` names a map to add to or override."""
    return from_dict(_read_tree(path, ()), ColumnMap, str(path))


def _read_tree(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    tree = read_plain(path)
    if not isinstance(tree, dict):
        raise InputError(f"{path}: is no column map; expected keys {', '.join(ColumnMap.__struct_fields__)}")
    tree = rename_keys(tree, ColumnMap, str(path))
    if isinstance(tree.get("probes"), str):
        layout = path.parent / tree["probes"]
        tree["probes"] = to_dict(read_config(layout, ContactPointLayout))
    if "drives" in tree:
        tree["drives"] = read_drives(tree["drives"], path.parent)
    for what in ("q", "qd", "control"):
        if isinstance(tree.get(what), str) and "*" in tree[what]:
            tree[what] = {"*": {"column": tree[what]}}
    parent = tree.pop("extends", None)
    if parent is None:
        return tree
    base = path.parent / str(parent)
    if base.resolve() in seen:
        raise InputError(f"{path}: extends itself through {base}; remove `extends`")
    return _read_tree(base, (*seen, base.resolve())) | tree


def with_centers(columns: ColumnMap, find: Callable[[], Mapping[str, Vector3]]) -> ColumnMap:
    """Return the map with centres of mass of free joints' bodies where it names none.

    `find` returns them by joint, in the bodies' frames [m]; it is called if any is needed.
    """
    needed = [name for name, joint in columns.poses.items() if joint.position and joint.center_of_mass is UNSET]
    if not needed:
        return columns
    centers = find()
    floating = {
        name: msgspec.structs.replace(columns.poses[name], center_of_mass=centers[name])
        for name in needed
        if name in centers
    }
    return msgspec.structs.replace(columns, floating=columns.floating | floating)


def with_alignment(columns: ColumnMap, alignment: Literal["auto"] | float) -> ColumnMap:
    """Return the map with another alignment [s], or raise an InputError if it is longer than a second."""
    try:
        return msgspec.structs.replace(columns, alignment=alignment)
    except ValueError as error:
        raise InputError(str(error)) from None
