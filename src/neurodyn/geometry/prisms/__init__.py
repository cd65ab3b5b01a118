# SPDX-License-Identifier: Apache-2.0
"""Contacts of spheres, capsules and boxes with heightfields, by MuJoCo's method: prisms below the triangles."""

from collections.abc import Sequence

from neurodyn.core.description.contacts import RoundedBox

CONTACTS = 4
"""Maximum number of contacts of a shape with a heightfield."""

CONTACT_NUMBERS = 20
"""Numbers that describe a contact; see `prisms.contacts.CONTACT_NUMBERS`."""

_MOST = 8
"""Maximum number of contacts of a link; more only arise if its shapes overlap."""


def contact_slots(shapes: Sequence[RoundedBox]) -> dict[int, int]:
    """Return the maximum number of contacts of each link with shapes, by joint index."""
    joints = sorted({shape.joint for shape in shapes})
    return {joint: min(_MOST, CONTACTS * sum(shape.joint == joint for shape in shapes)) for joint in joints}
