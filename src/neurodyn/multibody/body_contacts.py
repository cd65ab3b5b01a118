# SPDX-License-Identifier: Apache-2.0
"""Contact between two bodies at the corners of their shapes, and friction under a body that slides on a plane."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neurodyn.core.description.contacts import BodyContact, BodyShape, Support
from neurodyn.core.description.scene import Vector3
from neurodyn.core.errors import InputError, choices
from neurodyn.multibody.articulated import RelativeMotion, Tree
from neurodyn.multibody.points import LinkPose, PointContact, Wrenches
from neurodyn.multibody.scope import Scope
from neurodyn.multibody.trace import absolute, exp, maximum, minimum, safe_sqrt, select_less, tanh
from neurodyn.multibody.vectors import Vector, array, cross, dot


def distance(shape: BodyShape, point: Vector) -> tuple[Any, Vector]:
    """Return signed distance of a point to a shape [m], negative inside, and the outward unit normal.

    Args:
        shape: The shape.
        point: Floats or traced values in the frame of the shape's body [m].
    """
    seen = point - array(shape.position)
    if shape.half is not None:
        reach, normal = _of_box(shape.half, seen)
    elif shape.vertices:
        reach, normal = _of_polygon(shape.vertices, seen)
    else:
        reach = safe_sqrt(dot(seen, seen))
        normal = seen / reach
    return reach - shape.radius, normal


def _of_box(half: Sequence[float], p: Vector) -> tuple[Any, Vector]:
    beyond = [absolute(x) - h for x, h in zip(p, half, strict=True)]
    sign = [select_less(x, 0.0, -1.0, 1.0) for x in p]
    out = [maximum(x, 0.0) for x in beyond]
    away = safe_sqrt(dot(out, out))
    nearest = maximum(maximum(beyond[0], beyond[1]), beyond[2])
    # Beyond one face, the normal is the face's; beyond several, it points away from an edge or a corner.
    face = _first_of([select_less(x, nearest, 0.0, 1.0) for x in beyond])
    second = maximum(maximum(minimum(beyond[0], beyond[1]), minimum(beyond[0], beyond[2])),
                     minimum(beyond[1], beyond[2]))  # fmt: skip
    normal = array([s * select_less(0.0, second, o / away, f) for s, o, f in zip(sign, out, face, strict=True)])
    return select_less(0.0, second, away, nearest), normal


def _first_of(marks: list[Any]) -> list[Any]:
    """Keep only the first of several marks that equal 1."""
    first, second, third = marks
    return [first, (1.0 - first) * second, (1.0 - first) * (1.0 - second) * third]


def _of_polygon(vertices: Sequence[tuple[float, float]], p: Vector) -> tuple[Any, Vector]:
    inside: Any = None
    nearest: Any = None
    face, off = (0.0, 0.0), (0.0, 0.0)
    for (ax, ay), (bx, by) in zip(vertices, [*vertices[1:], vertices[0]], strict=True):
        ex, ey = bx - ax, by - ay
        length = (ex * ex + ey * ey) ** 0.5
        nx, ny = ey / length, -ex / length
        x, y = p[0] - ax, p[1] - ay
        height = nx * x + ny * y
        along = (ex * x + ey * y) * (1.0 / (length * length))
        share = minimum(maximum(along, 0.0), 1.0)
        dx, dy = x - share * ex, y - share * ey
        squared = dx * dx + dy * dy
        reach = safe_sqrt(squared)
        # Between the ends of an edge, the direction is the edge's normal.
        beside = select_less(absolute(along - 0.5), 0.5, 1.0, 0.0)
        towards = [select_less(0.5, beside, n, d / reach) for n, d in ((nx, dx), (ny, dy))]
        if inside is None:
            inside, face, nearest, off = height, (nx, ny), squared, towards
            continue
        face = [select_less(inside, height, n, old) for n, old in zip((nx, ny), face, strict=True)]
        inside = maximum(inside, height)
        off = [select_less(squared, nearest, new, old) for new, old in zip(towards, off, strict=True)]
        nearest = minimum(squared, nearest)
    reach = safe_sqrt(nearest)
    normal = [select_less(0.0, inside, o, f) for o, f in zip(off, face, strict=True)]
    return select_less(0.0, inside, reach, inside), array([*normal, 0.0])


MARGIN = "margin"
"""Gap below which surfaces count as touching [m]."""


def contact_quantities(pairs: Sequence[BodyContact], defaults: Mapping[str, float]) -> dict[str, float]:
    """Return the nominal values of the quantities of body contacts.

    Args:
        pairs: The contacts; numbers that only other contact models use are ignored.
        defaults: Nominal values of a contact model, e.g. "contact.friction".

    Raises:
        InputError: A number has a name that no contact model uses.
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
"""Quantities of all contact models that support contacts between bodies."""


def body_touches(
    tree: Tree, motions: Sequence[RelativeMotion], poses: Sequence[LinkPose], scope: Scope
) -> list[PointContact]:
    """Measure the bodies of a mechanism against each other.

    Args:
        tree: The mechanism.
        motions: Motions of its links.
        poses: Poses of its links.
        scope: Receives the measured quantities: depth; place, normal and slip in the second shape's body frame.
    """
    names = [link.joint.name for link in tree.links]
    view = _View(tree, motions, poses, names)
    found = []
    for pair in tree.mechanism.body_contacts:
        for name, corner, of_first in pair.points:
            found.append(_touch(view, scope, pair, name, corner, of_first))
    return found


