# SPDX-License-Identifier: Apache-2.0
"""Numbers that kernels know kinds of joints and shapes by, and where the walk to a contact point starts."""

import warp as wp

from neurodyn.core.joint_kinds import COORDINATES

JOINT_KINDS = {kind: number for number, kind in enumerate(COORDINATES)}

REVOLUTE = wp.constant(JOINT_KINDS["revolute"])
PRISMATIC = wp.constant(JOINT_KINDS["prismatic"])
BALL = wp.constant(JOINT_KINDS["ball"])
FREE = wp.constant(JOINT_KINDS["free"])

PLANE = wp.constant(0)
BOX = wp.constant(1)
SPHERE = wp.constant(2)
CAPSULE = wp.constant(3)
CYLINDER = wp.constant(4)
MESH = wp.constant(5)
HEIGHTFIELD = wp.constant(6)

SHAPE_KINDS = {"plane": 0, "box": 1, "sphere": 2, "capsule": 3, "cylinder": 4, "mesh": 5, "heightfield": 6}

FROM_ROOT = wp.constant(0)
FROM_BASE = wp.constant(1)
FROM_BEFORE = wp.constant(2)
