# SPDX-License-Identifier: Apache-2.0
"""A robot with one joint of each kind, all frames turned and shifted, for tests."""

import torch
from msgspec import UNSET

from neurodyn.core.description.contacts import ChainJoint, ContactPoint, ContactPointLayout
from neurodyn.core.description.scene import IDENTITY

_PARENT = (0.1, 0.2, 0.3, 0.5, 0.5, -0.5, 0.5)
_CHILD = (0.1, -0.2, 0.05, 0.5, -0.5, 0.5, 0.5)
_AXIS = (0.6, 0.0, 0.8)
_NONE = (0.0, 0.0, 0.0)


def joint(kind, parent):
    return ChainJoint(
        name=f"{kind}{parent}", kind=kind, parent=parent, parent_frame=_PARENT, child_frame=_CHILD,
        axis=_NONE if kind in ("ball", "free") else _AXIS, pitch=0.15 if kind == "screw" else UNSET,
    )  # fmt: skip


def all_kinds(first="free"):
    """Return a chain free (or `first`) - ball - prismatic - revolute with a revolute branch at the first body."""
    joints = [joint(first, -1), joint("ball", 0), joint("prismatic", 1), joint("revolute", 2), joint("revolute", 0)]
    contact_points = [
        ContactPoint(name=f"p{j}", joint=j, point=(0.3, 0.1 * j, -0.2), radius=0.0) for j in (0, 1, 3, 2, 3, 4, 1)
    ]
    return ContactPointLayout(joints=tuple(joints), contact_points=tuple(contact_points), base_com=(0.1, 0.2, 0.3))


def contact_point_at(radius=0.0):
    """Return a free body with one contact point at its origin."""
    free = ChainJoint(name="root", kind="free", parent=-1, parent_frame=IDENTITY, child_frame=IDENTITY, axis=_NONE)
    return ContactPointLayout(
        joints=(free,), contact_points=(ContactPoint(name="p", joint=0, point=_NONE, radius=radius),)
    )


def at(points):
    """Return positions and velocities of free bodies at points, float64."""
    points = torch.as_tensor(points, dtype=torch.float64)
    turn = torch.tensor([[0.0, 0.0, 0.0, 1.0]], dtype=torch.float64).repeat(len(points), 1)
    return torch.cat([points, turn], -1), torch.zeros(len(points), 6, dtype=torch.float64)


def random_state(proximity, worlds, dtype=torch.float64, seed=0):
    """Return a random state; quaternions are not of unit length."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(worlds, proximity.nq, generator=generator, dtype=torch.float64)
    return q.to(dtype), torch.randn(worlds, proximity.nv, generator=generator, dtype=torch.float64).to(dtype)


def random_pose(count, seed=1):
    generator = torch.Generator().manual_seed(seed)
    pose = torch.randn(count, 7, generator=generator, dtype=torch.float64)
    pose[:, 3:] /= pose[:, 3:].norm(dim=1, keepdim=True)
    return pose
