# SPDX-License-Identifier: Apache-2.0
"""What the name of a log's column says: quantity, joint and unit."""

import re
from dataclasses import dataclass
from typing import Literal

from neurodyn.data.readers.source import split_reference
from neurodyn.data.readers.unitree import motor_field

Quantity = Literal["position", "velocity", "effort", "command"]

_WORDS: dict[Quantity, tuple[str, ...]] = {
    "command": (
        "action", "actions", "cmd", "command", "commanded", "commands", "ctrl", "des", "desired", "goal", "target",
        "setpoint", "u",
    ),
    "velocity": (
        "velocity", "velocities", "vel", "qvel", "qd", "dq", "qdot", "dot", "dtheta", "speed", "omega", "rpm",
    ),
    "effort": ("effort", "torque", "torques", "tau", "moment", "force", "current", "eff"),
    "position": ("position", "positions", "pos", "qpos", "q", "angle", "angles", "theta", "joint", "state"),
}  # fmt: skip
"""Words in column names, by quantity; the first match wins."""
_NUMBERED = re.compile(f"({'|'.join({*sum(_WORDS.values(), ())} - {'joint', 'state'})})(\\d+)(dot)?")
"""Such a word with the number of a joint, such as q1 or q1dot; `joint1` is a name."""
JOINT_NUMBER = re.compile(r"(?:axis|id|j|joint|motor|servo)?_?(\d+)")
"""Names by numbers, where no joint has them."""
_MEASURED = {"actual", "applied", "feedback", "joints", "measured", "meas", "observed", "present", "states"}
"""Words beside a joint's name that say what every reading is."""

_NO_JOINT = (
    "orientation", "linear", "angular", "root", "eef", "ee", "object", "time", "timestamp", "covariance", "force",
    "ft", "gripper_pos", "quat", "cube", "covariances", "initial", "quaternion", "imu", "gyroscope", "gyro", "acc",
    "accel", "accelerometer", "foot", "footforce", "temperature",
)  # fmt: skip
_ROS_STATE = re.compile(r"(.+)\.(?:.*\.)?(position|velocity|effort|positions|velocities)\[([^\]]+)\]")


TOLD: dict[Quantity, dict[str, str]] = {
    "position": {
        "deg": "deg", "degree": "deg", "degrees": "deg", "rad": "rad", "mrad": "mrad", "rev": "rev", "m": "m",
        "mm": "mm", "cm": "cm",
    },
    "velocity": {
        "deg s": "deg/s", "degs": "deg/s", "dps": "deg/s", "rad s": "rad/s", "rads": "rad/s", "rpm": "rpm",
        "rev s": "rev/s", "m s": "m/s", "mm s": "mm/s", "cm s": "cm/s",
    },
    "effort": {"nm": "N m", "n m": "N m", "mnm": "mN m", "mn m": "mN m", "ncm": "N cm", "n cm": "N cm"},
}  # fmt: skip
"""Units at the end of columns' names, in lower case, by what they measure."""
_UNIT_WORDS = {word for units in TOLD.values() for unit in units for word in unit.split()} | {"ma"}
_SYMBOLS = re.compile(r"(?<![A-Za-z])(m?N ?c?m|mA)(?![A-Za-z])")
"""Symbols of units, which are no two words."""
_BARE = {"joint", "joints", "state"}
"""Words beside a joint's name that tell nothing of a command."""
CURRENTS = {"current", "currents", "ma", "amps", "amperes", "iq"}


def told_unit(column: str) -> str | None:
    """Return the unit that a joint's column has at the end of its name, as "elbow_pos_deg" has; None for none."""
    own, found = meaning(column), _unit_at_end(column)
    if own is None or found is None or own.array != column:  # the name of a joint in an array
        return None
    return found[1] if own.quantity in {found[0], "command"} else None


