# SPDX-License-Identifier: Apache-2.0
"""A world that breaks down is named with frame and quantity, its states are kept, and the others are untouched."""

import math
import warnings
from dataclasses import replace

import pytest
import torch

from neurodyn.core.errors import Notice
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import State, Trajectory, Window
from neurodyn.dynamics.guard import (
    MOST_FAULTS,
    DivergedError,
    Fault,
    FaultHistory,
    fault_of,
    report,
    state_fault,
    watching,
)
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.robots.plausible import PlausibleBounds
from tests import plant

INF = math.inf
BOUNDS = PlausibleBounds(
    ("slider", "hinge"), ("slider", "hinge"), ((-4.0, 4.0), (-INF, INF)), ((-INF, INF), (-9.0, 9.0))
)


def still(worlds: int = 5, frames: int = 20) -> Trajectory:
    return Trajectory(torch.zeros(worlds, frames + 1, 2), torch.zeros(worlds, frames + 1, 2))


@pytest.mark.parametrize("bad", [math.nan, INF, -INF, 1e30])
@pytest.mark.parametrize(("part", "column", "name"), [("q", 0, "q.slider"), ("qd", 1, "qd.hinge")])
def test_the_first_world_frame_and_quantity_are_named(bad, part, column, name):
    path = still()
    getattr(path, part)[3, 7:, column] = bad
    getattr(path, part)[1, 9, column] = bad
    fault = fault_of(BOUNDS, path, "here")
    assert fault is not None
    assert (fault.world, fault.frame, fault.quantity, fault.worlds, fault.of) == (3, 7, name, 2, 5)
    assert fault.value == (pytest.approx(bad) if math.isfinite(bad) else None)
    assert fault.words.startswith(f"here: world 3, frame 7: {name} is ")


def test_what_has_no_bounds_must_be_finite_alone():
    path = still()
    path.q[2, 4, 1] = 1e30
    assert fault_of(BOUNDS, path, "") is None
    path.q[2, 5, 1] = INF
    fault = fault_of(BOUNDS, path, "")
    assert fault is not None
    assert (fault.frame, fault.quantity, fault.lower, fault.upper) == (5, "q.hinge", None, None)


def test_who_begins_outside_has_not_broken_down_unless_it_stops_being_finite():
    path = still()
    path.q[2, :, 0] = 5.0
    assert fault_of(BOUNDS, path, "") is None
    path.q[2, 6, 0] = math.nan
    fault = fault_of(BOUNDS, path, "")
    assert fault is not None
    assert (fault.world, fault.frame, fault.worlds) == (2, 6, 1)
    path = still()
    path.q[1, 0, 0] = math.nan
    assert fault_of(BOUNDS, path, "") is not None


def test_channels_are_looked_at_too():
    path = Trajectory(torch.zeros(2, 4, 2), torch.zeros(2, 4, 2), channels=torch.zeros(2, 4, 3))
    bounds = replace(BOUNDS, channels=((-1.0, 1.0),) * 3)
    assert fault_of(bounds, path, "") is None
    assert path.channels is not None
    path.channels[1, 2, 2] = 5.0
    fault = fault_of(bounds, path, "")
    assert fault is not None
    assert (fault.world, fault.frame, fault.quantity, fault.upper) == (1, 2, "channel 2", 1.0)


@torch.no_grad()
def test_a_rollout_names_its_fault_writes_what_came_before_and_leaves_the_others_alone(tmp_path):
    model = plant.make_model("mlp", torch.float32)
    start, torque = State(torch.zeros(4, 2), torch.zeros(4, 2)), torch.ones(4, 60, 1)
    sound = model.rollout(start, torque)
    torque[2, 45] = math.nan
    with watching(tmp_path / "nan") as watch:
        path = model.rollout(start, torque)
    (fault,) = watch.faults
    assert (fault.world, fault.frame, fault.worlds) == (2, 46, 1)
    kept = Store.open(fault.states)
    assert kept.transitions == 32 - 1 + model.spec.context
    assert torch.equal(torch.from_numpy(kept.columns("q", kept.frames[:])[-1]), sound.q[2, 45])
    assert kept.header.notes["fault"]["quantity"] == fault.quantity
    others = [0, 1, 3]
    assert torch.equal(path.q[others], sound.q[others])


def test_outside_of_a_watch_a_fault_is_a_notice():
    model = plant.make_model("mlp", torch.float32)
    torque = torch.zeros(2, 3, 1)
    torque[1, 1] = INF
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        model.rollout(State(torch.zeros(2, 2), torch.zeros(2, 2)), torque)
    assert any(one.category is Notice and "world 1, frame 2: " in str(one.message) for one in given)


def test_a_fault_of_states_in_another_precision_than_the_commands_is_a_notice_too():
    """States that are estimated from the past of a log are float64, its commands float32."""
    model = declared_hybrid("cartpole")
    start = State(torch.tensor([[0.0, 0.1]]).double(), torch.tensor([[0.0, math.inf]]).double())
    with pytest.warns(Notice, match="world 0, frame 0: qd"):
        model.rollout(start, torch.zeros(1, 3, 1))


def test_few_states_are_written_however_many_faults_there_are(tmp_path):
    window = Window(torch.zeros(1, 3, 2), torch.zeros(1, 3, 2), torch.zeros(1, 2, 1))
    with watching(tmp_path / "nan") as watch:
        for world in range(MOST_FAULTS + 3):
            report(Fault("", world, 3, "q.slider", None, None, None), FaultHistory(plant.robot().spec, window))
    assert len(watch.faults) == MOST_FAULTS + 3
    assert len(list((tmp_path / "nan").iterdir())) == MOST_FAULTS


def test_of_what_came_before_only_finite_states_are_written(tmp_path):
    q = torch.zeros(1, 4, 2)
    q[0, 1, 0] = math.nan
    before = FaultHistory(plant.robot().spec, Window(q, torch.zeros(1, 4, 2), torch.zeros(1, 3, 1)))
    nothing = FaultHistory(plant.robot().spec, Window(q + math.nan, q, torch.zeros(1, 3, 1)))
    with watching(tmp_path / "nan") as watch:
        written = report(Fault("", 0, 4, "q.slider", None, None, None), before)
        assert report(Fault("", 0, 4, "q.slider", None, None, None), nothing).states == ""
    assert Store.open(written.states).transitions == 1
    assert len(watch.faults) == 2


def test_the_range_of_the_training_data_bounds_a_model():
    model = plant.make_model("mlp", torch.float32)
    free = model.guard_bounds()
    assert free.qd == ((-INF, INF), (-INF, INF))
    assert free.q[0] == (-8.0, 8.0)  # limits of 4 m and half their range
    error = DivergedError(
        state_fault(free, State(torch.full((1, 2), 9.0), torch.zeros(1, 2)), "x", frame=1), "valid: y"
    )
    assert "q.slider is 9 (plausible: -8 to 8); valid: y" in str(error)
