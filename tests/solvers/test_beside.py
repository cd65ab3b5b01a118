# SPDX-License-Identifier: Apache-2.0
"""A learned robot among other bodies: a table, a ball and a second robot, which a solver of Newton's steps."""

import newton
import numpy as np
import pytest
import torch
import warp as wp

from neurodyn import robots
from neurodyn.core.errors import InputError
from neurodyn.dynamics import declared_hybrid
from neurodyn.sim.newton.build import build_world
from neurodyn.solvers import SolverBeside, SolverHybrid
from tests.solvers.loop import CARTPOLE, DT, mask, table

WORLDS, FRAMES = 3, 8
PENDULUM = robots.load("pendulum")


@pytest.fixture(scope="module")
def model():
    return declared_hybrid("cartpole")


def alone():
    scene = newton.ModelBuilder()
    scene.replicate(build_world(CARTPOLE), WORLDS)
    return scene.finalize(device="cpu")


def among():
    """Return worlds with a table, the cartpole, a pendulum and a box in the air."""
    world = newton.ModelBuilder()
    world.add_builder(build_world(CARTPOLE))
    world.add_builder(build_world(PENDULUM))
    box = world.add_body(xform=((0.0, 3.0, 2.0), (0.0, 0.0, 0.0, 1.0)), label="box")
    world.add_shape_box(box, hx=0.1, hy=0.1, hz=0.1)
    world.add_shape_box(-1, xform=((0.0, 3.0, 0.5), (0.0, 0.0, 0.0, 1.0)), hx=0.5, hy=0.5, hz=0.5)
    scene = newton.ModelBuilder()
    scene.replicate(world, WORLDS)
    return scene.finalize(device="cpu")


class Halves:
    """Featherstone's solver alone, in two steps a frame."""

    def __init__(self, whole):
        self.solver, self.middle = newton.solvers.SolverFeatherstone(whole), whole.state()

    def step(self, before, after, control, contacts, dt):
        self.solver.step(before, self.middle, control, contacts, dt / 2)
        self.solver.step(self.middle, after, control, contacts, dt / 2)


def run(solver, newton_model, columns):
    """Step from random starts under forces on the first joint; return coordinates, shape [frames, worlds, n]."""
    state, after, control = newton_model.state(), newton_model.state(), newton_model.control()
    rng = np.random.default_rng(0)
    start = torch.from_numpy(rng.uniform(-0.5, 0.5, (WORLDS, 4)).astype(np.float32))
    table(state.joint_q, newton_model)[:, :2], table(state.joint_qd, newton_model)[:, :2] = start[:, :2], start[:, 2:]
    table(state.joint_q, newton_model)[:, 2:4] = 0.4
    newton.eval_fk(newton_model, state.joint_q, state.joint_qd, state)
    seen = []
    for frame in range(FRAMES):
        table(control.joint_f, newton_model)[:, 0] = 100.0 * np.cos(frame)
        solver.step(state, after, control, None, DT)
        state, after = after, state
        seen.append(torch.cat([table(state.joint_q, newton_model), table(state.joint_qd, newton_model)], 1)[:, columns])
    return torch.stack(seen), state


def test_both_robots_move_as_each_does_by_its_own_solver(model):
    whole, single = among(), alone()
    beside = SolverBeside(whole, SolverHybrid(single, model), newton.solvers.SolverFeatherstone(whole), substeps=2)
    nq, nv = whole.joint_coord_count // WORLDS, whole.joint_dof_count // WORLDS
    robot = [0, 1, nq, nq + 1]
    assert nq == 2 + 2 + 7
    seen, state = run(beside, whole, robot)
    other = alone()
    expected, _ = run(SolverHybrid(other, model), other, [0, 1, 2, 3])
    torch.testing.assert_close(seen, expected)
    again = SolverBeside(whole, SolverHybrid(alone(), model), newton.solvers.SolverFeatherstone(whole), substeps=2)
    rest = [i for i in range(nq + nv) if i not in robot]
    moved, _ = run(again, whole, rest)
    everything = among()
    swings, _ = run(Halves(everything), everything, rest)
    torch.testing.assert_close(moved, swings, atol=1e-5, rtol=1e-5)
    assert (moved[-1] - moved[0]).abs().max() > 1e-3
    fresh = whole.state()
    newton.eval_fk(whole, state.joint_q, state.joint_qd, fresh)
    np.testing.assert_allclose(state.body_q.numpy(), fresh.body_q.numpy(), atol=1e-5)