def _unit_at_end(column: str) -> tuple[Quantity, str] | None:
    """Return the unit at the end of a name, and what it measures."""
    words = words_of(column)
    for end in (" ".join(words[-count:]) for count in (2, 1) if len(words) > count):
        for quantity, units in TOLD.items():
            if end in units:
                return quantity, units[end]
    return None


def commanded(column: str) -> Quantity | None:
    """Return what a command commands, from the unit or another word in its name; None if it tells neither."""
    if (found := _unit_at_end(column)) is not None:
        return found[0]
    words = [part for word in words_of(column) for part in _parts(word)]
    kinds: tuple[Quantity, ...] = ("velocity", "effort", "position")
    return next((kind for kind in kinds if any(word in _WORDS[kind] for word in words if word not in _BARE)), None)


@dataclass(frozen=True)
class ColumnMeaning:
    """Meaning of a column's name.

    `key` is the joint's name or number, and `array` the array, topic or field that contains the column. It is `ordered`
    if the key is a number in an order that the log does not explain.
    """

    quantity: Quantity
    key: str
    array: str
    ordered: bool


def meaning(column: str) -> ColumnMeaning | None:
    """Return the meaning of a column's name; None if it does not concern a joint."""
    motor = motor_field(column)
    if motor is not None:
        array, number, what, command = motor
        return ColumnMeaning("command" if command else what, str(number), f"{array}.{what}", True)
    match = _ROS_STATE.fullmatch(column)
    if match:
        topic, name, key = match.groups()
        command = not set(words_of(topic)).isdisjoint(_WORDS["command"]) or ".points[" in column
        quantity: Quantity = (
            "position" if name.startswith("pos") else "velocity" if name.startswith("vel") else "effort"
        )
        return ColumnMeaning("command" if command else quantity, key, f"{topic}.{name}", key.isdecimal())
    array, key = split_reference(column)
    if key is not None and _UNIT_WORDS.issuperset(words_of(key)):  # "elbow position [deg]"
        array, key = column, None
    if key is not None and not key.isdecimal():
        stem, _, suffix = key.rpartition(".")
        inner = _quantity(suffix) if stem else None
        outer = _quantity(array)
        quantity_ = "command" if outer == "command" else inner or outer
        return None if quantity_ is None else ColumnMeaning(quantity_, stem if inner else key, array, False)
    words = [part for word in words_of(array) for part in _parts(word)]
    if any(word in _NO_JOINT for word in words):
        return None
    quantity_ = _quantity(" ".join(words))
    found = _unit_at_end(array)
    if quantity_ is None and found is not None and found[1] != "m":  # "elbow_deg"; many things are in metres
        quantity_ = found[0]
    if quantity_ is None:
        return None
    if key is not None:
        return ColumnMeaning(quantity_, key, array, True)
    rest = [word for word in words if not any(word in known for known in _WORDS.values())]
    rest = [word for word in rest if word not in _UNIT_WORDS | _MEASURED]
    return ColumnMeaning(quantity_, "_".join(rest), array, False) if rest else None


def _quantity(text: str) -> Quantity | None:
    words = words_of(text)
    return next((quantity for quantity, known in _WORDS.items() if any(word in known for word in words)), None)


def words_of(text: str) -> list[str]:
    """Return the words of a name in lower case, at underscores and the like and where capitals begin."""
    text = _SYMBOLS.sub(lambda found: found[0].lower(), text.replace("°", " deg "))
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", text)
    return [word for word in re.split(r"[^a-z0-9]+", spaced.lower()) if word]


def _parts(word: str) -> tuple[str, ...]:
    """Return the word for a quantity and the number of a joint, such as tau and 1, or the word itself."""
    found = _NUMBERED.fullmatch(word)
    return tuple(part for part in found.groups() if part) if found else (word,)


def plain_name(name: str) -> str:
    """Return a name's letters and digits in lower case, by which joints and columns are compared."""
    return re.sub(r"[^a-z0-9]+", "", name.lower())
