# SPDX-License-Identifier: Apache-2.0
"""A solver names the world that breaks down, lets it rest and leaves the others alone."""

import math

import pytest
import torch

from neurodyn.data.store import Store
from neurodyn.dynamics.guard import DivergedError
from neurodyn.solvers import SolverNeural
from tests.solvers.loop import DT, cartpoles, coordinates, forces, mask, simulate, start, table

WORLDS, FRAMES, BAD = 4, 12, 2


def stepped(solver, model, torques, state):
    """Step, and return the coordinates after each frame."""
    control, out, seen = model.control(), model.state(), []
    for torque in torques.unbind(1):
        table(control.joint_f, model)[:, :1] = torque
        solver.step(state, out, control, None, DT)
        state, out = out, state
        seen.append(coordinates(model, state).clone())
    return torch.stack(seen, 1), state


def poisoned(model, value):
    """A start that the model cannot have learned, in one world."""
    state = start(model)
    table(state.joint_qd, model)[BAD, 1] = value
    return state


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e38])
def test_a_solver_stops_and_names_world_frame_and_quantity(run, tmp_path, value):
    model = cartpoles(WORLDS)
    solver = SolverNeural(model, run, nan=tmp_path / "nan")
    with pytest.raises(DivergedError, match=rf"SolverNeural: world {BAD}, frame 1: (q|qd)\.\w+ is ") as stop:
        stepped(solver, model, forces(model, 3), poisoned(model, value))
    assert solver.guard.faults == [stop.value.fault]
    assert stop.value.fault.worlds == 1


def test_held_worlds_rest_the_others_continue_and_a_reset_guards_again(run):
    model = cartpoles(WORLDS)
    torques = forces(model, FRAMES)
    sound, _ = simulate(SolverNeural(model, run), model, start(model), torques)
    solver = SolverNeural(model, run, on_fault="hold")
    seen, state = stepped(solver, model, torques, poisoned(model, math.inf))
    others = [world for world in range(WORLDS) if world != BAD]
    assert torch.equal(seen[others], sound[others, -FRAMES:])
    assert bool((seen[BAD, 1:] == seen[BAD, 1]).all())
    assert [fault.world for fault in solver.guard.faults] == [BAD]  # once, however long it rests
    solver.reset(state, mask(model, BAD))
    again, _ = stepped(solver, model, torques, state)
    assert bool(again[BAD].isfinite().all())
    assert not torch.equal(again[BAD, -1], again[BAD, 0])


def test_the_states_before_a_fault_are_those_that_were_stepped(run, tmp_path):
    model = cartpoles(WORLDS)
    torques = forces(model, FRAMES)
    solver = SolverNeural(model, run, nan=tmp_path / "nan")
    seen, state = stepped(solver, model, torques, start(model))
    table(state.joint_q, model)[BAD, 0] = 7.9  # as far out as is plausible, and on its way beyond
    table(state.joint_qd, model)[BAD, 0] = 1e3
    with pytest.raises(DivergedError) as stop:
        stepped(solver, model, torques[:, :2], state)
    fault = stop.value.fault
    assert (fault.world, fault.frame, fault.quantity) == (BAD, FRAMES + 1, "q.slider")
    kept = Store.open(fault.states)
    q = torch.from_numpy(kept.columns("q", kept.frames[:]))
    assert torch.equal(q[1:-1], seen[BAD, :-1, :2])
    assert float(q[-1, 0]) == pytest.approx(7.9)


def test_off_looks_at_nothing(run):
    model = cartpoles(WORLDS)
    seen, _ = stepped(SolverNeural(model, run, on_fault="off"), model, forces(model, 2), poisoned(model, math.nan))
    assert bool(seen[BAD].isnan().any())