def test_a_robot_that_breaks_down_is_reported_and_the_others_continue(model):
    whole = among()
    learned = SolverHybrid(alone(), model, on_fault="hold")
    solver = SolverBeside(whole, learned, newton.solvers.SolverFeatherstone(whole))
    state, after = whole.state(), whole.state()
    table(state.joint_qd, whole)[1, 0] = 1e9
    solver.step(state, after, None, None, DT)
    assert [(fault.world, fault.worlds) for fault in learned.guard.faults] == [(1, 1)]
    assert (table(after.joint_qd, whole)[1, :2] == 0).all()
    assert table(after.joint_qd, whole)[[0, 2]].isfinite().all()


def test_what_is_not_the_robot_is_refused(model):
    whole = among()
    others = newton.solvers.SolverFeatherstone(whole)
    with pytest.raises(InputError, match=r"articulation 1 has the joints .*; valid: those of the robot, "):
        SolverBeside(whole, SolverHybrid(alone(), model), others, articulation=1)
    with pytest.raises(InputError, match="articulation 3, substeps 1; valid: an articulation of 0 to 2"):
        SolverBeside(whole, SolverHybrid(alone(), model), others, articulation=3)


def test_a_captured_step_is_a_step(model):
    """Replays read state, control, gains and wrenches as they are then."""
    whole = among()
    wp.to_torch(whole.joint_target_ke).view(WORLDS, -1)[:, 0] = 200.0
    paths = []
    for captured in (False, True):
        solver = SolverBeside(whole, SolverHybrid(alone(), model), newton.solvers.SolverFeatherstone(whole), substeps=2)
        state, after, control = whole.state(), whole.state(), whole.control()

        def frame(solver=solver, state=state, after=after, control=control):
            for _ in range(2):
                solver.step(state, after, control, None, DT)
                state, after = after, state

        if captured:
            with wp.ScopedCapture(device="cpu") as capture:
                frame()
        table(state.joint_q, whole)[:, :3] = 0.3
        path = []
        for step in range(4):
            table(control.joint_f, whole)[:, 0] = 50.0 * np.cos(step)
            table(control.joint_target_q, whole)[:, 0] = 0.1 * step
            wp.to_torch(state.body_f).view(WORLDS, -1, 6)[:, -1, 2] = 5.0 * step  # on the box
            if captured:
                wp.capture_launch(capture.graph)
            else:
                frame()
            path.append(torch.cat([table(state.joint_q, whole), table(state.joint_qd, whole)], 1).clone())
        paths.append(torch.stack(path))
    torch.testing.assert_close(paths[1], paths[0], atol=1e-6, rtol=1e-6)
    assert (paths[0][1:] != paths[0][:-1]).any(0).any(0).sum() >= 6


def test_drives_and_forces_are_those_of_the_whole_model(model):
    whole, single = among(), alone()
    solver = SolverBeside(whole, SolverHybrid(single, model), newton.solvers.SolverFeatherstone(whole))
    wp.to_torch(whole.joint_target_ke).view(WORLDS, -1)[:, 0] = 200.0
    control = whole.control()
    table(control.joint_target_q, whole)[:, 0] = 0.5
    state, after = whole.state(), whole.state()
    solver.step(state, after, control, None, DT)
    assert (table(after.joint_qd, whole)[:, 0] > 0.01).all()
    robot, box = 0, whole.body_count // WORLDS - 1
    forces = wp.to_torch(state.body_f).view(WORLDS, -1, 6)
    forces[1, box, 0] = 30.0
    solver.step(state, after, control, None, DT)
    pushed = wp.to_torch(after.body_qd).view(WORLDS, -1, 6)[:, box, 0]
    assert (pushed[[0, 2]] == 0).all()
    assert pushed[1] > 0.01
    forces[1, robot, 0] = 30.0
    with pytest.raises(InputError, match="body_f is not zero"):
        solver.step(state, after, control, None, DT)


def test_a_reset_sets_the_chosen_worlds_and_their_history(model):
    whole = among()
    learned = SolverHybrid(alone(), model, on_fault="hold")
    solver = SolverBeside(whole, learned, newton.solvers.SolverFeatherstone(whole))
    state, after = whole.state(), whole.state()
    table(state.joint_qd, whole)[:, 0] = 1e9
    solver.step(state, after, None, None, DT)
    before = table(after.joint_q, whole).clone()
    table(after.joint_q, whole)[:, 0] = 3.0
    solver.reset(after, mask(whole, 1))
    assert table(after.joint_q, whole)[:, 0].tolist() == [3.0, float(before[1, 0]), 3.0]
    solver.step(after, state, None, None, DT)
    assert table(state.joint_q, whole)[1, 1] != before[1, 1] or table(state.joint_qd, whole)[1].any()
