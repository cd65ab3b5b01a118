# SPDX-License-Identifier: Apache-2.0
"""Where a drive acts if not at the joint of its own name: links, ball and free joints, frames, cranks, contacts.

Each has a length l, on which the law of the drive acts, and passes its force on along the derivative of l.
"""

import math

from neurodyn.core.config import Config
from neurodyn.core.description.scene import IDENTITY, Pose, Vector3
from neurodyn.core.errors import require

PLACES = ("transmission", "tendons", "wrench", "turning", "between", "crank", "adhesion")
"""Fields of a drive that say where it acts."""


class BodyWrench(Config, frozen=True):
    """Force and moment on a link per unit of an actuator's force, in the link's body frame. The length is 0.

    Attributes:
        link: Joint that names the link.
        point: Point of application [m].
        force: Force [1].
        moment: Moment [m].
    """

    link: str
    point: Vector3 = (0.0, 0.0, 0.0)
    force: Vector3 = (0.0, 0.0, 0.0)
    moment: Vector3 = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        _require_finite("wrench", point=self.point, force=self.force, moment=self.moment)


class TurningJoint(Config, frozen=True):
    """Force and moment across a ball or free joint per unit of an actuator's force.

    The length of a ball joint is its rotation vector along the moment; that of a free joint is 0.

    Attributes:
        joint: Name of the joint.
        moment: Moment [1].
        force: Force at the origin of a free joint's body, in world axes [1].
        in_parent: Whether the moment is in the axes of the joint's parent instead of the link's.
    """

    joint: str
    moment: Vector3 = (0.0, 0.0, 0.0)
    force: Vector3 = (0.0, 0.0, 0.0)
    in_parent: bool = False

    def __post_init__(self) -> None:
        _require_finite("turning", moment=self.moment, force=self.force)


class FrameOffset(Config, frozen=True):
    """Position and rotation vector of a frame in another one, each times factors, as the length of a drive.

    Attributes:
        link: Joint that names the link of the frame; empty for the world.
        frame: The frame in the link's body, or in the world.
        reference: Joint that names the link of the other frame; empty for the world.
        reference_frame: The other frame.
        along: Factors on the position [1].
        about: Factors on the rotation vector [m/rad or 1].
    """

    link: str = ""
    frame: Pose = IDENTITY
    reference: str = ""
    reference_frame: Pose = IDENTITY
    along: Vector3 = (0.0, 0.0, 0.0)
    about: Vector3 = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        numbers = {"frame": self.frame, "reference_frame": self.reference_frame}
        _require_finite("between", along=self.along, about=self.about, **numbers)
        require(any((*self.along, *self.about)), "between: along and about", 0, "a factor other than 0")
        for name, frame in numbers.items():
            fine = abs(math.hypot(*frame[3:]) - 1.0) < 1e-6
            require(fine, f"between: rotation of {name}", list(frame[3:]), "a unit quaternion")


class SliderCrank(Config, frozen=True):
    """A slider that a rod connects with a pin; the length is the slider's position, times a factor.

    Attributes:
        rod: Length of the rod [m].
        link: Joint that names the link of the pin; empty for the world.
        point: The pin in the link's body, or in the world [m].
        slider: Joint that names the link that guides the slider; empty for the world.
        origin: Where the slider's position is 0, in that link's body, or in the world [m].
        axis: Unit vector along which it slides.
        factor: Factor on the position [1].
    """

    rod: float
    link: str = ""
    point: Vector3 = (0.0, 0.0, 0.0)
    slider: str = ""
    origin: Vector3 = (0.0, 0.0, 0.0)
    axis: Vector3 = (0.0, 0.0, 1.0)
    factor: float = 1.0

    def __post_init__(self) -> None:
        _require_finite("crank", point=self.point, origin=self.origin, axis=self.axis, factor=(self.factor,))
        require(0 < self.rod < math.inf, "crank: rod", self.rod, "a finite number above 0 [m]")
        require(self.factor != 0, "crank: factor", self.factor, "a number other than 0")
        require(abs(math.hypot(*self.axis) - 1.0) < 1e-6, "crank: axis", list(self.axis), "a vector of length 1")


def links_of(place: BodyWrench | TurningJoint | FrameOffset | SliderCrank | str) -> tuple[str, ...]:
    """Return the links of a place, by joint; empty for the world."""
    match place:
        case BodyWrench():
            return (place.link,)
        case TurningJoint():
            return (place.joint,)
        case FrameOffset():
            return (place.link, place.reference)
        case SliderCrank():
            return (place.link, place.slider)
    return (place,)


def _require_finite(where: str, **given: tuple[float, ...]) -> None:
    for name, values in given.items():
        require(all(map(math.isfinite, values)), f"{where}: {name}", list(values), "finite numbers")


def require_factors(name: str, given: dict[str, float]) -> None:
    """Raise a ValueError unless there are factors by name, finite and other than 0."""
    fits = bool(given) and all(math.isfinite(x) and x != 0 for x in given.values())
    require(fits, name, given, f"a finite factor other than 0 for each of its {_OF[name]}")


_OF = {"transmission": "joints", "tendons": "tendons"}
