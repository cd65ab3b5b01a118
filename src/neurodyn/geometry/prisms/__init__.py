# SPDX-License-Identifier: Apache-2.0
"""Contacts of spheres, capsules and boxes with heightfields as MuJoCo has them, with the prisms below triangles."""
