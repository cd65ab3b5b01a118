# SPDX-License-Identifier: Apache-2.0
"""Contacts of shapes with a plane, matching MuJoCo's C library, and the colliders of all pairs of shape kinds."""

from typing import Any

from neurodyn.multibody.contacts.shape_pairs import (
    FAR_AWAY,
    LEAST_LENGTH,
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
from neurodyn.multibody.vectors import EYE, Matrix, Vector, array, cross, dot, normalise, symmetric_inverse


def plane_cylinder(first: PlacedShape, second: PlacedShape, margin: Any) -> list[Touch]:
    """Return the contacts of a plane, whose normal is its z axis, with a cylinder: a triangle in its lower rim.

    The second contact is the point of the upper rim above the lowest one.
    """
    normal, radius, half = first.rotation[:, 2], second.size[0], second.size[1]
    along = dot(normal, second.rotation[:, 2])
    axis = -1.0 * sign_of(along) * second.rotation[:, 2]
    down = -absolute(along)
    lean = down * axis - normal
    squared = dot(lean, lean)
    flat = below(squared, LEAST_LENGTH * LEAST_LENGTH)
    lowest = radius * where(flat, second.rotation[:, 0], lean / safe_sqrt(squared))
    height = dot(second.centre - first.centre, normal)
    side = cross(lowest, axis) * (3.0**0.5 / 2.0)
    drop = dot(lowest, normal)
    tip = half * axis
    places = [lowest + tip, lowest - tip, side + tip - 0.5 * lowest, tip - side - 0.5 * lowest]
    distances = [height + half * down + drop, height - half * down + drop, *[height + half * down - 0.5 * drop] * 2]
    away = below(margin, distances[0])
    return [
        Touch(second.centre + position - 0.5 * distance * normal, normal, where(away, FAR_AWAY, distance))
        for position, distance in zip(places, distances, strict=True)
    ]


def plane_ellipsoid(first: PlacedShape, second: PlacedShape, margin: Any) -> list[Touch]:
    """Return the contact of a plane, whose normal is its z axis, with an ellipsoid."""
    normal = first.rotation[:, 2]
    scaled = second.size * (second.rotation.T @ normal)
    lowest = second.rotation @ (second.size * scaled)
    position = second.centre - lowest / safe_sqrt(dot(scaled, scaled))
    return [_on_plane(first, position)]


def plane_mesh(first: PlacedShape, second: PlacedShape, margin: Any) -> list[Touch]:
    """Return the contacts of a plane, whose normal is its z axis, with the corners found on the hull of a mesh.

    `second.search_result` holds the lowest corner and three others of the face that faces the plane most, in the frame
    of the mesh, and 1 for each of the three that exists.
    """
    normal, result = first.rotation[:, 2], second.search_result
    offsets = [second.rotation @ array(result[3 * k : 3 * k + 3]) for k in range(4)]
    touches = [_on_plane(first, second.centre + offset) for offset in offsets]
    away = below(margin, touches[0].distance)
    for k, (touch, offset) in enumerate(zip(touches, offsets, strict=True)):
        above = below(0.0, dot(normal, offset)) if k else 0.0
        there = (1.0 - away) * (1.0 - above) * (result[11 + k] if k else 1.0)
        touch.distance = where(there, touch.distance, FAR_AWAY)
    return touches


def _on_plane(plane: PlacedShape, position: Vector) -> Touch:
    normal = plane.rotation[:, 2]
    distance = dot(normal, position - plane.centre)
    return Touch(position - 0.5 * distance * normal, normal, distance)


def convex(first: PlacedShape, second: PlacedShape, margin: Any) -> list[Touch]:
    r"""Return the contact of two convex shapes from the result of `convex_search` in `second.search_result`.

    With the points $p_i$ found, which move with their shapes, and the normals $n_i$ there, the outermost points along a
    normal n are $x_1 = p_1 + L_1 (n - n_1)$ and $x_2 = p_2 - L_2 (n - n_2)$. Their difference is along n. One step
    $\delta$ of Newton's method from the normal $n_0$ found, with $P = I - n_0 n_0^T$ and the depth h, solves

    $$(L_1 + L_2 - h P)\,\delta = -P\,(p_1 - p_2 + L_1 (n_0 - n_1) + L_2 (n_0 - n_2))$$
    """
    result = second.search_result
    start = array(result[:3])
    (one, p1, l1), (two, p2, l2) = (_surface(shape, result[at : at + 12]) for shape, at in ((first, 3), (second, 15)))
    depth = dot(start, p1 - p2)
    off = p1 - p2 + l1 @ (start - one) + l2 @ (start - two)
    outer = array([[a * b for b in start] for a in start])
    stiff = l1 + l2 - (depth - _TINY) * (EYE - outer) + outer
    normal = normalise(start - symmetric_inverse(stiff) @ (off - dot(start, off) * start))
    ahead, behind = normal - one, normal - two
    moved, pulled = l1 @ ahead, l2 @ behind
    radii = result[27], result[28]
    overlap = dot(normal, p1 - p2) + 0.5 * (dot(ahead, moved) + dot(behind, pulled)) + radii[0] + radii[1]
    position = 0.5 * (p1 + moved + p2 - pulled + (radii[0] - radii[1]) * normal)
    return [Touch(position, normal, where(result[29], -overlap, FAR_AWAY))]


_TINY = 1e-9


def _surface(shape: PlacedShape, result: Any) -> tuple[Vector, Vector, Matrix]:
    """Return normal, point and radii of curvature in world axes."""
    a, b, c, d, e, f = result[6:]
    own = shape.rotation @ array([[a, b, c], [b, d, e], [c, e, f]]) @ shape.rotation.T
    return shape.rotation @ array(result[:3]), shape.centre + shape.rotation @ array(result[3:6]), own


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
"""Collider of a pair of shape kinds, and its number of contacts; all other pairs use `convex`."""
