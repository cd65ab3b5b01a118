# SPDX-License-Identifier: Apache-2.0
"""Numbers by which kernels know kinds of joints and shapes, and where the walk to a contact point starts."""

import warp as wp

from neurodyn.core.description.joint_kinds import COORDINATES

JOINT_KINDS = {kind: number for number, kind in enumerate(COORDINATES)}
REVOLUTE, PRISMATIC, BALL, FREE = (wp.constant(JOINT_KINDS[k]) for k in ("revolute", "prismatic", "ball", "free"))

SHAPE_KINDS = {"plane": 0, "box": 1, "sphere": 2, "capsule": 3, "cylinder": 4, "mesh": 5, "heightfield": 6}
PLANE, BOX, SPHERE, CAPSULE, CYLINDER, MESH, HEIGHTFIELD = map(wp.constant, range(7))

FROM_ROOT, FROM_BASE, FROM_BEFORE = map(wp.constant, range(3))
