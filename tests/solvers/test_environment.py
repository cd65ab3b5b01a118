# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import newton
import newton.examples
import numpy as np
import pytest
import torch
import warp as wp

from neurodyn import robots
from neurodyn.core.description.scene import Box, Plane, Scene
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.geometry import rotation
from neurodyn.sim import build
from neurodyn.sim.newton.build import build_world
from neurodyn.solvers import SolverNeural
from tests.solvers.loop import CARTPOLE, cartpoles, coordinates, mask, start, table
from tests.solvers.scenes import ANT, GROUND, add_box, drive, on, place, scene_of, stand, torques_of

NOTHING = Scene()


def unguarded(model, run) -> SolverNeural:
    """Return a solver of an untrained model, which leaves what is plausible at once."""
    return SolverNeural(model, run, on_fault="off")


def rollout(run, model, state, torques, environment):
    context = State(table(state.joint_q, model).clone(), table(state.joint_qd, model).clone())
    trajectory = NEURAL.load(run).rollout(context, torques, environment)
    return torch.cat([trajectory.q, trajectory.qd], -1)


class TestGround:
    def test_newton_loop_gives_the_rollout_of_the_dynamics_on_the_same_ground(self, any_ant_run):
        model = scene_of()
        state, torques = stand(model), torques_of(model)
        expected = rollout(any_ant_run, model, state, torques, on(GROUND))
        elsewhere = rollout(any_ant_run, model, state, torques, on(Scene(shapes=(Plane(),))))
        seen, _ = drive(unguarded(model, any_ant_run), model, state, torques)
        assert torch.equal(seen, expected)
        assert (seen[:, -1] - elsewhere[:, -1]).abs().max() > 1e-3

    def test_each_world_feels_its_own_boxes(self, ant_run):
        boxes = [Box(position=(0.3, 0.2 * i, 0.1 * i), half=(0.4, 0.5, 0.2)) for i in range(3)]
        builder = newton.ModelBuilder()
        for box in boxes:
            world = build_world(ANT)
            add_box(world, box)
            builder.add_world(world)
        builder.add_ground_plane()
        model = builder.finalize(device="cpu")
        state, torques = stand(model), torques_of(model)
        each = [
            rollout(ant_run, model, state, torques, on(Scene(shapes=(Plane(), box))))[i] for i, box in enumerate(boxes)
        ]
        seen, _ = drive(unguarded(model, ant_run), model, state, torques)
        torch.testing.assert_close(seen, torch.stack(each), rtol=1e-5, atol=1e-5)
        assert (each[1] - rollout(ant_run, model, state, torques, on(GROUND))[1]).abs().max() > 1e-3

    def test_static_bodies_and_one_world_without_worlds(self, ant_run):
        world = build_world(ANT)
        add_box(world, GROUND.shapes[1])
        world.add_ground_plane()
        model = world.finalize(device="cpu")
        state, torques = stand(model), torques_of(model)
        expected = rollout(ant_run, model, state, torques, on(GROUND))
        assert torch.equal(drive(unguarded(model, ant_run), model, state, torques)[0], expected)

    def test_moved_shapes_count_after_notify_model_changed_and_history_stays(self, ant_run):
        model = scene_of()
        torques = torques_of(model)
        dynamics, moved = (
            NEURAL.load(ant_run),
            Scene(shapes=(Plane(), Box(position=(-0.2, 0.1, 0.2), half=(0.4, 0.5, 0.15)))),
        )
        solver, state = unguarded(model, ant_run), stand(model)
        now = State(*(table(array, model).clone() for array in (state.joint_q, state.joint_qd)))
        carry = dynamics.begin(now, on(GROUND))
        for frame, torque in enumerate(torques.unbind(1)):
            if frame == 3:
                box = [i for i, kind in enumerate(model.shape_type.numpy()) if kind == int(newton.GeoType.BOX)]
                wp.to_torch(model.shape_transform)[box[0], :3] = torch.tensor(moved.shapes[1].position)
                solver.notify_model_changed(newton.ModelFlags.SHAPE_PROPERTIES)
                carry = replace(carry, environment=on(moved, gravity=carry.environment.gravity))
            _, state = drive(solver, model, state, torque[:, None])
            carry, step = dynamics.step(carry, now, Control(torque=torque))
            now = step.state
        torch.testing.assert_close(coordinates(model, state), torch.cat([now.q, now.qd], -1), rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("name", ["shape_material_mu", "shape_margin"])
    def test_surfaces_that_change_are_refused(self, name, ant_run):
        model = scene_of()
        solver = unguarded(model, ant_run)
        solver.notify_model_changed(newton.ModelFlags.SHAPE_PROPERTIES)
        wp.to_torch(getattr(model, name))[1] += 0.25
        with pytest.raises(InputError, match=rf"{name} of shape '.*' is .*; valid: .*, as before"):
            solver.notify_model_changed(newton.ModelFlags.SHAPE_PROPERTIES)

    def test_masked_reset_leaves_the_other_worlds_bitwise_alone(self, any_ant_run):
        model = scene_of()
        torques = torques_of(model, frames=8)
        kept, reset = unguarded(model, any_ant_run), unguarded(model, any_ant_run)
        _, state = drive(kept, model, stand(model), torques[:, :4])
        _, same = drive(reset, model, stand(model), torques[:, :4])
        reset.reset(same, mask(model, 1), flags=0)
        expected, _ = drive(kept, model, state, torques[:, 4:])
        seen, _ = drive(reset, model, same, torques[:, 4:])
        assert torch.equal(seen[[0, 2]], expected[[0, 2]])
        assert (seen[1, 1:] != expected[1, 1:]).any(-1).all()

    def test_without_contact_points_the_ground_has_no_effect_and_a_warning_is_given(self, run):
        def edit(world):
            world.add_shape_sphere(world.body_count - 1, radius=0.1, cfg=newton.ModelBuilder.ShapeConfig(density=0.0))
            world.add_ground_plane()

        model, free = cartpoles(2, edit=edit), cartpoles(2)
        with pytest.warns(UserWarning, match=r"'cartpole' has no contact points and feels none of the 2 static"):
            solver = unguarded(model, run)
        out = [model.state(), free.state()]
        solver.step(start(model), out[0], None, None, CARTPOLE.dt)
        unguarded(free, run).step(start(free), out[1], None, None, CARTPOLE.dt)
        assert torch.equal(coordinates(model, out[0]), coordinates(free, out[1]))

    def test_a_mesh_with_a_hole_is_refused(self, ant_run):
        vertices, faces = tetrahedron()
        builder = newton.ModelBuilder()
        builder.replicate(build_world(ANT), copy_count=2)
        mesh = newton.Mesh(vertices, faces[:3].ravel(), compute_inertia=False)
        builder.add_shape_mesh(-1, mesh=mesh, label="rock")
        with pytest.raises(InputError, match="rock"):
            unguarded(builder.finalize(device="cpu"), ant_run)


class TestFrames:
    def test_a_turned_and_shifted_frame_of_the_free_joint(self, ant_run):
        """The same robots at the same places in the world, told from another frame."""
        model, turned = scene_of(), scene_of()
        state, torques = stand(model), torques_of(model)
        pose = np.array([0.3, -0.7, 0.2, *rotation_of([0.3, -0.2, 0.8])])
        frames = turned.joint_X_p.numpy()
        frames[turned.joint_type.numpy() == int(newton.JointType.FREE)] = pose
        turned.joint_X_p.assign(frames)
        told = turned.state()
        shift, turn = torch.tensor(pose[:3]).float(), torch.tensor(pose[3:]).float()
        q, qd = table(told.joint_q, turned), table(told.joint_qd, turned)
        q.copy_(table(state.joint_q, model))
        qd.copy_(table(state.joint_qd, model))
        back = rotation.conjugate(turn).expand(3, 4)
        q[:, :3] = rotation.rotate(back, q[:, :3] - shift)
        q[:, 3:7] = rotation.multiply(back, q[:, 3:7])
        qd[:, :3], qd[:, 3:6] = rotation.rotate(back, qd[:, :3]), rotation.rotate(back, qd[:, 3:6])
        _, out = drive(unguarded(model, ant_run), model, state, torques)
        _, other = drive(unguarded(turned, ant_run), turned, told, torques)
        np.testing.assert_allclose(other.body_q.numpy()[:, :3], out.body_q.numpy()[:, :3], atol=2e-5)
        np.testing.assert_allclose(other.body_qd.numpy(), out.body_qd.numpy(), atol=1e-4)

    def test_bolted_robots_in_different_places_touch_the_shapes_before_them(self, pendulum_run):
        pendulum = robots.load("pendulum")
        # The box is before the second pendulum, which stands apart and is turned, as it was before one at the origin.
        alone = Scene(shapes=(Plane(), Box(position=(0.5, 0.1, 0.9), half=(0.5, 0.4, 0.3))))
        builder = newton.ModelBuilder()
        world = build_world(pendulum)
        there = place(4.0, -2.0, 0.0, yaw=1.1)
        builder.add_world(world)
        builder.add_world(world, xform=there)
        builder.add_ground_plane()
        box = wp.transform_multiply(there, place(*alone.shapes[1].position))
        builder.add_shape_box(-1, xform=box, hx=0.5, hy=0.4, hz=0.3)
        model = builder.finalize(device="cpu")
        state = start(model)
        torques = torques_of(model, pendulum)
        expected = rollout(pendulum_run, model, state, torques, on(alone))[1]
        free = rollout(pendulum_run, model, state, torques, on(Scene(shapes=(Plane(),))))
        seen, _ = drive(unguarded(model, pendulum_run), model, state, torques, pendulum)
        torch.testing.assert_close(seen[1], expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(seen[0], free[0], rtol=1e-4, atol=1e-4)
        assert (expected - free[1]).abs().max() > 1e-2


class TestGravity:
    def test_a_floating_base_takes_any_direction(self, ant_run):
        down = np.array([1.0, 2.0, -9.0])
        down *= 9.81 / np.linalg.norm(down)
        vectors = np.stack([down, [0, 0, -9.81], down[[2, 0, 1]]]).astype(np.float32)
        model = scene_of(gravity=vectors)
        state, torques = stand(model), torques_of(model)
        expected = rollout(ant_run, model, state, torques, on(GROUND, gravity=torch.tensor(vectors)))
        seen, _ = drive(unguarded(model, ant_run), model, state, torques)
        torch.testing.assert_close(seen, expected, rtol=1e-5, atol=1e-5)
        upright = rollout(ant_run, model, state, torques, on(GROUND))
        assert (upright - expected)[[0, 2], -1].abs().max() > 1e-3

    @pytest.mark.parametrize("worlds", [(0, 1, 2), (2,)])
    def test_but_not_another_strength(self, ant_run, worlds):
        vectors = np.tile([0, 0, -9.81], (3, 1))
        vectors[list(worlds)] = [0, 0, -3.7]
        with pytest.raises(MismatchError, match="gravity"):
            unguarded(scene_of(gravity=vectors), ant_run)

    def test_a_turn_of_gravity_after_a_notice(self, ant_run):
        model = scene_of()
        solver = unguarded(model, ant_run)
        model.set_gravity((9.81, 0.0, 0.0))
        solver.notify_model_changed(newton.ModelFlags.MODEL_PROPERTIES)
        state, torques = stand(model), torques_of(model)
        sideways = on(GROUND, gravity=torch.tensor([9.81, 0.0, 0.0]))
        expected = rollout(ant_run, model, state, torques, sideways)
        torch.testing.assert_close(drive(solver, model, state, torques)[0], expected, rtol=1e-5, atol=1e-5)
        model.set_gravity((0.0, 0.0, -1.62))
        with pytest.raises(MismatchError, match=r"gravity is \[0 0 -1\.62\]"):
            solver.notify_model_changed(newton.ModelFlags.MODEL_PROPERTIES)


class TestRobot:
    def test_an_import_of_your_own(self, ant_run):
        """The asset as Newton's importer reads it, with the masses and limits of the declaration."""
        model = scene_of(world=imported_ant())
        state, torques = stand(model), torques_of(model)
        expected = rollout(ant_run, model, state, torques, on(GROUND))
        assert torch.equal(drive(unguarded(model, ant_run), model, state, torques)[0], expected)

    def test_the_name_of_the_free_joint_does_not_matter(self, ant_run):
        world = build_world(ANT)
        world.joint_label[0] = "somewhere/floating_base"
        unguarded(scene_of(world=world), ant_run)

    def test_the_unchanged_asset_has_other_masses(self, ant_run):
        with pytest.raises(MismatchError, match=r"mass of body 'torso' is"):
            unguarded(scene_of(world=imported_ant(scaled=False)), ant_run)

    def test_other_collision_shapes(self, ant_run):
        world = build_world(ANT)
        feet = [i for i, label in enumerate(world.shape_label) if label.endswith("left_ankle_geom")]
        assert feet
        world.shape_scale[feet[0]] = (0.1, *list(world.shape_scale[feet[0]])[1:])
        with pytest.raises(MismatchError, match=r"not the collision shapes .* 'ant' .*left_ankle_geom"):
            unguarded(scene_of(world=world), ant_run)

    def test_shapes_that_do_not_collide(self, ant_run):
        world = build_world(ANT)
        world.shape_flags = [flags & ~int(newton.ShapeFlags.COLLIDE_SHAPES) for flags in world.shape_flags]
        with pytest.raises(MismatchError, match="not the collision shapes"):
            unguarded(scene_of(world=world), ant_run)

    def test_without_the_declaration_a_warning_says_what_was_not_compared(self, ant_run):
        dynamics = NEURAL.load(ant_run)
        dynamics.declaration = "gone"
        with pytest.warns(UserWarning, match="declaration 'gone' of robot 'ant' is not there"):
            unguarded(scene_of(), dynamics)

    def test_forces_on_the_free_joint_are_refused(self, ant_run):
        model = scene_of()
        control = model.control()
        table(control.joint_f, model)[2, 1] = 5.0
        with pytest.raises(InputError, match=r"joint_f is 5 at joint 'root\.vy' in world 2.*anything at hip_1"):
            unguarded(model, ant_run).step(stand(model), model.state(), control, None, ANT.dt)

    def test_targets_of_twelve_joints(self, anymal_run):
        anymal = robots.load("anymal-c")
        model = scene_of(anymal)
        actuated = list(anymal.spec.control_dofs)
        table(model.joint_target_ke, model)[:, actuated] = 85.0
        table(model.joint_target_kd, model)[:, actuated] = 2.0
        state, control, out = stand(model), model.control(), model.state()
        nominal = torch.tensor(anymal.nominal_q())
        table(control.joint_target_q, model)[:, 7:] = nominal
        q, qd = (table(array, model).clone() for array in (state.joint_q, state.joint_qd))
        torque = torch.clamp(85.0 * (nominal - q[:, 7:]) - 2.0 * qd[:, 6:], -80.0, 80.0)
        expected = rollout(anymal_run, model, state, torque[:, None], on(GROUND))[:, -1]
        unguarded(model, anymal_run).step(state, out, control, None, anymal.dt)
        torch.testing.assert_close(coordinates(model, out), expected, rtol=1e-5, atol=1e-5)
        assert torque.abs().max() == 80.0


def imported_ant(*, scaled=True):
    world = newton.ModelBuilder()
    newton.solvers.SolverMuJoCo.register_custom_attributes(world)
    world.add_mjcf(newton.examples.get_asset("nv_ant.xml"), ignore_names=["floor"])
    if scaled:
        declared = build_world(ANT)
        world.body_mass[:], world.body_inertia[:] = declared.body_mass, declared.body_inertia
    return world


def rotation_of(vector):
    turn = torch.tensor(vector, dtype=torch.float64)
    return rotation.exponential(turn[None])[0].tolist()


def tetrahedron():
    vertices = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=np.float32)
    return vertices, np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]], dtype=np.int32)


def test_a_scene_without_ground_is_free_space(ant_run):
    model = build(ANT, 2)
    state, torques = stand(model), torques_of(model)
    expected = rollout(ant_run, model, state, torques, on(NOTHING))
    assert torch.equal(drive(unguarded(model, ant_run), model, state, torques)[0], expected)
