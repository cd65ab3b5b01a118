# SPDX-License-Identifier: Apache-2.0
import newton
import numpy as np
import pytest
import torch
import warp as wp
from scipy.spatial.transform import Rotation

from neurodyn import robots
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.sim import build
from neurodyn.sim.newton.build import build_world
from neurodyn.solvers import SolverNeural
from tests.solvers.conftest import TILTED
from tests.solvers.loop import CARTPOLE, DT, cartpoles, coordinates, copy_of, forces, mask, simulate, start, table


def rollout(run, model, state, torques):
    context = State(table(state.joint_q, model).clone(), table(state.joint_qd, model).clone())
    trajectory = NEURAL.load(run).rollout(context, torques)
    return torch.cat([trajectory.q, trajectory.qd], -1)


class TestStep:
    def test_newton_loop_gives_the_rollout_of_the_dynamics(self, any_run):
        model = cartpoles(5)
        state, torques = start(model), forces(model, 20)
        expected = rollout(any_run, model, state, torques)
        for dynamics in (any_run, NEURAL.load(any_run)):
            seen, _ = simulate(SolverNeural(model, dynamics), model, copy_of(model, state), torques)
            assert torch.equal(seen, expected)
        assert (seen[:, -1] - seen[:, 0]).abs().min() > 1e-3

    @pytest.mark.trains
    @pytest.mark.parametrize("any_run", ["mlp"], indirect=True)
    def test_stays_near_the_analytic_solver(self, any_run):
        from neurodyn.sim.newton.simulator import ReferenceSimulator

        model = cartpoles(16)
        torques = forces(model, 6)
        seen, _ = simulate(SolverNeural(model, any_run), model, start(model), torques)
        state = start(model)
        q, qd = ReferenceSimulator(CARTPOLE, 16).rollout(
            table(state.joint_q, model), table(state.joint_qd, model), torques
        )
        exact = torch.cat([q, qd], -1)
        error = (seen - exact)[:, -1].abs().mean()
        assert error < 0.2 * (exact[:, -1] - exact[:, 0]).abs().mean()

    def test_works_on_one_state(self, run):
        model = cartpoles(3)
        torques = forces(model, 6)
        expected, _ = simulate(SolverNeural(model, run), model, start(model), torques)
        solver, state, control = SolverNeural(model, run), start(model), model.control()
        for torque in torques.unbind(1):
            table(control.joint_f, model)[:, :1] = torque
            solver.step(state, state, control, None, DT)
        assert torch.equal(coordinates(model, state), expected[:, -1])

    def test_the_input_state_is_not_changed(self, run):
        model = cartpoles(3)
        state, out = start(model), model.state()
        before = coordinates(model, state)
        SolverNeural(model, run).step(state, out, None, None, DT)
        assert torch.equal(coordinates(model, state), before)

    def test_without_a_control_the_forces_of_the_model_act(self, run):
        model = cartpoles(3)
        table(model.joint_f, model)[:, :1] = torques = forces(model, 1)[:, 0]
        expected = rollout(run, model, start(model), torques[:, None])[:, -1]
        out = model.state()
        SolverNeural(model, run).step(start(model), out, None, None, DT)
        assert torch.equal(coordinates(model, out), expected)

    @pytest.mark.trains
    def test_edits_between_steps_win(self, any_run):
        model = cartpoles(3)
        torques = forces(model, 8)
        solver = SolverNeural(model, any_run)
        _, state = simulate(solver, model, start(model), torques[:, :4])
        table(state.joint_q, model)[1] = torch.tensor([0.3, -0.2])
        table(state.joint_qd, model)[1] = torch.tensor([-0.5, 0.4])
        untouched = coordinates(model, state)
        seen, _ = simulate(solver, model, state, torques[:, 4:])
        assert torch.equal(seen[:, 0], untouched)
        # One frame from rest-like speeds moves a cart by centimetres: it went on from where it was put.
        assert (seen[1, 1, 0] - 0.3).abs() < 0.05
        assert (seen[1, 1, 1] + 0.2).abs() < 0.05

    def test_a_model_without_worlds_is_one_world(self, run):
        model = build_world(CARTPOLE).finalize(device="cpu")
        state, torques = start(model), forces(model, 4)
        expected = rollout(run, model, state, torques)
        solver = SolverNeural(model, run)
        seen, state = simulate(solver, model, state, torques)
        assert torch.equal(seen, expected)
        # Its entry of a reset mask is the last one, that of the global world.
        before = coordinates(model, state)
        solver.reset(state, wp.array([True] * model.world_count + [False], dtype=wp.bool))
        assert torch.equal(coordinates(model, state), before)
        solver.reset(state, wp.array([False] * model.world_count + [True], dtype=wp.bool))
        assert not coordinates(model, state).any()


