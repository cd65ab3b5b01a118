# SPDX-License-Identifier: Apache-2.0
"""Definitions of ROS messages: how their text is read, and the usual ones, which older bags do not carry."""

import re
from dataclasses import dataclass
from functools import cache

from neurodyn.core.errors import InputError

PRIMITIVES = {
    "bool": "u1", "byte": "u1", "char": "u1", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2",
    "int32": "i4", "uint32": "u4", "int64": "i8", "uint64": "u8", "float32": "f4", "float64": "f8",
}  # fmt: skip
"""numpy's name of each type of number."""

_USUAL = """
builtin_interfaces/Time: int32 sec; uint32 nanosec
builtin_interfaces/Duration: int32 sec; uint32 nanosec
std_msgs/Header: builtin_interfaces/Time stamp; string frame_id
std_msgs/Float64: float64 data
std_msgs/Float32: float32 data
std_msgs/MultiArrayDimension: string label; uint32 size; uint32 stride
std_msgs/MultiArrayLayout: std_msgs/MultiArrayDimension[] dim; uint32 data_offset
std_msgs/Float64MultiArray: std_msgs/MultiArrayLayout layout; float64[] data
std_msgs/Float32MultiArray: std_msgs/MultiArrayLayout layout; float32[] data
geometry_msgs/Vector3: float64 x; float64 y; float64 z
geometry_msgs/Point: float64 x; float64 y; float64 z
geometry_msgs/Quaternion: float64 x; float64 y; float64 z; float64 w
geometry_msgs/Pose: geometry_msgs/Point position; geometry_msgs/Quaternion orientation
geometry_msgs/PoseStamped: std_msgs/Header header; geometry_msgs/Pose pose
geometry_msgs/PoseWithCovariance: geometry_msgs/Pose pose; float64[36] covariance
geometry_msgs/PoseWithCovarianceStamped: std_msgs/Header header; geometry_msgs/PoseWithCovariance pose
geometry_msgs/Twist: geometry_msgs/Vector3 linear; geometry_msgs/Vector3 angular
geometry_msgs/TwistStamped: std_msgs/Header header; geometry_msgs/Twist twist
geometry_msgs/TwistWithCovariance: geometry_msgs/Twist twist; float64[36] covariance
geometry_msgs/Wrench: geometry_msgs/Vector3 force; geometry_msgs/Vector3 torque
geometry_msgs/WrenchStamped: std_msgs/Header header; geometry_msgs/Wrench wrench
geometry_msgs/Transform: geometry_msgs/Vector3 translation; geometry_msgs/Quaternion rotation
geometry_msgs/TransformStamped: std_msgs/Header header; string child_frame_id; geometry_msgs/Transform transform
nav_msgs/Odometry: std_msgs/Header header; string child_frame_id; geometry_msgs/PoseWithCovariance pose; \
geometry_msgs/TwistWithCovariance twist
sensor_msgs/JointState: std_msgs/Header header; string[] name; float64[] position; float64[] velocity; float64[] effort
sensor_msgs/Imu: std_msgs/Header header; geometry_msgs/Quaternion orientation; float64[9] orientation_covariance; \
geometry_msgs/Vector3 angular_velocity; float64[9] angular_velocity_covariance; \
geometry_msgs/Vector3 linear_acceleration; float64[9] linear_acceleration_covariance
trajectory_msgs/JointTrajectoryPoint: float64[] positions; float64[] velocities; float64[] accelerations; \
float64[] effort; builtin_interfaces/Duration time_from_start
trajectory_msgs/JointTrajectory: std_msgs/Header header; string[] joint_names; \
trajectory_msgs/JointTrajectoryPoint[] points
"""


@dataclass(frozen=True)
class Field:
    """One field of a message.

    Attributes:
        kind: Type of its values: a primitive, "string", or "package/Type".
        name: Its name.
        count: Number of values of a fixed array; -1 for an array of any length, None for one value.
    """

    kind: str
    name: str
    count: int | None = None


Definitions = dict[str, tuple[Field, ...]]
"""Fields of each type of message, by "package/Type"."""


@cache
def usual() -> Definitions:
    """Return the definitions of the usual messages of ROS 2."""
    found: Definitions = {}
    for line in _USUAL.replace("\\\n", "").strip().splitlines():
        kind, _, fields = line.partition(": ")
        found[kind] = tuple(_field(text, kind) for text in fields.split("; "))
    return found


@cache
def usual_ros1() -> Definitions:
    """Return the definitions of the usual messages of ROS 1, whose headers count messages."""
    header = (Field("uint32", "seq"), Field("time", "stamp"), Field("string", "frame_id"))
    return {**usual(), "std_msgs/Header": header}


def short_name(kind: str) -> str:
    """Return "package/Type" of "package/msg/Type"."""
    parts = kind.split("/")
    return f"{parts[0]}/{parts[-1]}"


def parse_definitions(kind: str, text: str) -> Definitions:
    """Return the definitions in the text that a bag has for a type, those that it refers to included.

    Args:
        kind: "package/msg/Type".
        text: Definition in the language of .msg files, with those that it needs after lines of "=".

    Raises:
        InputError: The text is malformed, or refers to a type that is neither there nor usual.
    """
    found: Definitions = {}
    for index, part in enumerate(re.split(r"^={20,}\s*$", text, flags=re.MULTILINE)):
        lines = part.strip().splitlines()
        name = short_name(kind)
        if index:
            match = re.match(r"MSG:\s*(\S+)", lines[0]) if lines else None
            if match is None:
                raise InputError(f"the definition of {kind} is malformed; expected lines 'MSG: package/Type'")
            name, lines = short_name(match[1]), lines[1:]
        fields = [line.split("#")[0].strip() for line in lines]
        found[name] = tuple(_field(line, name) for line in fields if line and "=" not in _without_default(line))
    for name, fields in list(found.items()):
        for field in fields:
            _require(field.kind, name, found)
    return found


def _require(kind: str, of: str, found: Definitions) -> None:
    """Add a usual definition that a bag refers to and leaves out."""
    if kind in PRIMITIVES or kind in {"string", "time", "duration"} or kind in found:
        return
    if kind not in usual():
        raise InputError(f"the definition of {of} refers to {kind}, which the file does not define")
    found[kind] = usual()[kind]
    for field in found[kind]:
        _require(field.kind, kind, found)


def _without_default(line: str) -> str:
    """Return type and name of a field; of a constant, its value as well."""
    words = line.split(None, 2)
    bounded = words[0].replace("<=", "")  # string<=10 is a type
    return " ".join((bounded, words[1] if len(words) > 1 else "", words[2][:1] if len(words) > 2 else ""))


def _field(line: str, inside: str) -> Field:
    words = line.split()
    match = re.fullmatch(r"([\w/]+)(?:<=\d+)?(?:\[(<=)?(\d*)\])?", words[0])
    if match is None or len(words) < 2:
        raise InputError(f"the definition of {inside} has the field {line!r}; expected 'type name'")
    kind = match[1]
    if kind == "Header":
        kind = "std_msgs/Header"
    elif kind not in PRIMITIVES and kind not in {"string", "time", "duration", "wstring"}:
        kind = short_name(kind) if "/" in kind else f"{inside.split('/')[0]}/{kind}"
    count = None if "[" not in words[0] else (int(match[3]) if match[3] and not match[2] else -1)
    return Field(kind, words[1], count)
