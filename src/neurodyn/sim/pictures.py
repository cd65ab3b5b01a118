# SPDX-License-Identifier: Apache-2.0
"""Pictures of a robot in motion, ray-traced on the CPU without a display, and a camera that fits the whole motion.

Also link poses with meshes, for other viewers.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.core.progress import tracked
from neurodyn.geometry.ground import Ground
from neurodyn.robots import Robot
from neurodyn.sim.articulations import short_label
from neurodyn.sim.bodies import rotation
from neurodyn.sim.engine import import_newton
from neurodyn.sim.newton.build import build_world
from neurodyn.sim.newton.scene import ScenePlacer, add_scene

FIELD_OF_VIEW = 0.6  # vertical [rad]
_MARGIN = 1.12
_NEAREST = 0.1  # [m]


@dataclass(frozen=True)
class Camera:
    """A camera; world axes."""

    eye: np.ndarray  # position [m], shape [3]
    target: np.ndarray  # point at the centre of the picture [m], shape [3]
    field_of_view: float = FIELD_OF_VIEW  # vertical [rad]


def fit_camera(points: np.ndarray, forward: np.ndarray, aspect: float) -> Camera:
    """Return the closest camera that looks along the unit vector `forward` and has all points, shape [n, 3], in view.

    All in world axes; `aspect` is the width of the picture over its height.
    """
    right, up = _right_and_up(forward)
    across, above, ahead = points @ right, points @ up, points @ forward
    middle = [(x.min() + x.max()) / 2 for x in (across, above, ahead)]
    target = middle[0] * right + middle[1] * up + middle[2] * forward
    slope = np.tan(FIELD_OF_VIEW / 2) / _MARGIN
    needed = np.maximum(abs(across - middle[0]) / (slope * aspect), abs(above - middle[1]) / slope)
    distance = max(float((needed - (ahead - middle[2])).max()), _NEAREST)
    return Camera(eye=target - distance * forward, target=target)


def camera_pose(camera: Camera) -> Any:
    """Return the Warp transform of a camera that looks along -z with +y up."""
    import warp as wp

    forward = np.asarray(camera.target, float) - np.asarray(camera.eye, float)
    forward = forward / max(float(np.linalg.norm(forward)), 1e-12)
    right, up = _right_and_up(forward)
    axes: Any = wp.mat33(*np.stack([right, up, -forward], axis=1).ravel().tolist())
    return wp.transform(wp.vec3(*map(float, camera.eye)), wp.quat_from_matrix(axes))


def _right_and_up(forward: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    right = np.cross(forward, [0.0, 0.0, 1.0])
    length = np.linalg.norm(right)
    right = np.array([1.0, 0.0, 0.0]) if length < 1e-9 else right / length
    return right, np.cross(right, forward)


_BACKGROUND = (244, 245, 248)
_GHOST_OPACITY = 0.35
_LINK_COLOUR, _JOINT_COLOUR = (0.16, 0.38, 0.72), (0.93, 0.52, 0.13)
_GROUND_COLOUR = (0.78, 0.8, 0.76)
_FRAMES_TO_FIT = 40
_ROOM = 1.6
"""Extra distance of a camera that is fitted to a single pose, as a factor."""


def render(
    robot: Robot,
    q: Tensor | np.ndarray,
    *,
    width: int = 480,
    height: int = 320,
    ghost: Tensor | np.ndarray | None = None,
    camera: Camera | None = None,
    ground: Ground | None = None,
    path: np.ndarray | None = None,
) -> np.ndarray:
    """Render a motion.

    Args:
        robot: The declared robot.
        q: Positions [rad or m], shape [T, nq]; a non-finite frame repeats the previous one.
        width: Width of a picture [pixels].
        height: Height of a picture [pixels].
        ghost: A second, translucent motion of the same robot, shape [T, nq].
        camera: The camera; None for one that shows the whole motion.
        ground: The ground at one pose; None for free space.
        path: Displacement of the camera in each picture [m], shape [T, 3]; None for a fixed camera.

    Returns:
        Pictures, uint8, shape [T, height, width, 3].
    """
    motion = _positions(robot, q)
    other = None if ghost is None else _positions(robot, ghost)
    if other is not None and len(other) != len(motion):
        raise InputError(
            f"pictures of {robot.name!r}: ghost has {len(other)} frames; valid: {len(motion)}, as the motion"
        )
    if path is not None and np.shape(path) != (len(motion), 3):
        raise InputError(f"pictures of {robot.name!r}: path has shape {np.shape(path)}; valid: {(len(motion), 3)}")
    if width < 1 or height < 1:
        raise InputError(f"pictures of {robot.name!r}: {width} x {height} pixels; valid: at least 1 x 1")
    studio = _Studio(robot, width, height, ground)
    path = np.zeros((len(motion), 3)) if path is None else np.asarray(path, float)
    seen, beside = (motion, path) if other is None else (np.concatenate([motion, other]), np.concatenate([path, path]))
    view = studio.default_camera(seen, beside) if camera is None else camera
    pictures = studio.shoot(motion, view, path)
    if other is not None:
        mixed = (1 - _GHOST_OPACITY) * pictures + _GHOST_OPACITY * studio.shoot(other, view, path)
        pictures = np.rint(mixed).astype(np.uint8)
    return pictures


def _drawn_world(robot: Robot) -> Any:
    """Return a builder (`newton.ModelBuilder`) of a robot in which every link is visible."""
    builder = build_world(robot)
    _show_hidden_shapes(builder)
    _draw_bare_links(builder)
    return builder


def _positions(robot: Robot, q: Tensor | np.ndarray) -> np.ndarray:
    rows = q.detach().cpu().numpy() if isinstance(q, Tensor) else np.asarray(q)
    if rows.ndim != 2 or rows.shape[1] != robot.spec.nq or not len(rows):
        raise InputError(f"pictures of {robot.name!r}: q has shape {rows.shape}; valid: [frames, {robot.spec.nq}]")
    return rows.astype(np.float32)


class ViewedCopies:
    """Several copies of a robot in one Newton model, posed frame by frame.

    Attributes:
        model: The model (`newton.Model`), one world per copy.
        state: Its state (`newton.State`).
    """

    def __init__(
        self, robot: Robot, copies: int, ground: Ground | None = None, colour: tuple[float, float, float] | None = None
    ) -> None:
        """Build the model, in free space or with a ground at one pose; `colour` overrides the robot's colours."""
        import warp as wp

        self._wp, self._newton = wp, import_newton("a picture")
        builder = _drawn_world(robot)
        if ground is not None:
            for shape in add_scene(builder, ground.scene):
                builder.shape_color[shape] = colour or builder.shape_color[shape]
        scene = self._newton.ModelBuilder()
        scene.replicate(builder, copies)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of inertias, which move nothing here
            self.model: Any = scene.finalize(device="cpu")
        if ground is not None and ground.pose is not None:
            ScenePlacer(self.model).set_pose(ground.pose[:1].expand(copies, -1).contiguous())
        self.state: Any = self.model.state()

    def pose(self, q: Tensor) -> None:
        """Set the configurations, shape [copies, nq]; copies with non-finite values keep their pose."""
        held = self._wp.to_torch(self.state.joint_q)
        rows = q.detach().cpu().reshape(len(q), -1).to(held.dtype)
        finite = torch.isfinite(rows).all(1, keepdim=True)
        held.copy_(torch.where(finite, rows, held.view_as(rows)).reshape(-1))
        self._newton.eval_fk(self.model, self.state.joint_q, self.state.joint_qd, self.state)


