# SPDX-License-Identifier: Apache-2.0
"""Roll-outs along windows: the same whatever their batches, from as much of the past as dynamics read."""

import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, select_windows
from neurodyn.dynamics.batch import State, Trajectory, Window
from neurodyn.dynamics.rollouts import context_of, recorded_environments, require_finite_path, roll_along, truth_of
from tests import plant, worlds


@pytest.fixture
def windows(plant_store: Store) -> Windows:
    return select_windows(plant_store, Split.TEST, 12, stride=5, dtype=torch.float32).after(4)


def test_the_known_plant_moves_as_its_log(plant_store: Store, windows: Windows):
    model = plant.PlantDynamics()
    path = roll_along(model, windows, recorded_environments(plant_store, model))
    torch.testing.assert_close(path.q, truth_of(windows).q, rtol=0, atol=1e-5)
    assert torch.equal(path.q[:, 0], windows.q[:, 0])


def test_windows_of_measured_states_are_followed_with_their_channels():
    store, model = worlds.make_store(), worlds.exact_model(context=4)
    windows = select_windows(store, Split.TEST, 12, stride=5, dtype=torch.float32).after(6)
    where = recorded_environments(store, model)
    whole = roll_along(model, windows, where)
    assert whole.channels is not None
    torch.testing.assert_close(whole.q, windows.q, rtol=0, atol=1e-4)


def test_dynamics_of_measured_states_get_no_ground_and_no_gravity():
    store = worlds.make_store()
    environment = recorded_environments(store, worlds.exact_model()).of(next(iter(
        select_windows(store, Split.TEST, 3, stride=9, dtype=torch.float32).batches(2))))  # fmt: skip
    assert (environment.gravity, environment.ground, environment.parameters) == (None, None, None)


@pytest.mark.parametrize("frames", [None, 0, 1, 4, 9])
def test_a_context_ends_in_the_first_state(windows: Windows, frames: int | None):
    context = context_of(windows, frames)
    past = 4 if frames is None else min(frames, 4)
    if not past:
        assert isinstance(context, State)
        assert torch.equal(context.q, windows.q[:, 0])
        return
    assert isinstance(context, Window)
    assert context.torque.shape[1] == past
    assert torch.equal(context.q[:, -1], windows.q[:, 0])
    assert windows.past is not None
    assert torch.equal(context.q, windows.past.q[:, 4 - past :])


def test_a_context_may_begin_elsewhere_in_some_of_the_windows(windows: Windows):
    rows = torch.tensor([2, 0])
    state = State(windows.q[rows, 0] + 1.0, windows.qd[rows, 0])
    context = context_of(windows, state=state, rows=rows)
    assert isinstance(context, Window)
    assert torch.equal(context.q[:, -1], state.q)
    assert windows.past is not None
    assert torch.equal(context.q[:, :-1], windows.past.q[rows, :-1])


def test_a_path_that_is_not_finite_is_named(windows: Windows):
    path = Trajectory(windows.q.clone(), windows.qd.clone())
    require_finite_path(path, plant.robot().spec, windows)
    path.qd[1, 3, 0] = torch.inf
    episode, start = int(windows.episode[1]), int(windows.start[1])
    with pytest.raises(
        InputError, match=rf"world 1 \(episode {episode}, from state {start} on\).*qd\.slider at step 3"
    ):
        require_finite_path(path, plant.robot().spec, windows)
