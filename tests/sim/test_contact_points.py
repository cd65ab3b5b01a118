# SPDX-License-Identifier: Apache-2.0
import msgspec
import newton
import numpy as np
import pytest
import torch
import warp as wp
from benchmarks._contacts import BALL, RADIUS, Contacts, ball_positions, balls, contacts_of, pipeline_grounds
from benchmarks._shapes import torus

from neurodyn import robots
from neurodyn.core.description.scene import Box, Plane, Scene
from neurodyn.core.errors import InputError
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.proximity import ProximityQuery
from neurodyn.robots.sections import ContactPointSelection
from neurodyn.sim.contact_points import contact_point_layout
from neurodyn.sim.newton.articulation import newton_articulation
from neurodyn.sim.newton.build import build
from neurodyn.sim.newton.scene import ground_of_model
from neurodyn.sim.simulators import articulation

GROUNDS = pipeline_grounds(*torus())


def found_by_pipeline(model, q, gap) -> Contacts:
    """Contacts that the pipeline finds, by kernels that are not optimised: they take long to compile and run once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wp.config, "optimization_level", 0)
        return contacts_of(model, q, gap=gap)


@pytest.fixture(scope="module")
def ant():
    """The ant with all its contact points."""
    return with_contact_points(robots.load("ant"))


def with_contact_points(robot, **fields):
    return msgspec.structs.replace(robot, contact_points=ContactPointSelection(**fields))


def random_state(robot, worlds, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(worlds, robot.spec.nq, generator=generator) * 0.5
    q[:, 3:7] = torch.nn.functional.normalize(torch.randn(worlds, 4, generator=generator), dim=-1)
    return q, torch.randn(worlds, robot.spec.nv, generator=generator)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(GROUNDS))
def test_distance_is_that_of_the_pipelines_contact(name):
    """float32; worlds where the ball's centre is outside, or inside a shape that the pipeline knows as a solid."""
    worlds = 400
    model = balls(GROUNDS[name], worlds)
    q = ball_positions(worlds)
    ground = ground_of_model(model)
    readings = ProximityQuery(BALL)(ground, q, torch.zeros(worlds, 6))
    theirs = found_by_pipeline(model, q, gap=0.25).least(worlds)
    ours = readings.distance[:, 0].numpy() - RADIUS
    near = (ours < 0.2) & (ours > -0.9 * RADIUS if name in ("mesh", "convex", "heightfield") else True)
    if name == "heightfield":  # the pipeline gives it walls at its border
        solid = ground.shared[0]
        rotation = wp.quat_to_matrix(wp.quat(*solid.pose[3:].tolist()))
        local = (q[:, :3].numpy() - solid.pose[:3]) @ np.array(rotation).reshape(3, 3)
        near &= (np.abs(local[:, :2]) < 0.85).all(1)
    assert near.sum() > 40
    assert np.isfinite(theirs[near]).all()
    tolerance = 5e-6 if name == "convex" else 1e-6
    assert np.abs(ours - theirs)[near].max() < tolerance


def test_normal_and_point_of_the_pipeline():
    worlds = 200
    model = balls(GROUNDS["box"], worlds)
    q = ball_positions(worlds)
    readings = ProximityQuery(BALL)(ground_of_model(model), q, torch.zeros(worlds, 6))
    found = found_by_pipeline(model, q, gap=0.25)
    outside = readings.distance[found.world, 0].numpy() > 1e-3
    normal = readings.normal[found.world, 0].numpy()
    assert np.abs(found.normal - normal)[outside].max() < 1e-4
    touching = (readings.position - RADIUS * readings.normal)[found.world, 0].numpy()
    assert np.abs(found.point - touching)[outside].max() < 1e-5


