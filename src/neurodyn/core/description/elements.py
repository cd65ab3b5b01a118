# SPDX-License-Identifier: Apache-2.0
"""Passive forces on links as plain data: of elements between joints or points, and of the surrounding medium.

A kind of element is one record in `FORCE_ELEMENTS`: its parameters, its traced forces, and its reader for Newton
models. Mechanisms, hybrid engines, identification and robot declarations all use that record.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from neurodyn.core.config import Config
from neurodyn.core.description.record import (
    Bound,
    HasQuantities,
    Path,
    components,
    require_distinct,
    require_fields,
    require_known,
    require_word,
)
from neurodyn.core.description.scene import Pose, Vector3
from neurodyn.core.errors import require
from neurodyn.core.registry import Registry

QUANTITY = "element."
"""Name prefix of the quantities of elements: "element.NAME.PARAMETER"."""


@dataclass(frozen=True)
class ForceElementKind:
    """A kind of force element."""

    numbers: Mapping[str, float]
    """Parameter names with their defaults."""
    forces: Callable[..., Any]
    """Traced function from an element's step (`multibody.elements.ElementStep`) to its forces
    (`multibody.elements.ElementForces`)."""
    bounds: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    """Bounds of its parameters; None for no bound. Parameters not listed are at least 0."""
    least: int = 1
    remembers: float = 0.0
    """Seconds of a measured past on which its forces depend, in units of its parameter "time"; 0 for none."""
    read: Callable[..., "tuple[ForceElement, ...]"] | None = None
    """Function from a Newton model and the declared robot to its elements of this kind; None for elements that can only
    be declared."""


def drag(step: Any) -> Any:
    r"""Return the drag of air at rest on a body, linear in its motion, in the axes of the body.

    $$f = -D\, (v + \omega \times c), \quad m = -T \omega + c \times f$$

    about the attachment, at a place c from it: D and T are diagonal. Rotors have such a drag in their plane, and resist
    to turning as their thrust falls with the speed along them.
    """
    at = step.element.attachments[0]
    point = [x + step(f"at_{axis}") for x, axis in zip(at.point, "xyz", strict=True)]
    spin, velocity = step.twist(at.joint, point)
    moment = [-step(f"turn_{axis}") * w for axis, w in zip("xyz", spin, strict=True)]
    return step.push(at.joint, point, moment, [-step(axis) * v for axis, v in zip("xyz", velocity, strict=True)])


def disturbance(step: Any) -> Any:
    r"""Return what a model missed in the measured past of a free body, as a wrench that lasts.

    The error of each predicted velocity moves an acceleration d, in the axes of the body, which the past ends with:

    $$\dot d = (a - \hat a - d) / T$$

    Nothing is missed in a roll-out, so that it keeps d; without a past it is zero. Trim, wind and the state of a
    battery act so: a controller counteracts them, and its commands alone would tip the body over.
    """
    joint = step.element.attachments[0].joint
    return step.push(joint, *step.missing_force(joint, 1.0 / step("time")))


_PLACES = ("at_x", "at_y", "at_z")
_DRAG = ForceElementKind(
    dict.fromkeys((*"xyz", "turn_x", "turn_y", "turn_z", *_PLACES), 0.0), drag,
    bounds=dict.fromkeys(_PLACES, (None, None)),
)  # fmt: skip
FORCE_ELEMENTS: Registry[ForceElementKind] = Registry(
    "kind of force element", drag=_DRAG,
    disturbance=ForceElementKind({"time": 0.25}, disturbance, bounds={"time": (0.01, None)}, remembers=2.0),
)  # fmt: skip
"""Kinds of force elements by name."""


class Attachment(Config, frozen=True):
    """A joint or a point that a force element acts on."""

    joint: str = ""
    """The joint, or the joint that moves the body of the point; empty for the world."""
    point: Vector3 = (0.0, 0.0, 0.0)
    """The point in the frame of that body, or of the world [m]."""
    factor: float = 1.0
    """Weight of the attachment, for example the moment arm of a joint [m/rad]."""

    def __post_init__(self) -> None:
        require_fields(self, "attachment", finite=("point", "factor"))


class ForceElement(Config, HasQuantities, frozen=True):
    """One force element."""

    name: str
    kind: str
    """A name in `FORCE_ELEMENTS`."""
    attachments: tuple[Attachment, ...]
    """Joints and points it acts on, in the order that the kind expects."""
    values: dict[str, float] = msgspec.field(default_factory=dict)
    """Parameter values that differ from the defaults of the kind."""

    def __post_init__(self) -> None:
        FORCE_ELEMENTS.require(self.kind)
        kind, where = FORCE_ELEMENTS[self.kind], f"element {self.name!r}"
        require_word(self.name, where)
        require(len(self.attachments) >= kind.least, where, len(self.attachments), f"{kind.least} or more attachments")
        for name, value in self.values.items():
            require(name in kind.numbers, f"{where}: a number", repr(name), f"{', '.join(kind.numbers)}")
            least, most = self.bounds_of(name)
            low, high = -math.inf if least is None else least, math.inf if most is None else most
            ok = math.isfinite(value) and low <= value <= high
            require(ok, f"{where}: {name}", value, f"a finite number between {low:g} and {high:g}")

    def bounds_of(self, name: str) -> tuple[float | None, float | None]:
        """Return the lower and upper bound of a parameter."""
        return FORCE_ELEMENTS[self.kind].bounds.get(name, (0.0, None))

    def quantities(self) -> dict[str, float]:
        """Return its parameters by quantity name."""
        numbers = {**FORCE_ELEMENTS[self.kind].numbers, **self.values}
        return {f"{QUANTITY}{self.name}.{name}": float(value) for name, value in numbers.items()}

    @property
    def past(self) -> float:
        """Length of the measured past on which its forces depend [s]."""
        kind = FORCE_ELEMENTS[self.kind]
        return kind.remembers * {**kind.numbers, **self.values}["time"] if kind.remembers else 0.0

    def paths(self) -> dict[str, Path]:
        """See `HasQuantities.paths`."""
        return {f"{QUANTITY}{self.name}.{name}": ("values", name) for name in FORCE_ELEMENTS[self.kind].numbers}

    def bounds(self) -> dict[str, Bound]:
        """Return the bounds of its quantities."""
        return {name: self.bounds_of(name.rpartition(".")[2]) for name in self.paths()}


def require_elements(elements: Sequence[ForceElement], joints: Sequence[str]) -> None:
    """Raise a ValueError for elements of unknown joints or with duplicate names."""
    require_distinct("element", [element.name for element in elements])
    for element in elements:
        require_known(f"element {element.name!r}: joint", [one.joint for one in element.attachments], ("", *joints))


def read_elements(model: Any, robot: Any) -> tuple[ForceElement, ...]:
    """Return the force elements of all kinds in a Newton model."""
    readers = [kind.read for kind in FORCE_ELEMENTS.values() if kind.read is not None]
    return tuple(element for read in readers for element in read(model, robot))


MEDIUM = "medium."
"""Name prefix of its quantities."""


class ImmersedBody(Config, frozen=True):
    """A box or ellipsoid, part of a link, that is subject to the medium's forces."""

    link: str
    kind: Literal["box", "ellipsoid"]
    """"box" (drag of the box with the body's inertia) or "ellipsoid" (drag, lift and added mass of one)."""
    pose: Pose
    """Its frame in the link's body."""
    size: Vector3
    """Edges of a box, or semi-axes of an ellipsoid [m]."""
    interaction: float = 1.0
    """Factor on all its forces."""
    drag: Vector3 = (0.0, 0.0, 0.0)
    """Ellipsoid only: coefficients of blunt, slender and angular drag."""
    lift: tuple[float, float] = (0.0, 0.0)
    """Ellipsoid only: coefficients of Kutta and Magnus lift."""
    added_mass: Vector3 = (0.0, 0.0, 0.0)
    """Ellipsoid only: volume of added mass along its axes [m^3]."""
    added_inertia: Vector3 = (0.0, 0.0, 0.0)
    """Ellipsoid only: the same for rotations [m^5]."""

    def __post_init__(self) -> None:
        finite = ("pose", "drag", "lift", "added_mass", "added_inertia", "interaction")
        require_fields(self, f"medium: body of {self.link!r}", finite=finite, above=("size [m]",))


class Medium(Config, HasQuantities, frozen=True):
    """A medium at rest or in motion."""

    bodies: tuple[ImmersedBody, ...]
    density: float = 0.0
    """Density [kg/m^3]."""
    viscosity: float = 0.0
    """Dynamic viscosity [Pa s]."""
    wind: Vector3 = (0.0, 0.0, 0.0)
    """Velocity in world axes [m/s]."""

    def __post_init__(self) -> None:
        require_fields(self, "medium", least=("density", "viscosity"), finite=("wind [m/s]",))

    def paths(self) -> dict[str, Path]:
        """See `HasQuantities.paths`."""
        scalars: dict[str, Path] = {f"{MEDIUM}{name}": (name,) for name in ("density", "viscosity")}
        return scalars | components(f"{MEDIUM}wind", ("wind",), "xyz")

    def bounds(self) -> dict[str, Bound]:
        """Return the bounds of its quantities."""
        return {name: (None, None) if "wind" in name else (0.0, None) for name in self.paths()}