class TestForwardKinematics:
    def test_bodies_follow_the_joint_of_a_tilted_base(self, tilted_run):
        """Against rotations written out by hand: base o joint o turn, and the velocity of an off-centre mass."""
        robot = robots.load(TILTED)
        model = build(robot, 3)
        solver, state, out = SolverNeural(model, tilted_run), start(model), model.state()
        solver.step(state, out, None, None, robot.dt)
        base = Rotation.from_euler("ZYX", [0.5, -0.4, 0.3]).as_matrix()
        joint = base @ Rotation.from_euler("y", 0.6).as_matrix()
        q, qd = out.joint_q.numpy(), out.joint_qd.numpy()
        assert (q != state.joint_q.numpy()).all()
        for world in range(3):
            turned = joint @ Rotation.from_euler("z", q[world]).as_matrix()
            pose = out.body_q.numpy()[world]
            np.testing.assert_allclose(pose[:3], [1, 2, 3] + base @ [0, 0.1, 0], atol=1e-5)
            np.testing.assert_allclose(Rotation.from_quat(pose[3:]).as_matrix(), turned, atol=1e-5)
            spin = joint @ [0, 0, qd[world]]
            velocity = np.cross(spin, turned @ [0.1, -0.2, 0.3])
            np.testing.assert_allclose(out.body_qd.numpy()[world], [*velocity, *spin], atol=1e-5)


class TestReset:
    @pytest.mark.parametrize("any_run", ["gru", "transformer"], indirect=True)
    def test_masked_reset_leaves_the_other_worlds_bitwise_alone(self, any_run):
        model = cartpoles(4)
        torques = forces(model, 12)
        kept, reset = SolverNeural(model, any_run), SolverNeural(model, any_run)
        _, state = simulate(kept, model, start(model), torques[:, :6])
        _, same = simulate(reset, model, start(model), torques[:, :6])
        reset.reset(same, mask(model, 2), flags=0)
        assert torch.equal(coordinates(model, state), coordinates(model, same))
        expected, _ = simulate(kept, model, copy_of(model, state), torques[:, 6:])
        seen, _ = simulate(reset, model, same, torques[:, 6:])
        others = [0, 1, 3]
        assert torch.equal(seen[others], expected[others])
        assert (seen[2, 1:] != expected[2, 1:]).any(-1).all()
        fresh, _ = simulate(SolverNeural(model, any_run), model, state, torques[:, 6:])
        # A cache of keys turns with the frame number, so that a later start may round otherwise.
        torch.testing.assert_close(seen[2], fresh[2], rtol=1e-5, atol=1e-5)

    def test_sets_chosen_worlds_to_the_state_of_the_model(self, run):
        model = cartpoles(3)
        table(model.joint_q, model)[:] = torch.tensor([0.25, 0.5])
        solver, state = SolverNeural(model, run), start(model)
        before, bodies = coordinates(model, state), wp.to_torch(state.body_q).clone().view(3, -1)
        solver.reset(state, mask(model, 1))
        after = coordinates(model, state)
        assert after[1].tolist() == [0.25, 0.5, 0, 0]
        assert torch.equal(after[[0, 2]], before[[0, 2]])
        moved = wp.to_torch(state.body_q).view(3, -1)
        assert moved[1, 0] == 0.25
        assert torch.equal(moved[[0, 2]], bodies[[0, 2]])

    def test_flags_choose_what_is_set(self, run):
        model = cartpoles(2)
        solver, state = SolverNeural(model, run), start(model)
        before = coordinates(model, state)
        solver.reset(state, None, newton.StateFlags.JOINT_QD)
        assert torch.equal(coordinates(model, state)[:, :2], before[:, :2])
        assert not coordinates(model, state)[:, 2:].any()

    @pytest.mark.parametrize("worlds", [None, (0,), (0, 1, 2, 3)])
    def test_before_the_first_step(self, run, worlds):
        model = cartpoles(3)
        solver, state, torques = SolverNeural(model, run), start(model), forces(model, 5)
        expected, _ = simulate(SolverNeural(model, run), model, copy_of(model, state), torques)
        solver.reset(state, None if worlds is None else mask(model, *worlds), flags=0)
        seen, _ = simulate(solver, model, state, torques)
        assert torch.equal(seen, expected)

    def test_without_a_mask_all_start_over(self, run):
        model = cartpoles(3)
        solver, torques = SolverNeural(model, run), forces(model, 6)
        first, state = simulate(solver, model, start(model), torques)
        solver.reset(state)
        again, _ = simulate(solver, model, start(model), torques)
        assert torch.equal(first, again)

    def test_global_entry_resets_no_world(self, run):
        model = cartpoles(2)
        solver, torques = SolverNeural(model, run), forces(model, 8)
        expected, _ = simulate(SolverNeural(model, run), model, start(model), torques)
        _, state = simulate(solver, model, start(model), torques[:, :4])
        solver.reset(state, mask(model, 2))
        seen, _ = simulate(solver, model, state, torques[:, 4:])
        assert torch.equal(seen, expected[:, 4:])

    @pytest.mark.parametrize(
        ("bad", "error", "message"),
        [
            (lambda: wp.zeros(2, dtype=wp.bool), ValueError, "world_count"),
            (lambda: wp.zeros(3, dtype=wp.int32), TypeError, "bool"),
            (lambda: torch.zeros(3, dtype=torch.bool), TypeError, "Warp array"),
        ],
    )
    def test_refuses_bad_masks(self, run, bad, error, message):
        model = cartpoles(2)
        with pytest.raises(error, match=message):
            SolverNeural(model, run).reset(model.state(), bad())


