# SPDX-License-Identifier: Apache-2.0
"""Writers of named quantities into the worlds of a simulator: what both simulators share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from neurodyn.core.description.contacts import SoftConstraints
from neurodyn.core.description.mechanism import INERTIA_ENTRIES
from neurodyn.core.errors import InputError, choices
from neurodyn.sim.articulations import Articulation

INERTIAL = ("mass", *(f"com.{axis}" for axis in "xyz"), *(f"inertia.{entry}" for entry in INERTIA_ENTRIES))
"""Inertial quantities of a link, which simulators store per body and which are written together."""

CONTACT_COLUMNS = {
    **{f"solref.{name}": ("solref", column) for column, name in enumerate(("timeconst", "dampratio"))},
    **{
        f"solimp.{name}": ("solimp", column)
        for column, name in enumerate(("d0", "dwidth", "width", "midpoint", "power"))
    },
}
"""Array of geoms and its column for each quantity of the compliance of contacts with scenes."""

Write = Callable[..., None]
"""Writes the value of one quantity."""


class ParameterWriter(ABC):
    """Writes values of named quantities into worlds.

    Quantities have the names of the hybrid engine (`multibody.engine.nominal`): LINK.mass, LINK.com.x, LINK.inertia.xx,
    JOINT.damping, JOINT.armature, JOINT.friction, JOINT.stiffness, JOINT.rest, JOINT.lower, JOINT.upper,
    contact.friction, contact.solref.timeconst, contact.solimp.d0 and so on, and contact.SHAPE.friction. Contact
    quantities apply to contacts with the scene, where the robot's own numbers win.
    """

    simulator: ClassVar[str]

    def __init__(self, articulation: Articulation, geoms: Mapping[str, int]) -> None:
        """Start with the robot as built, and the geom of each of its shapes, by name."""
        self._articulation, self._geoms = articulation, geoms
        self._joint = {link.joint.name: index for index, link in enumerate(articulation.links)}

    def require(self, names: Sequence[str]) -> None:
        """Raise an `InputError` for a quantity that has no number in the model."""
        for name in names:
            if self._writer(name) is None:
                raise InputError(
                    f"parameter {name!r}: {self.simulator}'s worlds cannot differ in it; valid: mass, com, inertia, "
                    f"damping, armature, friction, stiffness, rest, lower or upper of {choices(list(self._joint)[:4])} "
                    "..., or contact.friction, contact.solref and contact.solimp"
                )

    def _writer(self, name: str) -> Write | None:
        """Return the writer of a quantity; None if the model has no number for it."""
        owner, _, what = name.partition(".")
        if owner == "contact":
            field, shapes = _shapes_with(self._articulation.constraints, what, self._geoms)
            return self._contact_writer(field, [self._geoms[name] for name in shapes]) if shapes else None
        return self._joint_writer(self._joint[owner], what) if owner in self._joint else None

    def _inertial(self, values: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
        """Return the inertial quantities among values, by link: all of those links, with the declared others."""
        links: dict[int, dict[str, Any]] = {}
        for name, value in values.items():
            owner, _, what = name.partition(".")
            if what in INERTIAL:
                joint = self._joint[owner]
                if joint not in links:
                    link = self._articulation.links[joint]
                    links[joint] = dict(zip(INERTIAL, (link.mass, *link.com, *link.inertia), strict=True))
                links[joint][what] = value
        return links

    @abstractmethod
    def _contact_writer(self, field: str, geoms: list[int]) -> Write | None:
        """Return the writer of a contact quantity of geoms; None if the model has no number for it."""

    @abstractmethod
    def _joint_writer(self, joint: int, what: str) -> Write | None:
        """Return the writer of a quantity of a joint or of its link; None if the model has no number for it."""


def nothing(*values: Any) -> None:
    """Write nothing: the writer of inertial quantities, which are written together."""


def _shapes_with(constraints: SoftConstraints, what: str, shapes: Iterable[str]) -> tuple[str, list[str]]:
    """Return a contact property, and the shapes whose value of it comes from a quantity.

    Args:
        constraints: The constraints of the robot.
        what: The quantity without "contact.": a property, or SHAPE.property.
        shapes: Names of the robot's shapes.

    Returns:
        The property; and the shape that the quantity names, if it has its own value, or all shapes without their own.
    """
    names = list(shapes)
    shape = next((name for name in names if what.startswith(f"{name}.")), None)
    field = what if shape is None else what[len(shape) + 1 :]
    own = constraints.own(field)
    return field, [name for name in names if (name not in own if shape is None else name == shape and name in own)]
