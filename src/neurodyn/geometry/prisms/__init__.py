# SPDX-License-Identifier: Apache-2.0
"""Contacts of spheres, capsules and boxes with heightfields, by MuJoCo's method: prisms below the triangles."""