class TestCapture:
    @pytest.mark.parametrize("worlds", [1, 40])
    @pytest.mark.parametrize("any_run", ["gru", "mlp"], indirect=True)
    def test_a_replayed_frame_is_a_step(self, any_run, worlds):
        model = cartpoles(worlds)
        torques = forces(model, 2).repeat_interleave(2, 1)  # held over both steps of a replay
        expected, _ = simulate(SolverNeural(model, any_run), model, start(model), torques)
        solver, state, out, control = SolverNeural(model, any_run), start(model), model.state(), model.control()
        with wp.ScopedCapture(device="cpu") as capture:
            solver.step(state, out, control, None, DT)
            solver.step(out, state, control, None, DT)
        for torque in torques[:, ::2].unbind(1):
            table(control.joint_f, model)[:, :1] = torque
            wp.capture_launch(capture.graph)
        torch.testing.assert_close(coordinates(model, state), expected[:, -1], rtol=1e-5, atol=1e-5)
        bodies = copy_of(model, state)
        newton.eval_fk(model, state.joint_q, state.joint_qd, bodies)
        assert np.array_equal(state.body_q.numpy(), bodies.body_q.numpy())

    def test_a_reset_between_replays_empties_the_history(self, run):
        model = cartpoles(2)
        solver, state, control = SolverNeural(model, run), start(model), model.control()
        first = copy_of(model, state)
        with wp.ScopedCapture(device="cpu") as capture:
            solver.step(state, state, control, None, DT)
        wp.capture_launch(capture.graph)
        fresh = coordinates(model, state).clone()
        state.assign(first)
        wp.capture_launch(capture.graph)
        assert not torch.equal(coordinates(model, state), fresh)
        state.assign(first)
        solver.reset(state, flags=0)
        wp.capture_launch(capture.graph)
        assert torch.equal(coordinates(model, state), fresh)

    def test_unsupported_forces_give_nan_in_their_world_and_an_error_at_the_next_call(self, run):
        model = cartpoles(3)
        solver, state, control = SolverNeural(model, run), start(model), model.control()
        with wp.ScopedCapture(device="cpu") as capture:
            solver.step(state, state, control, None, DT)
        table(control.joint_f, model)[1, 1] = 7.0
        wp.capture_launch(capture.graph)
        assert coordinates(model, state).isnan().any(1).tolist() == [False, True, False]
        with pytest.raises(InputError, match=r"joint_f is 7 at joint 'hinge' in world 1"):
            solver.step(state, state, control, None, DT)

    @pytest.mark.parametrize("any_run", ["transformer"], indirect=True)
    def test_a_network_without_a_compiled_form_is_refused(self, any_run):
        model = cartpoles(1)
        solver, state = SolverNeural(model, any_run), start(model)
        with pytest.raises(InputError, match="'transformer' has no compiled form"), wp.ScopedCapture(device="cpu"):
            solver.step(state, state, None, None, DT)
        solver.step(state, state, None, None, DT)


def test_a_refused_step_writes_nothing(run):
    model = cartpoles(2)
    solver, state, control = SolverNeural(model, run), start(model), model.control()
    before = coordinates(model, state).clone()
    table(control.joint_f, model)[0, 1] = 1.0
    for _ in range(3):  # launched, recorded, replayed
        with pytest.raises(InputError, match="joint_f is 1"):
            solver.step(state, state, control, None, DT)
    assert torch.equal(coordinates(model, state), before)


