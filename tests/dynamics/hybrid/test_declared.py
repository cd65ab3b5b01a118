# SPDX-License-Identifier: Apache-2.0
"""A declared robot as a hybrid model: what its simulator computes, without data, as a run like any other."""

import resource

import msgspec
import numpy as np
import pytest
import torch

from neurodyn import robots
from neurodyn.cli.main import run
from neurodyn.core.description.scene import Scene, Terrain
from neurodyn.core.errors import InputError
from neurodyn.dynamics import AnalyticDynamics, Environment, HybridDynamics, State, declared_hybrid, load
from neurodyn.geometry.ground import Ground
from neurodyn.sim import sample_states, sample_torques
from tests.dynamics.hybrid.sled import write_sled


def frames(dynamics, state, torque, environment):
    with torch.no_grad():
        return dynamics.rollout(state, torque, environment)


@pytest.mark.parametrize("ground", ["plane-1", "plane-2"])
def test_it_moves_as_the_simulator_does(ground):
    """Single frames of ten steps, from states along roll-outs in which capsules strike a plane."""
    robot, rng, worlds, count = robots.load("pendulum"), np.random.default_rng(1), 32, 20
    environment = Environment(ground=Ground(robot.grounds[ground]))
    start = State(*sample_states(robot, worlds, rng, environment.ground))
    torque = 0.3 * sample_torques(robot, worlds, count, rng)
    path = frames(AnalyticDynamics(robot), start, torque, environment)
    before = State(path.q[:, :-1].flatten(0, 1).double(), path.qd[:, :-1].flatten(0, 1).double())
    hybrid = declared_hybrid(robot)
    after = frames(hybrid, before, torque.flatten(0, 1)[:, None].double(), environment).qd[:, 1]
    wanted = path.qd[:, 1:].flatten(0, 1).double()
    far = Environment(ground=Ground(robot.grounds["none"]))
    free = frames(hybrid, before, torque.flatten(0, 1)[:, None].double(), far).qd[:, 1]
    touched = (free - wanted).norm(dim=1) > 1e-2
    assert touched.sum() > 20
    error = (after - wanted).norm(dim=1) / wanted.norm(dim=1).clamp_min(0.1)
    assert (error < 1e-3).double().mean() > 0.99
    assert error[touched].median() < 1e-4


def test_quaternions_of_a_state_need_no_unit_length():
    robot = robots.load("cube")
    q, qd = (values[:3].double() for values in sample_states(robot, 3, np.random.default_rng(1), None))
    q[:, 3:7] /= q[:, 3:7].norm(dim=1, keepdim=True)
    rounded, hybrid, still = q.clone(), declared_hybrid(robot).double(), torch.zeros(3, 1, 0, dtype=torch.float64)
    rounded[:, 3:7] *= torch.tensor([[1.01], [0.97], [1.0001]])
    after, wanted = (frames(hybrid, State(x, qd), still, None) for x in (rounded, q))
    torch.testing.assert_close(after.q[:, 1], wanted.q[:, 1], atol=1e-12, rtol=0)
    torch.testing.assert_close(after.qd[:, 1], wanted.qd[:, 1], atol=1e-9, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "within"), [("pendulum", 0.98), ("cube", 0.85)])
