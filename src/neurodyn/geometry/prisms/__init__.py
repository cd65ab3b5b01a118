# SPDX-License-Identifier: Apache-2.0
"""Contacts of spheres, capsules and boxes with heightfields, by MuJoCo's method: prisms below the triangles."""

CONTACTS = 4
"""Maximum number of contacts of a shape with a heightfield."""

NUMBERS = 20
"""Numbers that describe a contact; see `prisms.contacts.NUMBERS`."""