def test_changed_weights_are_used(run):
    model = cartpoles(1)
    solver, state, out = SolverNeural(model, run), start(model), model.state()
    for _ in range(3):
        solver.step(state, out, None, None, DT)
        solver.reset(state, flags=0)
    before = coordinates(model, out).clone()
    with torch.no_grad():
        solver.dynamics.predictor.denormaliser.mean.add_(1.0)
    solver.step(state, out, None, None, DT)
    assert not torch.equal(coordinates(model, out), before)


def reverse(world):
    world.joint_label.reverse()


def add_mass(world):
    world.body_mass[1] = 3.5


def add_ball(world):
    world.add_shape_sphere(world.add_body(label="ball", mass=1.0), radius=0.1)


def add_particle(world):
    world.add_particle((0, 0, 1), (0, 0, 0), 0.1)


def heavier_pole(worlds=4):
    model = cartpoles(worlds)
    mass = model.body_mass.numpy()
    mass[5] = 2.75
    model.body_mass.assign(mass)
    return model


def replicated(*, ball=False, **options):
    scene = newton.ModelBuilder()
    scene.replicate(build_world(CARTPOLE), copy_count=2)
    if ball:
        scene.add_body(label="ball", mass=1.0)
    return scene.finalize(device="cpu", **options)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: build(robots.load("dfki-c1"), 2), MismatchError,
         r"'cartpole'.*joint order is \[.*\] instead of \['slider', 'hinge'\]"),
        (lambda: cartpoles(edit=reverse), MismatchError, r"joint order is \['hinge', 'slider'\] instead of"),
        (lambda: cartpoles(edit=add_mass), MismatchError, r"mass of body 'pole' is 3\.5 instead of 2\.5"),
        (lambda: cartpoles(gravity=(0, 0, -1.62)), MismatchError,
         r"gravity is \[0 0 -1\.62\] instead of \[0 0 -9\.81\]"),
        (heavier_pole, MismatchError, r"body_mass of 'pole' is 2\.75 in world 2 instead of 2\.5"),
        (lambda: cartpoles(3, gravity=np.array([[0, 0, -9.81], [0, 0, -3.7], [0, 0, -9.81]])), MismatchError,
         "in world 1"),
        (lambda: cartpoles(edit=add_ball), MismatchError, "joint order is"),
        (lambda: replicated(ball=True), InputError, "outside of all worlds"),
        (lambda: cartpoles(2, edit=add_particle), InputError, "particles"),
        (lambda: replicated(requires_grad=True), InputError, "requires_grad"),
    ],
)  # fmt: skip
def test_models_that_are_not_of_the_robot_are_refused(run, make, error, message):
    with pytest.raises(error, match=message):
        SolverNeural(make(), run)


class TestRefusals:
    def test_robots_may_stand_apart(self, run):
        scene = newton.ModelBuilder()
        scene.replicate(build_world(CARTPOLE), copy_count=3, spacing=(2.0, 3.0, 0.0))
        model = scene.finalize(device="cpu")
        state = start(model)
        expected = rollout(run, model, state, forces(model, 3))
        seen, state = simulate(SolverNeural(model, run), model, state, forces(model, 3))
        assert torch.equal(seen, expected)
        assert np.ptp(state.body_q.numpy()[::2, 1]) > 2.9

    @pytest.mark.parametrize("factor", [0.2, 1.01, 2.0])
    def test_another_dt(self, run, factor):
        model = cartpoles(1)
        with pytest.raises(MismatchError, match=r"instead of the 0\.0166667 s .* substeps = 1"):
            SolverNeural(model, run).step(start(model), model.state(), None, None, factor * DT)

    def test_a_missing_run(self, tmp_path):
        with pytest.raises(InputError, match="run directory"):
            SolverNeural(cartpoles(1), tmp_path / "nothing")

    def test_a_reset_in_a_graph_capture(self, run):
        model = cartpoles(2)
        solver, state = SolverNeural(model, run), start(model)
        with pytest.raises(InputError, match="captured"), wp.ScopedCapture(device="cpu"):
            solver.reset(state)
        solver.step(state, state, None, None, DT)

    def test_a_change_of_the_model(self, run):
        model = cartpoles(2)
        solver = SolverNeural(model, run)
        solver.notify_model_changed(newton.ModelFlags.ALL)
        model.body_mass.assign(model.body_mass.numpy() * 1.2)
        solver.notify_model_changed(newton.ModelFlags.SHAPE_PROPERTIES)
        with pytest.raises(MismatchError, match="mass of body 'cart' is 60 instead of 50"):
            solver.notify_model_changed(newton.ModelFlags.BODY_INERTIAL_PROPERTIES)

    def test_a_wrench_on_a_body(self, run):
        model = cartpoles(2)
        state = start(model)
        state.body_f.fill_(1.0)
        with pytest.raises(InputError, match="body_f"):
            SolverNeural(model, run).step(state, model.state(), None, None, DT)
