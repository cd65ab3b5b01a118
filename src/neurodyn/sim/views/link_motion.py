# SPDX-License-Identifier: Apache-2.0
"""Motions of a robot as poses of its links and meshes in their frames, for viewers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.geometry.ground import Ground
from neurodyn.robots import Robot
from neurodyn.sim.assets.merge import rotation
from neurodyn.sim.engine import import_newton, short_label
from neurodyn.sim.scene import ScenePlacer, add_scene
from neurodyn.sim.views.pictures import drawn_world


class Stage:
    """Several copies of a robot in one Newton model, at positions that are given frame by frame.

    Attributes:
        model: The model (`newton.Model`), one world for each copy.
        state: Its state (`newton.State`).
    """

    def __init__(self, robot: Robot, copies: int, ground: Ground | None = None) -> None:
        """Build the model.

        Args:
            robot: The declared robot.
            copies: Number of copies.
            ground: The ground at one pose; None for free space.

        Raises:
            InputError: Newton is not installed.
        """
        import warp as wp

        self._wp, self._newton = wp, import_newton()
        builder = drawn_world(robot)
        if ground is not None:
            add_scene(builder, ground.scene)
        scene = self._newton.ModelBuilder()
        scene.replicate(builder, copies)
        self.model: Any = scene.finalize(device="cpu")
        if ground is not None and ground.pose is not None:
            ScenePlacer(self.model).place(ground.pose[:1].expand(copies, -1).contiguous())
        self.state: Any = self.model.state()

    def pose(self, q: Tensor) -> None:
        """Put the copies into configurations, shape [copies, nq]; those that are not finite stay where they are."""
        held = self._wp.to_torch(self.state.joint_q)
        rows = q.detach().cpu().reshape(len(q), -1).to(held.dtype)
        finite = torch.isfinite(rows).all(1, keepdim=True)
        held.copy_(torch.where(finite, rows, held.view_as(rows)).reshape(-1))
        self._newton.eval_fk(self.model, self.state.joint_q, self.state.joint_qd, self.state)


@dataclass(frozen=True)
class LinkMotion:
    """Poses of links over time, and what they look like.

    Attributes:
        names: Names of the links.
        poses: Position [m] and quaternion (scalar last), world axes, shape [T, links, 7].
        meshes: Of each link vertices in its frame [m], shape [n, 3], and triangles, shape [m, 3].
    """

    names: tuple[str, ...]
    poses: np.ndarray
    meshes: tuple[tuple[np.ndarray, np.ndarray], ...]


def link_motion(robot: Robot, q: Tensor) -> LinkMotion:
    """Return the poses of a robot's links along a motion.

    Args:
        robot: The declared robot.
        q: Positions [rad or m], shape [T, nq]; a frame that is not finite repeats the one before.

    Raises:
        InputError: Newton is not installed, or the shape does not fit the robot.
    """
    if q.ndim != 2 or q.shape[1] != robot.spec.nq:
        raise InputError(f"motion of {robot.name!r}: q has shape {list(q.shape)}; valid: [frames, {robot.spec.nq}]")
    stage = Stage(robot, 1)
    poses = []
    for row in q:
        stage.pose(row[None])
        poses.append(stage.state.body_q.numpy().copy())
    names = [short_label(label) for label in stage.model.body_label]
    names = [name if names.count(name) == 1 else f"{name}-{k}" for k, name in enumerate(names)]
    meshes = tuple(_mesh_of(stage.model, body) for body in range(len(names)))
    return LinkMotion(tuple(names), np.stack(poses), meshes)


def _mesh_of(model: Any, body: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the visible shapes of a link as one mesh in its frame."""
    visible = int(import_newton().ShapeFlags.VISIBLE)
    flags, poses = model.shape_flags.numpy(), model.shape_transform.numpy()
    points, triangles, count = [np.empty((0, 3))], [np.empty((0, 3), int)], 0
    for shape in np.flatnonzero(model.shape_body.numpy() == body):
        made = _mesh(model, int(shape)) if flags[shape] & visible else None
        if made is not None:
            points.append(poses[shape][:3] + made[0] @ rotation(poses[shape]).T)
            triangles.append(made[1] + count)
            count += len(made[0])
    return np.concatenate(points).astype(np.float32), np.concatenate(triangles)


def _mesh(model: Any, shape: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return one shape as vertices and triangles; None of a kind that has no mesh."""
    newton = import_newton()
    kinds, mesh = newton.GeoType, newton.Mesh
    scale: Sequence[float] = [float(x) for x in model.shape_scale.numpy()[shape]]
    made = {
        int(kinds.BOX): lambda: mesh.create_box(*scale, compute_inertia=False),
        int(kinds.SPHERE): lambda: mesh.create_sphere(scale[0], compute_inertia=False),
        int(kinds.CAPSULE): lambda: mesh.create_capsule(*scale[:2], up_axis=newton.Axis.Z, compute_inertia=False),
        int(kinds.CYLINDER): lambda: mesh.create_cylinder(*scale[:2], up_axis=newton.Axis.Z, compute_inertia=False),
        int(kinds.CONE): lambda: mesh.create_cone(*scale[:2], up_axis=newton.Axis.Z, compute_inertia=False),
        int(kinds.ELLIPSOID): lambda: mesh.create_ellipsoid(*scale, compute_inertia=False),
    }.get(int(model.shape_type.numpy()[shape]))
    source = model.shape_source[shape]
    if made is not None:
        found, factor = made(), np.ones(3)
    elif isinstance(source, mesh):
        found, factor = source, np.array(scale)
    else:
        return None
    return np.asarray(found.vertices) * factor, np.asarray(found.indices).reshape(-1, 3)