@pytest.mark.parametrize("angle", [0.0, 0.3, 0.9])
def test_corners_and_capsule_ends_on_tilted_planes_are_the_pipelines_contacts(ant, angle):
    """Each contact of the pipeline lies at a contact point: distances equal to 1e-6 m, places to 1e-5 m."""
    scene = Scene(shapes=(Plane(rotation=(0.0, float(np.sin(angle / 2)), 0.0, float(np.cos(angle / 2)))),))
    for robot, height in ((ant, 0.3), (robots.load("cube"), 0.08)):
        worlds = 32
        model = build(robot, worlds, scene=scene)
        layout = contact_point_layout(newton_articulation(model, robot), robot)
        q, qd = random_state(robot, worlds)
        q[:, :3] *= 0.1
        q[:, 2] += height
        readings = ProximityQuery(layout)(ground_of_model(model), q, qd)
        found = found_by_pipeline(model, q, gap=0.05)
        assert len(found.world) > worlds
        radius = torch.tensor([contact_point.radius for contact_point in layout.contact_points])
        touching = (readings.position - radius[:, None] * readings.normal).numpy()[found.world]
        gap = (readings.distance - radius).numpy()[found.world]
        apart = np.linalg.norm(touching - found.point[:, None], axis=-1)
        nearest = apart.argmin(1)
        assert apart.min(1).max() < 1e-5
        assert np.abs(gap[np.arange(len(gap)), nearest] - found.distance).max() < 1e-6


def test_ground_of_a_model_is_that_of_its_scene(ant):
    scene = Scene(shapes=(Plane(position=(0.0, 0.0, -0.1)), Box(half=(0.4, 0.3, 0.2), position=(0.3, 0.0, 0.0))))
    model = build(ant, 3, scene=scene)
    q, qd = random_state(ant, 3)
    proximity = ProximityQuery(contact_point_layout(newton_articulation(model, ant), ant))
    ground = ground_of_model(model)
    assert [len(own) for own in ground.own] == [2, 2, 2]
    torch.testing.assert_close(proximity(ground, q, qd).distance, proximity(Ground(scene), q, qd).distance)


def test_shapes_of_one_world_are_not_seen_by_another():
    one = newton.ModelBuilder()
    one.add_shape_sphere(one.add_body(mass=1.0), radius=RADIUS)
    scene = newton.ModelBuilder()
    for height in (0.1, 0.2):
        scene.begin_world()
        scene.add_builder(one)
        scene.add_shape_box(-1, hx=1.0, hy=1.0, hz=height)
        scene.end_world()
    scene.add_ground_plane()
    ground = ground_of_model(scene.finalize(device="cpu"))
    assert len(ground.shared) == 1
    q = torch.tensor([[0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0]]).repeat(2, 1)
    distance = ProximityQuery(BALL)(ground, q, torch.zeros(2, 6)).distance[:, 0]
    torch.testing.assert_close(distance, torch.tensor([0.4, 0.3]))


def test_ground_of_another_number_of_worlds_is_refused(ant):
    model = build(ant, 2, scene=Scene(shapes=(Plane(),)))
    q, qd = random_state(ant, 3)
    with pytest.raises(InputError, match="2 worlds"):
        ProximityQuery(contact_point_layout(newton_articulation(model, ant), ant))(ground_of_model(model), q, qd)


def test_open_mesh_of_a_model_is_refused():
    sheet = newton.Mesh(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0.0]]), np.array([0, 1, 2]), compute_inertia=False)
    model = balls(lambda scene: scene.add_shape_mesh(-1, mesh=sheet, label="sheet"), 1)
    with pytest.raises(InputError, match="'sheet': the mesh has a hole"):
        ground_of_model(model)


def test_ant_has_the_papers_25_contact_points(ant):
    layout = contact_point_layout(articulation(ant), with_contact_points(ant))
    assert len(layout.contact_points) == 25
    assert len({contact_point.name for contact_point in layout.contact_points}) == 25
    torso = layout.contact_points[0]
    assert (torso.joint, torso.point, torso.radius) == (0, (0.0, 0.0, 0.0), 0.25)