def test_it_touches_rough_ground_as_the_simulator_does(name, within):
    """Capsules and a box, whose contacts the simulator takes by roundings now and then."""
    robot, rng, worlds, count = robots.load(name), np.random.default_rng(1), 32, 25
    hills = Terrain(style="rough", seed=1, size=(8.0, 8.0), cell=0.1, amplitude=0.1, feature=0.6)
    environment = Environment(ground=Ground(Scene(shapes=(hills,))))
    start = State(*sample_states(robot, worlds, rng, environment.ground))
    torque = 0.3 * sample_torques(robot, worlds, count, rng)
    path = frames(AnalyticDynamics(robot), start, torque, environment)
    before = State(path.q[:, :-1].flatten(0, 1).double(), path.qd[:, :-1].flatten(0, 1).double())
    drive, hybrid = torque.flatten(0, 1)[:, None].double(), declared_hybrid(robot)
    after = frames(hybrid, before, drive, environment).qd[:, 1]
    down = torch.tensor([[0.0, 0.0, -20.0, 0.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
    free = frames(hybrid, before, drive, Environment(ground=environment.ground.at_pose(down))).qd[:, 1]
    wanted = path.qd[:, 1:].flatten(0, 1).double()
    touched = (free - wanted).norm(dim=1) > 1e-2
    assert touched.sum() > 30
    error = (after - wanted).norm(dim=1) / wanted.norm(dim=1).clamp_min(0.1)
    assert (error < 1e-3).double().mean() > within
    assert error[touched].median() < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("rough", [False, True])
def test_shapes_of_different_friction_slide_as_in_the_simulator(rough, tmp_path):
    """Of a ground of planes, and of a heightfield, whose contacts then are those of points."""
    robot = write_sled(tmp_path)
    hybrid = declared_hybrid(robot)
    assert hybrid.mechanism.constraints.friction == 0.4
    assert hybrid.mechanism.constraints.frictions == {"left": 0.05, "right": 0.9}
    hills = Terrain(style="rough", seed=1, size=(8.0, 8.0), cell=0.5, amplitude=0.02, feature=2.0)
    environment = Environment(ground=Ground(Scene(shapes=(hills,)) if rough else robot.grounds["floor"]))
    rng = torch.Generator().manual_seed(0)
    q = torch.cat([torch.zeros(16, 2), torch.full((16, 1), 0.06), torch.zeros(16, 3), torch.ones(16, 1)], 1)
    qd = torch.randn(16, 6, generator=rng) * torch.tensor([2.0, 2.0, 0.1, 0.1, 0.1, 3.0])
    path = frames(AnalyticDynamics(robot), State(q, qd), torch.zeros(16, 20, 0), environment)
    before = State(path.q[:, :-1].flatten(0, 1).double(), path.qd[:, :-1].flatten(0, 1).double())
    wanted, nothing = path.qd[:, 1:].flatten(0, 1).double(), torch.zeros(320, 1, 0).double()

    def errors(model):
        after = frames(model, before, nothing, environment).qd[:, 1]
        return (after - wanted).norm(dim=1) / (wanted - before.qd).norm(dim=1).clamp_min(0.1)

    alike = msgspec.structs.replace(hybrid.mechanism.constraints, frictions={})
    mechanism = msgspec.structs.replace(hybrid.mechanism, constraints=alike)
    own, one = errors(hybrid), errors(HybridDynamics(hybrid.spec, mechanism, hybrid.config, scene=hybrid.scene))
    # Four balls on a plane share their load in more than one way; with equal frictions the two engines differ as much.
    assert own.median() < 5e-3
    assert (own < 5e-2).double().mean() > (0.8 if rough else 0.95)
    assert one.median() > 0.1


def test_shapes_that_yield_in_ways_of_their_own_are_named_and_counted(tmp_path, recwarn):
    robot = write_sled(tmp_path, front='solref=".1 1"')
    found = declared_hybrid(robot).mechanism.constraints
    said = [str(one.message) for one in recwarn if "of their own" in str(one.message)]
    assert len(said) == 1
    assert said[0].startswith("sled: 1 of 4 shapes yield in contacts in a way of their own (front)")
    assert found.contact.solref[0] < 0.1


def test_steps_on_rough_ground_are_linearised_through_their_substeps():
    robot = robots.load("pendulum")
    hills = Terrain(style="rough", seed=1, size=(8.0, 8.0), cell=0.1, amplitude=0.1, feature=0.6)
    environment = Environment(ground=Ground(Scene(shapes=(hills,))))
    state = State(*sample_states(robot, 16, np.random.default_rng(3), environment.ground))
    q, qd, torque = state.q.double(), state.qd.double(), torch.full((16, 2), 0.1, dtype=torch.float64)
    hybrid = declared_hybrid(robot)
    after, rows = hybrid.differentiated_frame(State(q, qd), torque, environment)
    seeds = torch.randn(16, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    by_state, by_control = rows(seeds)
    given = [x.requires_grad_() for x in (q, qd, torque)]
    path = hybrid.rollout(State(q, qd), torque[:, None], environment)
    whole = torch.cat([path.q[:, 1], path.qd[:, 1]], 1)
    torch.testing.assert_close(torch.cat([after.q, after.qd], 1), whole.detach(), rtol=1e-9, atol=1e-9)
    for row in range(3):
        wanted = torch.autograd.grad((whole * seeds[:, row]).sum(), given, retain_graph=True)
        torch.testing.assert_close(by_state[:, row], torch.cat(wanted[:2], 1), rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(by_control[:, row], wanted[2], rtol=1e-7, atol=1e-7)


def test_the_contact_model_follows_the_simulator():
    assert robots.load("ant").simulated_contact == "soft"
    assert robots.load("franka").simulated_contact is None
    assert declared_hybrid("cartpole").config.contact is None


def test_it_is_a_run_like_any_other(tmp_path, capsys):
    assert run(["hybrid", "pendulum", "--out", str(tmp_path / "run")]) == 0
    assert "contacts: soft; steps in a frame: 10" in capsys.readouterr().out
    found, own = load(tmp_path / "run"), declared_hybrid("pendulum")
    state, torque = State(torch.zeros(2, 2).double(), torch.ones(2, 2).double()), torch.zeros(2, 3, 2).double()
    torch.testing.assert_close(frames(found, state, torque, None).q, frames(own, state, torque, None).q)
    assert run(["hybrid", "pendulum", "--out", str(tmp_path / "run")]) == 2
    assert "holds a model already; valid: another directory" in capsys.readouterr().err


def test_quantities_may_be_free_or_have_other_values():
    model = declared_hybrid("pendulum", parameters=["shoulder.mass=2.5:1:4", "elbow.damping"])
    names = {spec.name: (spec.nominal, spec.lower, spec.upper) for spec in model.physical.specs}
    assert names["shoulder.mass"] == (2.5, 1.0, 4.0)
    assert set(names) == {"shoulder.mass", "elbow.damping"}
    state, torque = State(torch.ones(1, 2).double(), torch.zeros(1, 2).double()), torch.zeros(1, 5, 2).double()
    own = declared_hybrid("pendulum")
    assert not torch.allclose(model.rollout(state, torque).q, own.rollout(state, torque).q, atol=1e-3)


def test_what_is_not_there_is_refused():
    with pytest.raises(InputError, match="contact model"):
        declared_hybrid("pendulum", contact="sticky")
    with pytest.raises(InputError, match="substeps"):
        declared_hybrid("pendulum", substeps=0)


@pytest.mark.parametrize("size", [100, 4096])
def test_a_disk_that_fills_leaves_no_part_of_a_model(size, tmp_path, capsys):
    declared_hybrid("cartpole")  # compiles and keeps what it needs
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        code = run(["hybrid", "cartpole", "--out", str(tmp_path / "run")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    said = capsys.readouterr().err
    assert code == 2, said
    assert sum(line.startswith("neurodyn: ") for line in said.splitlines()) == 1
    assert f"{tmp_path / 'run' / 'model'}/" in said
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