class _Studio(ViewedCopies):
    """A robot, its ground, a light and a ray tracer."""

    def __init__(self, robot: Robot, width: int, height: int, ground: Ground | None = None) -> None:
        super().__init__(robot, 1, ground, _GROUND_COLOUR)
        from newton.sensors import SensorCamera

        self._sensor = SensorCamera
        self._aspect = width / height
        self._size = width, height
        # Without alpha: with it, the packed colour overflows the 32-bit constant that Warp compiles.
        red, green, blue = _BACKGROUND
        self._tracer: Any = SensorCamera(
            self.model,
            default_clear_data=SensorCamera.ClearData(clear_color=blue << 16 | green << 8 | red),
            default_render_config=SensorCamera.RenderConfig(
                anti_aliasing=SensorCamera.AntiAliasing.MSAA,
                enable_shadows=ground is not None,
                enable_textures=ground is not None,
            ),
        )
        if ground is not None:
            planes = np.flatnonzero(self.model.shape_type.numpy() == int(self._newton.GeoType.PLANE))
            self._tracer.assign_checkerboard_material(shape_indices=planes)
        light = np.array([0.35, 0.75, -0.6])
        self._tracer.create_default_light(direction=self._wp.vec3(*(light / np.linalg.norm(light)).tolist()))
        self._tracer.set_ambient_light((0.55, 0.55, 0.58), (0.25, 0.25, 0.27))

    def shoot(self, motion: np.ndarray, camera: Camera, path: np.ndarray) -> np.ndarray:
        """Render every configuration with a camera on a path, uint8, shape [T, height, width, 3]."""
        wp, (width, height) = self._wp, self._size
        rays = self._sensor.compute_camera_rays_pinhole(
            width, height, camera_fov=camera.field_of_view, sample_count=2, device="cpu"
        )
        image: Any = self._tracer.allocate_image_color(1, width, height)
        pictures = np.empty((len(motion), height, width, 3), np.uint8)
        for k in tracked(range(len(motion)), "pictures"):
            q, shift = motion[k], path[k]
            if not np.isfinite(q).all():
                pictures[k] = pictures[k - 1] if k else np.array(_BACKGROUND, np.uint8)
                continue
            self.pose(torch.from_numpy(q)[None])
            moved = replace(camera, eye=camera.eye + shift, target=camera.target + shift)
            transform = wp.array([camera_pose(moved)], dtype=wp.transformf, device="cpu")
            self.model.bvh_refit_shapes(self.state)
            self._tracer.update(self.state, transform, rays, color_image=image)
            pictures[k] = image.numpy().view(np.uint8).reshape(height, width, 4)[..., :3]
        return pictures

    def default_camera(self, motion: np.ndarray, path: np.ndarray) -> Camera:
        """Return a camera that shows all moving parts during the whole motion while it moves along a path."""
        finite = np.isfinite(motion).all(1)
        if finite.any():
            motion, path = motion[finite], path[finite]
        else:
            motion, path = np.zeros((1, motion.shape[1]), np.float32), np.zeros((1, 3))
        stride = max(1, len(motion) // _FRAMES_TO_FIT)
        points = []
        for q, shift in zip(motion[::stride], path[::stride], strict=True):
            self.pose(torch.from_numpy(q)[None])
            points.append(self._outline() - shift)
        return fit_camera(np.concatenate(points), self._direction(), self._aspect)

    def _outline(self) -> np.ndarray:
        """Return corners of bounding boxes of all moving shapes, world axes, shape [points, 3]."""
        body_q = self.state.body_q.numpy()
        shape_pose, scale = self.model.shape_transform.numpy(), self.model.shape_scale.numpy()
        radius, is_box = self.model.shape_collision_radius.numpy(), self.model.shape_type.numpy()
        box = int(self._newton.GeoType.BOX)
        corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
        points = [body_q[:, :3]]
        for shape, body in enumerate(self.model.shape_body.numpy()):
            if body < 0:
                continue
            extent = scale[shape] if is_box[shape] == box else np.full(3, radius[shape] / 3**0.5)
            local = _transform(shape_pose[shape], corners * extent)
            points.append(_transform(body_q[body], local))
        return np.concatenate(points)

    def _direction(self) -> np.ndarray:
        """Return the viewing direction: along the hinges of a planar robot, oblique otherwise."""
        newton, model = self._newton, self.model
        body_q, parent, frame = self.state.body_q.numpy(), model.joint_parent.numpy(), model.joint_X_p.numpy()
        kind, start, axes = model.joint_type.numpy(), model.joint_qd_start.numpy(), model.joint_axis.numpy()
        hinges = []
        for joint in np.flatnonzero(kind == int(newton.JointType.REVOLUTE)):
            axis = rotation(frame[joint]) @ axes[start[joint]]
            hinges.append(axis if parent[joint] < 0 else rotation(body_q[parent[joint]]) @ axis)
        aslant = np.array([-0.75, 0.85, -0.45])
        planar = hinges and all(abs(abs(axis @ hinges[0]) - 1) < 1e-3 for axis in hinges)
        if not planar or abs(hinges[0][2]) > 0.5:
            return aslant / np.linalg.norm(aslant)
        # A little from above, so that depth can be seen.
        forward = hinges[0] * (1 if hinges[0] @ aslant > 0 else -1) + np.array([0, 0, -0.16])
        return forward / np.linalg.norm(forward)


class Viewfinder:
    """Pictures of a robot one at a time, by a camera that follows a floating base over the ground."""

    def __init__(self, robot: Robot, width: int, height: int, ground: Ground | None = None) -> None:
        """Build the scene; the camera is placed by the first picture."""
        self._robot, self._studio = robot, _Studio(robot, width, height, ground)
        self._camera: Camera | None = None
        self._first = np.zeros(3)

    def picture(self, q: Tensor) -> np.ndarray:
        """Render positions [rad or m], shape [nq]; return uint8, shape [height, width, 3]."""
        motion = _positions(self._robot, q[None])
        base = np.append(motion[0, :2], 0.0) if self._robot.spec.floating else np.zeros(3)
        if self._camera is None:
            near = self._studio.default_camera(motion, np.zeros((1, 3)))
            self._camera, self._first = replace(near, eye=near.target + _ROOM * (near.eye - near.target)), base
        return self._studio.shoot(motion, self._camera, (base - self._first)[None])[0]


def _show_hidden_shapes(builder: Any) -> None:
    """Show the collision shapes of bodies whose visible shapes are missing or far smaller: meshes were left out."""
    visible = int(import_newton().ShapeFlags.VISIBLE)
    sizes = [float(np.linalg.norm(list(scale))) for scale in builder.shape_scale]
    for body in range(len(builder.body_label)):
        own = [shape for shape, of in enumerate(builder.shape_body) if of == body]
        shown = [shape for shape in own if builder.shape_flags[shape] & visible]
        hidden = [shape for shape in own if shape not in shown]
        if hidden and max((sizes[s] for s in shown), default=0.0) < 0.5 * max(sizes[s] for s in hidden):
            for shape in hidden:
                builder.shape_flags[shape] |= visible


def _draw_bare_links(builder: Any) -> None:
    """Draw spheres at joints and capsules along links if a robot has bodies without shapes.

    A link without a child joint is drawn from its joint through its centre of mass, to twice that distance.
    """
    bodies = range(len(builder.body_label))
    if set(bodies) <= set(builder.shape_body):
        return
    origins = [np.array(list(pose))[:3] for pose in builder.joint_X_p]
    centres_of_mass = [np.array(list(centre)) for centre in builder.body_com]
    bare = set(bodies) - set(builder.shape_body) - set(builder.joint_parent)
    ends_of_links = [*origins, *(2.0 * centres_of_mass[body] for body in bare)]
    reach = sum(float(np.linalg.norm(end)) for end in ends_of_links) or 1.0
    radius = 0.022 * reach
    config = builder.default_shape_cfg.copy()
    config.density = 0.0
    shapes = [
        (body, np.array(list(pose))[:3]) for body, pose in zip(builder.shape_body, builder.shape_transform, strict=True)
    ]
    for body in (-1, *bodies):
        ends = [origins[joint] for joint, parent in enumerate(builder.joint_parent) if parent == body]
        centres = [centre for of, centre in shapes if of == body >= 0]
        if not ends and body >= 0:
            ends = [np.mean(centres, axis=0) if centres else 2.0 * centres_of_mass[body]]
        for end in ends:
            if np.linalg.norm(end) > radius:
                _add_capsule(builder, body, end, radius, config)
        builder.add_shape_sphere(body, radius=1.4 * radius, cfg=config, color=_JOINT_COLOUR)


def _add_capsule(builder: Any, body: int, end: np.ndarray, radius: float, config: Any) -> None:
    import warp as wp

    length = float(np.linalg.norm(end))
    rotation: Any = wp.quat_between_vectors(wp.vec3(0.0, 0.0, 1.0), wp.vec3(*(end / length).tolist()))
    pose = wp.transform(wp.vec3(*(end / 2).tolist()), rotation)
    builder.add_shape_capsule(body, xform=pose, radius=radius, half_height=length / 2, cfg=config, color=_LINK_COLOUR)


def _transform(pose: np.ndarray, points: np.ndarray) -> np.ndarray:
    return pose[:3] + points @ rotation(pose).T


@dataclass(frozen=True)
class ViewedMotion:
    """Poses of links over time, and their meshes."""

    names: tuple[str, ...]
    poses: np.ndarray  # position [m] and quaternion (scalar last), world axes, shape [T, links, 7]
    meshes: tuple[tuple[np.ndarray, np.ndarray], ...]  # vertices [m] in link axes, shape [n, 3], and triangles


def link_motion(robot: Robot, q: Tensor) -> ViewedMotion:
    """Return the poses of a robot's links along positions, shape [T, nq]; a non-finite frame repeats the one before."""
    if q.ndim != 2 or q.shape[1] != robot.spec.nq:
        raise InputError(f"motion of {robot.name!r}: q has shape {list(q.shape)}; valid: [frames, {robot.spec.nq}]")
    stage = ViewedCopies(robot, 1)
    poses = []
    for row in q:
        stage.pose(row[None])
        poses.append(stage.state.body_q.numpy().copy())
    names = [short_label(label) for label in stage.model.body_label]
    names = [name if names.count(name) == 1 else f"{name}-{k}" for k, name in enumerate(names)]
    meshes = tuple(mesh_of(stage.model, body) for body in range(len(names)))
    return ViewedMotion(tuple(names), np.stack(poses), meshes)


def mesh_of(model: Any, body: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the visible shapes of a body (-1 for the world) as one mesh in its frame: vertices [m] and triangles."""
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
    """Return a shape as vertices and triangles; None for a kind without a mesh."""
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
        shape_mesh, factor = made(), np.ones(3)
    elif isinstance(source, mesh):
        shape_mesh, factor = source, np.array(scale)
    else:
        return None
    return np.asarray(shape_mesh.vertices) * factor, np.asarray(shape_mesh.indices).reshape(-1, 3)
