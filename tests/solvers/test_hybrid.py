# SPDX-License-Identifier: Apache-2.0
"""SolverHybrid in Newton's own loops: the dynamics' roll-outs, on any ground."""

import pytest
import torch

from neurodyn import robots
from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.description.scene import Plane, Scene
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics.batch import Environment, State
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.geometry.ground import Ground
from neurodyn.multibody.engine import EngineConfig, nominal

pytest.importorskip("newton")

import newton
import warp as wp

from neurodyn.sim.newton.articulation import newton_articulation
from neurodyn.sim.newton.build import build, build_world
from neurodyn.sim.newton.fingerprints import fingerprint
from neurodyn.sim.simulators import mechanism
from neurodyn.solvers import SolverHybrid, SolverNeural, make_solver
from tests.solvers.loop import cartpoles, coordinates, forces, mask, simulate, start, table
from tests.solvers.scenes import drive, scene_of

CUBE = robots.load("cube")


def make(name, asked=(), **options):
    robot = robots.load(name)
    built = build(robot)
    found, config = mechanism(newton_articulation(built, robot), robot), EngineConfig(**options)
    parameters = select_parameters(nominal(found, config.contact), asked)
    return HybridDynamics(robot.spec, found, config, parameters, fingerprint(built))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A cartpole with a friction that it did not have."""
    folder = tmp_path_factory.mktemp("hybrid")
    HYBRID.save(folder, make("cartpole", ("slider.damping=5",), substeps=4))
    return folder


@pytest.fixture(scope="module")
def cube():
    """A cube that is soft enough for four substeps a frame."""
    return make("cube", ("contact.stiffness=3e3", "contact.friction=0.3"), contact="force", substeps=4)


def rollout(dynamics, model, state, torques, environment=None):
    nq = dynamics.spec.nq
    now = coordinates(model, state)
    with torch.no_grad():
        found = dynamics.rollout(State(now[:, :nq], now[:, nq:]), torques, environment)
    return torch.cat([found.q, found.qd], -1)


def test_a_run_is_stepped_by_the_solver_of_its_kind(run):
    assert type(make_solver(cartpoles(2), run)) is SolverHybrid


def test_a_newton_loop_is_a_rollout(run):
    import neurodyn

    model = cartpoles(4)
    torques = forces(model, 12)
    expected = rollout(neurodyn.load(str(run)), model, start(model), torques)
    solver = SolverHybrid(model, run)
    seen, _ = simulate(solver, model, start(model), torques)
    assert torch.equal(seen, expected)
    assert (seen[:, -1] - seen[:, 0]).abs().min() > 1e-3
    # The same from a model in memory.
    seen, _ = simulate(SolverHybrid(model, solver.dynamics), model, start(model), torques)
    assert torch.equal(seen, expected)


def falling(model, worlds):
    """Cubes that fall on the ground turned, each in its own way."""
    generator = torch.Generator().manual_seed(0)
    state = model.state()
    q, qd = table(state.joint_q, model), table(state.joint_qd, model)
    q[:, :3] = torch.tensor([0.0, 0.0, 0.12])
    q[:, 3:7] = torch.nn.functional.normalize(torch.randn(worlds, 4, generator=generator), dim=-1)
    qd.copy_(torch.randn(qd.shape, generator=generator))
    qd[:, 2] -= 1.0
    newton.eval_fk(model, state.joint_q, state.joint_qd, state)
    return state


def test_on_a_plane_a_loop_is_a_rollout_too(cube):
    """Newton's plane is found by contact points, that of a scene stands in the compiled loop."""
    model = scene_of(CUBE, 3, boxes=())
    torques = torch.zeros(3, 25, 0)
    ground = Environment(ground=Ground(Scene(shapes=(Plane(),))))
    expected = rollout(cube, model, falling(model, 3), torques, ground)
    free = rollout(cube, model, falling(model, 3), torques, Environment())
    assert (expected - free)[:, -1, :3].abs().amax(1).min() > 0.02
    seen, state = drive(SolverHybrid(model, cube), model, falling(model, 3), torques, CUBE)
    torch.testing.assert_close(seen[..., :7], expected[..., :7], rtol=0, atol=2e-4)
    for _ in range(12):
        _, state = drive(SolverHybrid(model, cube), model, state, torques, CUBE)
    height = table(state.joint_q, model)[:, 2]
    # At rest on a face, an edge of 0.1048 m, a little sunk in.
    assert ((height > 0.045) & (height < 0.0525)).all()


def test_a_captured_frame_is_a_step(cube):
    model = build(CUBE, 2, scene=Scene(shapes=(Plane(),)))
    eager, replayed = start(model), start(model)
    solver = SolverHybrid(model, cube)
    for _ in range(4):
        solver.step(eager, eager, None, None, CUBE.dt)
    with wp.ScopedCapture(device="cpu") as capture:
        solver.step(replayed, replayed, None, None, CUBE.dt)
    for _ in range(4):
        wp.capture_launch(capture.graph)
    assert torch.equal(coordinates(model, replayed), coordinates(model, eager))
    assert torch.equal(wp.to_torch(replayed.body_q), wp.to_torch(eager.body_q))
    assert not torch.equal(coordinates(model, replayed), coordinates(model, start(model)))


def test_a_reset_leaves_other_worlds_alone(run):
    model = cartpoles(3)
    torques = forces(model, 8)
    solver = SolverHybrid(model, run)
    expected, _ = simulate(solver, model, start(model), torques)
    solver = SolverHybrid(model, run)
    _, state = simulate(solver, model, start(model), torques[:, :4])
    solver.reset(state, mask(model, 1))
    after, _ = simulate(solver, model, state, torques[:, 4:])
    assert not after[1, 0].any()
    assert torch.equal(after[[0, 2]], expected[[0, 2], 4:])
    assert not torch.equal(after[1], expected[1, 4:])


def test_another_robot_is_refused(run):
    for model in (build(robots.load("dfki-c1"), 2), scene_of(CUBE, 2)):
        with pytest.raises(MismatchError, match="SolverHybrid: not the robot that the model of 'cartpole'"):
            SolverHybrid(model, run)


def test_gravity_that_is_known_to_be_another_is_refused():
    model = make("cartpole", ("gravity.z=-9.81:-12:-8",))
    SolverHybrid(cartpoles(2), model)
    with pytest.raises(MismatchError, match="gravity"):
        SolverHybrid(cartpoles(2, gravity=(0.0, 0.0, -3.7)), model)


def test_other_shapes_than_the_models_are_refused(cube):
    world = build_world(CUBE)
    world.shape_scale[0] = wp.vec3(0.06, 0.0524, 0.0524)
    with pytest.raises(MismatchError, match="SolverHybrid: not the"):
        SolverHybrid(scene_of(CUBE, 2, world=world), cube)


def test_a_model_without_contacts_names_the_shapes_that_it_ignores():
    free = make("cube")
    with pytest.warns(UserWarning, match="feels none of the 1 static shapes"):
        SolverHybrid(scene_of(CUBE, 2, boxes=()), free)


def test_runs_of_the_other_kind_are_refused(run, tmp_path):
    with pytest.raises(InputError, match="holds a hybrid model; valid here: a neural model"):
        SolverNeural(cartpoles(2), run)
    with pytest.raises(InputError):
        SolverHybrid(cartpoles(2), tmp_path / "nothing")
