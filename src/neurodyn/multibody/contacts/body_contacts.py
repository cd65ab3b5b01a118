# SPDX-License-Identifier: Apache-2.0
"""Contact between two bodies at the corners of their shapes, and friction under a body that slides on a plane."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neurodyn.core.description.contacts import BodyContact, BodyShape, Support
from neurodyn.core.description.scene import Vector3
from neurodyn.core.errors import InputError, choices
from neurodyn.multibody.articulated import Wrenches
from neurodyn.multibody.points import Kinematics, PointContact, add_wrench
from neurodyn.multibody.scope import Scope
from neurodyn.multibody.trace import absolute, exp, maximum, minimum, safe_sqrt, select_less, tanh
from neurodyn.multibody.vectors import Vector, array, cross, dot


def distance(shape: BodyShape, point: Vector) -> tuple[Any, Vector]:
    """Return signed distance of a point in the shape's body frame [m], negative inside, and the outward unit normal."""
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
    first, also, third = (select_less(x, nearest, 0.0, 1.0) for x in beyond)
    face = [first, (1.0 - first) * also, (1.0 - first) * (1.0 - also) * third]  # the first of those on a tie
    second = maximum(maximum(minimum(beyond[0], beyond[1]), minimum(beyond[0], beyond[2])),
                     minimum(beyond[1], beyond[2]))  # fmt: skip
    normal = array([s * select_less(0.0, second, o / away, f) for s, o, f in zip(sign, out, face, strict=True)])
    return select_less(0.0, second, away, nearest), normal


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
    """Return the quantities of body contacts, nominal where not given; numbers of other contact models are ignored.

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


def body_touches(links: Kinematics, scope: Scope) -> list[PointContact]:
    """Return the contacts between bodies of a mechanism.

    `scope` receives the measured quantities: depth; place, normal and slip in the second shape's body frame.
    """
    return [_touch(links, scope, pair, *point) for pair in links.tree.mechanism.body_contacts for point in pair.points]


def _touch(
    links: Kinematics, scope: Scope, pair: BodyContact, name: str, corner: Vector3, of_first: bool
) -> PointContact:
    first, second = (links.tree.index_of[shape.link] for shape in (pair.first, pair.second))
    pointed, other = (pair.first, pair.second) if of_first else (pair.second, pair.first)
    by, on = (first, second) if of_first else (second, first)
    constants = f"contact.{pair.name}"

    def define_named(what: str, values: Vector) -> Vector:
        return array([scope.define(f"contact.{name}.{what}.{x}", v) for x, v in zip("xyz", values, strict=True)])

    def in_body(link: int, point: Vector) -> Vector:
        pose = links.poses[link]
        return links.tree.in_body_frame(link, pose.rotation.T @ (point - pose.origin))

    centre = links.poses[by].origin + links.arm(by, array(corner))
    reach, outward = distance(other, in_body(on, centre))
    outward = links.to_world(on, outward)
    depth = pointed.radius + scope(f"{constants}.{MARGIN}") - reach
    depth = scope.define(f"contact.{name}.depth", depth)
    # The named normal is the second shape's outward normal, whichever shape has the corner.
    side = 1.0 if of_first else -1.0
    normal = links.to_world(second, define_named("outward", links.to_body(second, side * outward)))
    place = define_named("place", in_body(second, centre - pointed.radius * outward))
    point = links.poses[second].origin + links.arm(second, place)
    arms = point - links.poses[first].origin, point - links.poses[second].origin
    moving = links.velocity(first, arms[0]) - links.velocity(second, arms[1])
    approach = dot(normal, moving)
    slip = links.to_world(second, define_named("slip", links.to_body(second, moving - approach * normal)))
    return PointContact(name, first, arms[0], normal, depth, approach * normal + slip, second, arms[1], constants)


def support_wrenches(links: Kinematics, scope: Scope) -> Wrenches:
    """Return moment and force of the friction under all supported bodies, in the frames of their links."""
    wrenches: Wrenches = {}
    for support in links.tree.mechanism.supports:
        index = links.tree.index_of[support.link]
        add_wrench(wrenches, index, *_wrench(support, index, links, scope))
    return wrenches


def _wrench(support: Support, index: int, links: Kinematics, scope: Scope) -> tuple[Vector, Vector]:
    name, places = f"support.{support.name}", np.array(support.points)
    tree, pose, motion = links.tree, links.poses[index], links.motions[index]
    middle = places.mean(0)
    arms = [links.arm(index, array([*map(float, place), 0.0])) for place in places]
    centre = links.arm(index, array([*map(float, middle), 0.0]))
    velocity, spin = pose.rotation @ motion.velocity, pose.rotation @ motion.spin
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
    body = links.to_body(index, world)
    acted = [scope.define(f"{name}.force.{axis}", value) for axis, value in zip("xy", body[:2], strict=True)]
    about = links.to_body(index, array([0.0, 0.0, -1.0 * most * moment]))
    turning = array([0.0, 0.0, scope.define(f"{name}.moment", about[2])])
    force = tree.rotate_to_link(index, array([*acted, 0.0]))
    return cross(pose.rotation.T @ centre, force) + tree.rotate_to_link(index, turning), force


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
    total = sum(weights, start=0.0)
    return [weight / total for weight in weights]
