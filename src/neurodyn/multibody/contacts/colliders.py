# SPDX-License-Identifier: Apache-2.0
"""Where shapes touch a plane, as MuJoCo's C library finds it; and the colliders of all pairs of kinds of shapes."""

from typing import Any

from neurodyn.multibody.contacts.shape_pairs import (
    FAR,
    LEAST,
    Collider,
    PlacedShape,
    Touch,
    below,
    box_box,
    capsule_box,
    capsule_capsule,
    sign_of,
    sphere_box,
    sphere_capsule,
    sphere_cylinder,
    sphere_sphere,
    where,
)
from neurodyn.multibody.trace import absolute, safe_sqrt
from neurodyn.multibody.vectors import Vector, array, cross, dot


def plane_cylinder(first: PlacedShape, second: PlacedShape, margin: Any) -> list[Touch]:
    """Return the contacts of a plane, whose normal is its z axis, with a cylinder: a triangle in its lower rim.

    The second is the point of the upper rim above the lowest one.
    """
    normal, radius, half = first.turn[:, 2], second.size[0], second.size[1]
    along = dot(normal, second.turn[:, 2])
    axis = -1.0 * sign_of(along) * second.turn[:, 2]
    down = -absolute(along)
    lean = down * axis - normal
    squared = dot(lean, lean)
    flat = below(squared, LEAST * LEAST)
    lowest = radius * where(flat, second.turn[:, 0], lean / safe_sqrt(squared))
    height = dot(second.centre - first.centre, normal)
    side = cross(lowest, axis) * (3.0**0.5 / 2.0)
    drop = dot(lowest, normal)
    tip = half * axis
    places = [lowest + tip, lowest - tip, side + tip - 0.5 * lowest, tip - side - 0.5 * lowest]
    distances = [height + half * down + drop, height - half * down + drop, *[height + half * down - 0.5 * drop] * 2]
    away = below(margin, distances[0])
    return [
        Touch(second.centre + place - 0.5 * distance * normal, normal, where(away, FAR, distance))
        for place, distance in zip(places, distances, strict=True)
    ]


def plane_ellipsoid(first: PlacedShape, second: PlacedShape, margin: Any) -> list[Touch]:
    """Return the contact of a plane, whose normal is its z axis, with an ellipsoid."""
    normal = first.turn[:, 2]
    scaled = second.size * (second.turn.T @ normal)
    lowest = second.turn @ (second.size * scaled)
    place = second.centre - lowest / safe_sqrt(dot(scaled, scaled))
    return [_on_plane(first, place)]


def plane_mesh(first: PlacedShape, second: PlacedShape, margin: Any) -> list[Touch]:
    """Return the contacts of a plane, whose normal is its z axis, with the corners found on the hull of a mesh.

    `second.found` has the lowest corner, three others of the face that looks at the plane the most, in the frame of the
    mesh, and 1 for each of those that there are.
    """
    normal, found = first.turn[:, 2], second.found
    offsets = [second.turn @ array(found[3 * k : 3 * k + 3]) for k in range(4)]
    touches = [_on_plane(first, second.centre + offset) for offset in offsets]
    away = below(margin, touches[0].distance)
    for k, (touch, offset) in enumerate(zip(touches, offsets, strict=True)):
        above = below(0.0, dot(normal, offset)) if k else 0.0
        there = (1.0 - away) * (1.0 - above) * (found[11 + k] if k else 1.0)
        touch.distance = where(there, touch.distance, FAR)
    return touches


def _on_plane(plane: PlacedShape, place: Vector) -> Touch:
    normal = plane.turn[:, 2]
    distance = dot(normal, place - plane.centre)
    return Touch(place - 0.5 * distance * normal, normal, distance)


COLLIDERS: dict[tuple[str, str], tuple[Collider, int]] = {
    ("sphere", "sphere"): (sphere_sphere, 1),
    ("sphere", "capsule"): (sphere_capsule, 1),
    ("sphere", "cylinder"): (sphere_cylinder, 1),
    ("sphere", "box"): (sphere_box, 1),
    ("capsule", "capsule"): (capsule_capsule, 2),
    ("capsule", "box"): (capsule_box, 2),
    ("box", "box"): (box_box, 12),
    ("plane", "cylinder"): (plane_cylinder, 4),
    ("plane", "ellipsoid"): (plane_ellipsoid, 1),
    ("plane", "mesh"): (plane_mesh, 4),
}
"""Collider of a pair of kinds of shapes, and how many contacts it returns."""
