# SPDX-License-Identifier: Apache-2.0
r"""Contacts of a robot's shapes with a heightfield as rows of soft constraints, from the features that touch.

Which features of robot and ground touch is found before a step (`geometry.prisms`); depth, normal and place follow
from them here, so that they have derivatives by the state. With a point c of the robot's feature and one g of the
ground's, edges a of the robot's and b of the ground's, and the rounding r, the outward normal n of the ground is

* along what is left of $c - g$ across a and b, where the features are apart, as those of rounded shapes are;
* along $(b_1 - a_1) \times (b_2 - a_2)$, where they have passed each other, or where one is a face;
* vertical, where MuJoCo takes a wall between triangles for what is nearest.

The depth is $r - n \cdot (c - g)$, and the contact is in the middle between the surfaces.
"""

from collections.abc import Sequence
from typing import Any

from neurodyn.core.description.soft_constraints import ConstraintParameters
from neurodyn.geometry.prisms.query import NUMBERS, contact_slots
from neurodyn.multibody.constraints.impedance import constraint_quantities, yielding
from neurodyn.multibody.constraints.tangents import tangent
from neurodyn.multibody.contact_model import Contacts
from neurodyn.multibody.mass_matrix import TreeInertia
from neurodyn.multibody.trace import Expression, mapped, maximum, safe_sqrt, select_less
from neurodyn.multibody.trace.expression import TINY
from neurodyn.multibody.vectors import Vector, array, cross, dot

_NEAREST, _FLAT = 1.5, 2.5
"""Kinds of pairs below these are of nearest and of flat features; see `geometry.prisms.pair`."""


def prism_rows(contacts: Contacts, inertia: TreeInertia, weights: dict[int, Any]) -> list[tuple[int, list[Any]]]:
    """Return link, and place, normal, first tangent, depth, 1/R and k d r, of every contact that there may be.

    Args:
        contacts: The step.
        inertia: Its mass matrix.
        weights: A of the contacts of each link that has shapes.
    """
    quantities = constraint_quantities("contact.solref", "contact.solimp", ConstraintParameters())
    blocks, items, links = [], [], []
    for number, (link, count) in enumerate(contact_slots(contacts.tree.mechanism.shapes).items()):
        pose = contacts.poses[link]
        blocks.append([*pose.turn.flat, *pose.origin, *inertia.from_root(link), weights[link]])
        links += [link] * count
        items += [number] * count

    def row(common: list[Any], block: list[Any], item: list[Any]) -> Sequence[Any]:
        given = dict(zip(quantities, common, strict=True))
        yields = yielding(given.__getitem__, "contact.solref", "contact.solimp", contacts.dt)
        place, normal, depth = _contact(block, item)
        return [*place, *normal, *tangent(normal), depth, yields.weight(depth, block[15]), yields.reference(depth)]

    graph = next(x.graph for x in contacts.qd if isinstance(x, Expression))
    own = [(number, contacts.held[NUMBERS * i : NUMBERS * (i + 1)]) for i, number in enumerate(items)]
    rows = mapped(graph, "prism contacts", row, [contacts.scope(name) for name in quantities], blocks, own)
    return list(zip(links, rows, strict=True))


def _contact(block: list[Any], item: list[Any]) -> tuple[Vector, Vector, Any]:
    """Return place (from the origin of the tree's first link), normal and depth of a contact; of none, -1."""
    turn = array([block[3 * i : 3 * i + 3] for i in range(3)])
    origin, from_root = array(block[9:12]), array(block[12:15])
    kind, radius = item[:2]
    core, along, along_too = (turn @ array(item[i : i + 3]) for i in (2, 5, 8))
    ground, across, across_too = (array(item[i : i + 3]) for i in (11, 14, 17))
    between = origin + core - ground
    nearest, slid = _nearest(between, along, across)
    flat, moved = _flat(between, along, along_too, across, across_too)
    normal, shift = (
        array([select_less(kind, _NEAREST, a, b) for a, b in zip(*pair, strict=True)])
        for pair in ((nearest, flat), (slid, moved))
    )
    gap = select_less(kind, _FLAT, dot(normal, between), dot(across, between))
    normal = array([select_less(kind, _FLAT, a, b) for a, b in zip(normal, across_too, strict=True)])
    depth = select_less(0.5, kind, radius - gap, -1.0)
    return from_root + core + shift - 0.5 * (gap + radius) * normal, normal, depth


def _nearest(between: Vector, along: Vector, across: Vector) -> tuple[Vector, Vector]:
    """Return the normal of nearest features, and from the core to the nearest point on the robot's edge."""
    aside = along - dot(along, across) * across
    size = dot(aside, aside)
    share = dot(between, aside) / maximum(size, TINY)
    rest = between - dot(between, across) * across - share * aside
    return rest / safe_sqrt(dot(rest, rest)), -(share * along)


def _flat(
    between: Vector, along: Vector, along_too: Vector, across: Vector, across_too: Vector
) -> tuple[Vector, Vector]:  # fmt: skip
    """Return the normal of flat features, and from the core to the point of the robot's feature in touch."""
    one, other = across - along, across_too - along_too
    area = cross(one, other)
    square = dot(area, area)
    normal = area / safe_sqrt(square)
    tangential = between - dot(normal, between) * normal
    a, b, mixed = dot(one, one), dot(other, other), dot(one, other)
    x, y = dot(tangential, one), dot(tangential, other)
    inverse = 1.0 / maximum(square, TINY)
    return normal, inverse * ((x * b - y * mixed) * along + (y * a - x * mixed) * along_too)