class _View:
    """Links of a step by name, in their body frames."""

    def __init__(
        self, tree: Tree, motions: Sequence[RelativeMotion], poses: Sequence[LinkPose], names: Sequence[str]
    ) -> None:
        self._tree, self._motions, self._poses, self._names = tree, motions, poses, names

    def index(self, link: str) -> int:
        return self._names.index(link)

    def arm(self, link: str, place: Vector) -> Vector:
        """Return a point of a body relative to the origin of its link's frame, world axes."""
        index = self.index(link)
        return self._poses[index].turn @ self._tree.in_link_frame(index, place)

    def world(self, link: str, place: Vector) -> Vector:
        return self._poses[self.index(link)].origin + self.arm(link, place)

    def place(self, link: str, point: Vector) -> Vector:
        """Transform a point from the world to a body's frame."""
        index = self.index(link)
        pose = self._poses[index]
        return self._tree.in_body_frame(index, pose.turn.T @ (point - pose.origin))

    def turned(self, link: str, direction: Vector) -> Vector:
        """Rotate a direction from a body's frame to the world."""
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


def _touch(view: _View, scope: Scope, pair: BodyContact, name: str, corner: Vector3, of_first: bool) -> PointContact:
    pointed, other = (pair.first, pair.second) if of_first else (pair.second, pair.first)
    seen, constants = pair.second.link, f"contact.{pair.name}"

    def named(what: str, values: Vector) -> Vector:
        return array([scope.define(f"contact.{name}.{what}.{x}", v) for x, v in zip("xyz", values, strict=True)])

    centre = view.world(pointed.link, array(corner))
    reach, outward = distance(other, view.place(other.link, centre))
    outward = view.turned(other.link, outward)
    depth = pointed.radius + scope(f"{constants}.{MARGIN}") - reach
    depth = scope.define(f"contact.{name}.depth", depth)
    # The named normal is the second shape's outward normal, whichever shape has the corner.
    side = 1.0 if of_first else -1.0
    normal = view.turned(seen, named("outward", view.turned_back(seen, side * outward)))
    place = named("place", view.place(seen, centre - pointed.radius * outward))
    point = view.world(seen, place)
    arms = view.arm_of(pair.first.link, point), view.arm_of(seen, point)
    moving = view.velocity(pair.first.link, arms[0]) - view.velocity(seen, arms[1])
    approach = dot(normal, moving)
    slip = view.turned(seen, named("slip", view.turned_back(seen, moving - approach * normal)))
    return PointContact(
        name, view.index(pair.first.link), arms[0], normal, depth, approach * normal + slip, view.index(seen), arms[1],
        constants,
    )  # fmt: skip


def support_wrenches(
    tree: Tree, motions: Sequence[RelativeMotion], poses: Sequence[LinkPose], scope: Scope
) -> Wrenches:
    """Return moment and force of the friction under all supported bodies, in the frames of their links."""
    names = [link.joint.name for link in tree.links]
    found: Wrenches = {}
    for support in tree.mechanism.supports:
        index = names.index(support.link)
        moment, force = _wrench(support, index, tree, motions[index], poses[index], scope)
        if index in found:
            moment, force = found[index][0] + moment, found[index][1] + force
        found[index] = moment, force
    return found


def _wrench(support: Support, index: int, tree: Tree, motion: RelativeMotion, pose: LinkPose, scope: Scope) -> Any:
    name, places = f"support.{support.name}", np.array(support.points)
    middle = places.mean(0)
    arms = [pose.turn @ tree.in_link_frame(index, array([*map(float, place), 0.0])) for place in places]
    centre = pose.turn @ tree.in_link_frame(index, array([*map(float, middle), 0.0]))
    velocity, spin = pose.turn @ motion.velocity, pose.turn @ motion.spin
    weight = -scope("gravity.z") * scope(f"{support.link}.mass")
    most = scope(f"{name}.friction") * weight
    squared = scope(f"{name}.anisotropy") * scope(f"{name}.anisotropy")
    fast = 4.0 / scope(f"{name}.slip_speed")
    force_x: Any = 0.0
    force_y: Any = 0.0
    moment: Any = 0.0
    for share, arm in zip(_shares(support, places - middle, scope), arms, strict=True):
        u = velocity + cross(spin, arm)
        across = squared * u[1]
        speed = safe_sqrt(u[0] * u[0] + across * u[1])
        size = share * tanh(fast * speed) / speed
        x, y = size * u[0], size * across
        force_x, force_y = force_x + x, force_y + y
        moment = moment + (arm[0] - centre[0]) * y - (arm[1] - centre[1]) * x
    world = array([-1.0 * most * force_x, -1.0 * most * force_y, 0.0])
    body = tree.turned_to_body(index, pose.turn.T @ world)
    acted = [scope.define(f"{name}.force.{axis}", value) for axis, value in zip("xy", body[:2], strict=True)]
    about = tree.turned_to_body(index, pose.turn.T @ array([0.0, 0.0, -1.0 * most * moment]))
    turning = array([0.0, 0.0, scope.define(f"{name}.moment", about[2])])
    force = tree.turned_to_link(index, array([*acted, 0.0]))
    return cross(pose.turn.T @ centre, force) + tree.turned_to_link(index, turning), force


def _shares(support: Support, places: np.ndarray, scope: Scope) -> list[Any]:
    """Return the share of the weight that each point carries."""
    name, mean = f"support.{support.name}", float((places**2).sum(1).mean())
    if len(places) == 1:
        return [1.0]
    x, y, rim = (scope(f"{name}.{what}") for what in ("centre.x", "centre.y", "rim"))
    weights = [
        exp((2.0 / mean) * (float(px) * x + float(py) * y) + (float(px * px + py * py) / mean - 1.0) * rim)
        for px, py in places
    ]
    total: Any = 0.0
    for weight in weights:
        total = total + weight
    return [weight / total for weight in weights]
