# SPDX-License-Identifier: Apache-2.0
r"""Contact between two bodies: corners of either shape beside the other one.

A corner with radius r at distance d from the other shape touches it at depth $r - d + m$, with the margin m, at its
point nearest to that shape. Place, normal and slip are quantities in the body frame of the second shape, and the step
goes on from them, so that networks see a contact as the object does, wherever it lies, and can move it. The force on
the one body and the reaction on the other act at the same point of the world.
"""

from collections.abc import Mapping, Sequence

from neurodyn.core.description.body_contacts import BodyContact
from neurodyn.core.description.scene import Vector3
from neurodyn.core.errors import InputError, choices
from neurodyn.multibody.articulated import LinkMotion, Tree
from neurodyn.multibody.bodies.shapes import distance
from neurodyn.multibody.points import LinkPose, Touch
from neurodyn.multibody.scope import Scope
from neurodyn.multibody.vectors import Vector, array, cross, dot

MARGIN = "margin"
"""Distance at which surfaces touch before they meet [m]."""


def contact_quantities(pairs: Sequence[BodyContact], defaults: Mapping[str, float]) -> dict[str, float]:
    """Return the nominal values of the quantities of contacts between bodies.

    Args:
        pairs: The contacts; a number that the contact model does not know is that of another one.
        defaults: Nominal values of a contact model, as "contact.friction".

    Raises:
        InputError: A number has a name that no contact model knows.
    """
    values: dict[str, float] = {}
    own = {name.removeprefix("contact."): value for name, value in defaults.items()} | {MARGIN: 0.0}
    for pair in pairs:
        for name in pair.quantities:
            if name not in own and name not in _EVERY:
                valid = choices([*own, *_EVERY])
                raise InputError(f"body contact {pair.name!r}: there is no quantity {name!r}; valid: {valid}")
        values |= {f"contact.{pair.name}.{name}": pair.quantities.get(name, value) for name, value in own.items()}
    return values


_EVERY = ("stiffness", "damping", "friction", "slip_speed", "restitution", "baumgarte", "cfm")
"""Quantities of all contact models that know contacts between bodies."""


def body_touches(tree: Tree, motions: Sequence[LinkMotion], poses: Sequence[LinkPose], scope: Scope) -> list[Touch]:
    """Measure the bodies of a mechanism against each other.

    Args:
        tree: The mechanism.
        motions: Motions of its links.
        poses: Their poses.
        scope: Where what is measured has names: depth, and place, normal and slip in the second shape's body frame.
    """
    names = [link.joint.name for link in tree.links]
    view = _View(tree, motions, poses, names)
    found = []
    for pair in tree.mechanism.body_contacts:
        for name, corner, of_first in pair.points:
            found.append(_touch(view, scope, pair, name, corner, of_first))
    return found


class _View:
    """The links of a step by name, in their body frames."""

    def __init__(
        self, tree: Tree, motions: Sequence[LinkMotion], poses: Sequence[LinkPose], names: Sequence[str]
    ) -> None:
        self._tree, self._motions, self._poses, self._names = tree, motions, poses, names

    def index(self, link: str) -> int:
        return self._names.index(link)

    def arm(self, link: str, place: Vector) -> Vector:
        """Return a place of a body from the origin of its link's frame, world axes."""
        index = self.index(link)
        return self._poses[index].turn @ self._tree.in_link_frame(index, place)

    def world(self, link: str, place: Vector) -> Vector:
        return self._poses[self.index(link)].origin + self.arm(link, place)

    def place(self, link: str, point: Vector) -> Vector:
        """Return a point of the world in a body's frame."""
        index = self.index(link)
        pose = self._poses[index]
        return self._tree.in_body_frame(index, pose.turn.T @ (point - pose.origin))

    def turned(self, link: str, direction: Vector) -> Vector:
        """Turn a direction from a body's frame to the world."""
        index = self.index(link)
        return self._poses[index].turn @ self._tree.turned_to_link(index, direction)

    def turned_back(self, link: str, direction: Vector) -> Vector:
        index = self.index(link)
        return self._tree.turned_to_body(index, self._poses[index].turn.T @ direction)

    def velocity(self, link: str, arm: Vector) -> Vector:
        index = self.index(link)
        turn, motion = self._poses[index].turn, self._motions[index]
        return turn @ motion.velocity + cross(turn @ motion.spin, arm)

    def arm_of(self, link: str, point: Vector) -> Vector:
        return point - self._poses[self.index(link)].origin


def _touch(view: _View, scope: Scope, pair: BodyContact, name: str, corner: Vector3, of_first: bool) -> Touch:
    pointed, other = (pair.first, pair.second) if of_first else (pair.second, pair.first)
    seen, constants = pair.second.link, f"contact.{pair.name}"

    def named(what: str, values: Vector) -> Vector:
        return array([scope.define(f"contact.{name}.{what}.{x}", v) for x, v in zip("xyz", values, strict=True)])

    centre = view.world(pointed.link, array(corner))
    reach, outward = distance(other, view.place(other.link, centre))
    outward = view.turned(other.link, outward)
    depth = pointed.radius + scope(f"{constants}.{MARGIN}") - reach
    depth = scope.define(f"contact.{name}.depth", depth)
    # What is named is the outward normal of the second shape, whichever has the corner.
    side = 1.0 if of_first else -1.0
    normal = view.turned(seen, named("outward", view.turned_back(seen, side * outward)))
    place = named("place", view.place(seen, centre - pointed.radius * outward))
    point = view.world(seen, place)
    arms = view.arm_of(pair.first.link, point), view.arm_of(seen, point)
    moving = view.velocity(pair.first.link, arms[0]) - view.velocity(seen, arms[1])
    approach = dot(normal, moving)
    slip = view.turned(seen, named("slip", view.turned_back(seen, moving - approach * normal)))
    return Touch(
        name, view.index(pair.first.link), arms[0], normal, depth, approach * normal + slip, view.index(seen), arms[1],
        constants,
    )  # fmt: skip
