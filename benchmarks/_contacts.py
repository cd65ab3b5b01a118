# SPDX-License-Identifier: Apache-2.0
"""Contacts that Newton's collision pipeline finds between robots and a ground, for comparison with contact points."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import warp as wp

from neurodyn.core import ChainJoint, ContactPoint, ContactPointLayout, Terrain
from neurodyn.core.description.scene import IDENTITY
from neurodyn.geometry import terrain_heights
from neurodyn.sim.engine import import_newton

newton = import_newton()

RADIUS = 0.1
BALL = ContactPointLayout(
    joints=(
        ChainJoint(
            name="root", kind="free", parent=-1, parent_frame=IDENTITY, child_frame=IDENTITY, axis=(0.0, 0.0, 0.0)
        ),
    ),
    contact_points=(ContactPoint(name="ball/0", joint=0, point=(0.0, 0.0, 0.0), radius=RADIUS),),
)
"""A free ball with one contact point: its distance minus the radius equals that of the pipeline's nearest contact."""


@dataclass(frozen=True)
class Contacts:
    """Contacts between moving and static shapes.

    Attributes:
        world: World of each contact, shape [contacts].
        shape: The moving shape, shape [contacts].
        distance: Signed gap [m], shape [contacts].
        point: Point on the moving shape [m], shape [contacts, 3].
        normal: Unit normal towards the moving shape, shape [contacts, 3].
    """

    world: np.ndarray
    shape: np.ndarray
    distance: np.ndarray
    point: np.ndarray
    normal: np.ndarray

    def least(self, worlds: int) -> np.ndarray:
        """Return the smallest gap in each world, inf without contact."""
        result = np.full(worlds, np.inf)
        np.minimum.at(result, self.world, self.distance)
        return result


def make_pipeline(model: Any, gap: float) -> tuple[Any, Any, Any]:
    """Return pipeline, contacts and state of a model in which contacts start at a gap [m]."""
    model.shape_gap.fill_(gap)
    pipeline = newton.CollisionPipeline(model, rigid_contact_max=200_000)
    return pipeline, pipeline.contacts(), model.state()


def set_positions(model: Any, state: Any, q: torch.Tensor) -> None:
    """Write positions, shape [worlds, nq], into a state and run forward kinematics."""
    wp.copy(state.joint_q, wp.from_torch(q.float().flatten().contiguous()))
    newton.eval_fk(model, state.joint_q, state.joint_qd, state)


def contacts_of(model: Any, q: torch.Tensor, gap: float = 0.3) -> Contacts:
    """Return the contacts with static shapes that the pipeline finds within a gap [m]."""
    pipeline, found, state = make_pipeline(model, gap)
    set_positions(model, state, q)
    pipeline.collide(state, found)
    count = int(found.rigid_contact_count.numpy()[0])
    if count >= found.rigid_contact_max:
        raise SystemExit("the pipeline ran out of contacts")
    distance = wp.empty(found.rigid_contact_max, dtype=float)
    points = [wp.empty(found.rigid_contact_max, dtype=wp.vec3) for _ in range(2)]
    newton.eval_rigid_contact_kinematics(
        model, state, found, out_distance=distance, out_point0_world=points[0], out_point1_world=points[1]
    )
    shapes = np.stack([found.rigid_contact_shape0.numpy(), found.rigid_contact_shape1.numpy()], -1)[:count]
    static = model.shape_body.numpy()[shapes] < 0
    keep = static.any(1) & ~static.all(1)
    side = np.where(static[:, 0], 1, 0)
    row = np.arange(count)
    own = shapes[row, side]
    where = np.stack([point.numpy()[:count] for point in points], 1)[row, side]
    normal = found.rigid_contact_normal.numpy()[:count] * np.where(side == 1, 1.0, -1.0)[:, None]
    # The pipeline's points on spheres and capsules lie on their axes, with the radius as a margin.
    margin = np.stack([x.numpy()[:count] for x in (found.rigid_contact_margin0, found.rigid_contact_margin1)], 1)
    where = where - margin[row, side, None] * normal
    world = model.shape_world.numpy()[own]
    return Contacts(world[keep], own[keep], distance.numpy()[:count][keep], where[keep], normal[keep])


def balls(add_ground: Callable[[Any], object], worlds: int) -> Any:
    """Return a model of one free ball per world over a shared ground."""
    one = newton.ModelBuilder()
    one.add_shape_sphere(one.add_body(mass=1.0), radius=RADIUS)
    scene = newton.ModelBuilder()
    scene.replicate(one, copy_count=worlds)
    add_ground(scene)
    return scene.finalize(device="cpu")


def ball_positions(worlds: int, extent: float = 0.9) -> torch.Tensor:
    """Return random poses in a cube of half edge `extent` [m], shape [worlds, 7]."""
    generator = torch.Generator().manual_seed(0)
    place = (2 * torch.rand(worlds, 3, generator=generator) - 1) * extent
    return torch.cat([place, torch.nn.functional.normalize(torch.randn(worlds, 4, generator=generator), dim=-1)], -1)


def bumps() -> np.ndarray:
    """Return the heights of a rough square of 2 m with cells of 5 cm."""
    return terrain_heights(Terrain(style="rough", seed=1, size=(2.0, 2.0), cell=0.05, amplitude=0.15, feature=0.4))


def pipeline_grounds(vertices: np.ndarray, faces: np.ndarray) -> dict[str, Callable[[Any], object]]:
    """Return functions that add a ground to a builder, by name: away from the origin and tilted.

    Args:
        vertices: Vertices of a mesh [m], shape [vertices, 3].
        faces: Its triangles, shape [faces, 3].
    """
    turn = wp.quat_from_axis_angle(wp.normalize(wp.vec3(1.0, 2.0, 0.5)), 0.5)
    place = wp.transform(wp.vec3(0.2, -0.1, 0.05), turn)
    ring = newton.Mesh(vertices.astype(np.float32), faces.ravel().astype(np.int32))
    heights = bumps()
    field = newton.Heightfield(heights.astype(np.float32), *heights.shape, hx=1.0, hy=1.0)
    return {
        "plane": lambda scene: scene.add_shape_plane(xform=place, width=0.0, length=0.0),
        "box": lambda scene: scene.add_shape_box(-1, xform=place, hx=0.5, hy=0.3, hz=0.2),
        "sphere": lambda scene: scene.add_shape_sphere(-1, xform=place, radius=0.4),
        "capsule": lambda scene: scene.add_shape_capsule(-1, xform=place, radius=0.2, half_height=0.3),
        "cylinder": lambda scene: scene.add_shape_cylinder(-1, xform=place, radius=0.3, half_height=0.3),
        "mesh": lambda scene: scene.add_shape_mesh(-1, xform=place, mesh=ring),
        "convex": lambda scene: scene.add_shape_convex_hull(-1, xform=place, mesh=ring),
        "heightfield": lambda scene: scene.add_shape_heightfield(xform=place, heightfield=field),
    }
