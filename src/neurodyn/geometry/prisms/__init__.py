# SPDX-License-Identifier: Apache-2.0
"""Contacts of spheres, capsules and boxes with heightfields, by MuJoCo's method: prisms below the triangles."""

from collections.abc import Sequence

from neurodyn.core.description.contacts import MOST_CONTACTS, RoundedBox

CONTACT_NUMBERS = 20
"""Numbers that describe a contact; see `prisms.contacts.CONTACT_NUMBERS`."""


def contact_slots(shapes: Sequence[RoundedBox]) -> dict[int, int]:
    """Return the maximum number of contacts of each link with shapes, by joint index."""
    joints = sorted({shape.joint for shape in shapes})
    return {
        joint: min(MOST_CONTACTS, sum(shape.contacts for shape in shapes if shape.joint == joint)) for joint in joints
    }