def test_distinct_contact_points_touch_what_all_of_them_touch(ant):
    model, rng = build(ant), np.random.default_rng(0)
    every, distinct = (
        contact_point_layout(newton_articulation(model, ant), with_contact_points(ant, distinct=choice))
        for choice in (False, True)
    )
    assert len(distinct.contact_points) == 13
    q = torch.from_numpy(rng.normal(size=(200, ant.spec.nq))).float()
    q[:, 3:7] /= q[:, 3:7].norm(dim=1, keepdim=True)
    ground = Ground(Scene(shapes=(Plane(),)))
    least = []
    for layout in (every, distinct):
        radius = torch.tensor([contact_point.radius for contact_point in layout.contact_points])
        least.append((ProximityQuery(layout)(ground, q, torch.zeros(200, ant.spec.nv)).distance - radius).amin(1))
    torch.testing.assert_close(least[0], least[1], atol=1e-5, rtol=0)


def test_patterns_select_by_shape_and_by_body(ant):
    model = build(ant)
    feet = contact_point_layout(newton_articulation(model, ant), with_contact_points(ant, shapes=("*_foot",)))
    ankles = contact_point_layout(newton_articulation(model, ant), with_contact_points(ant, shapes=("*ankle_geom",)))
    assert len(feet.contact_points) == 8
    assert feet.contact_points == ankles.contact_points


def test_spacing_adds_points_along_axes(ant):
    model = build(ant)
    dense = contact_point_layout(
        newton_articulation(model, ant), with_contact_points(ant, shapes=("left_ankle_geom",), spacing=2.0)
    )
    places = np.array([contact_point.point for contact_point in dense.contact_points])
    gaps = np.linalg.norm(np.diff(places, axis=0), axis=1)
    assert len(places) == 5  # 0.566 m long, radius 0.08 m
    assert gaps.max() <= 0.16
    ends = contact_point_layout(newton_articulation(model, ant), with_contact_points(ant, shapes=("left_ankle_geom",)))
    np.testing.assert_allclose(places[[0, -1]], [contact_point.point for contact_point in ends.contact_points])


def test_selection_that_matches_nothing_names_what_there_is(ant):
    with pytest.raises(InputError, match=r"match no collision shape; valid: patterns of .* back_leg_geom.*foot"):
        contact_point_layout(articulation(ant), with_contact_points(ant, shapes=("wheel*",)))
    with pytest.raises(InputError, match=r"shapes \['left_ankle_gem'\] match no .*did you mean 'left_ankle_geom'"):
        contact_point_layout(articulation(ant), with_contact_points(ant, shapes=("torso*", "left_ankle_gem")))


@pytest.mark.parametrize("name", ["ant", "cube", "pendulum"])
def test_positions_and_velocities_follow_newtons_kinematics(name):
    """Positions beside eval_fk, velocities beside differences of positions along the motion (float64)."""
    robot = robots.load(name)
    model = build(robot)
    layout = contact_point_layout(newton_articulation(model, robot), robot)
    proximity = ProximityQuery(layout)
    if robot.fixed_base:
        q, qd = torch.randn(1, robot.spec.nq), torch.randn(1, robot.spec.nv)
    else:
        q, qd = random_state(robot, 1)
    readings = proximity(None, q, qd)
    state = model.state()
    wp.copy(state.joint_q, wp.from_torch(q.flatten()))
    wp.copy(state.joint_qd, wp.from_torch(qd.flatten()))
    newton.eval_fk(model, state.joint_q, state.joint_qd, state)
    body_q, body_qd = state.body_q.numpy(), state.body_qd.numpy()
    child, com = model.joint_child.numpy(), model.body_com.numpy()
    moving = [j for j, kind in enumerate(model.joint_type.numpy()) if int(kind) != int(newton.JointType.FIXED)]
    for number, contact_point in enumerate(layout.contact_points):
        body = child[moving[contact_point.joint]]
        pose = wp.transform(*body_q[body].tolist())
        place = np.array(wp.transform_point(pose, wp.vec3(*contact_point.point)))
        centre = np.array(wp.transform_point(pose, wp.vec3(*com[body].tolist())))
        velocity = body_qd[body][:3] + np.cross(body_qd[body][3:], place - centre)
        np.testing.assert_allclose(readings.position[0, number], place, atol=2e-6)
        np.testing.assert_allclose(readings.velocity[0, number], velocity, atol=1e-5)
