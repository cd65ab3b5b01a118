# SPDX-License-Identifier: Apache-2.0
"""What a model remembers of the worlds it plans in."""

import torch

from neurodyn.control.planning.planner import History
from neurodyn.dynamics.batch import State, Window


def at(value):
    return State(torch.full((2, 1), float(value)), torch.full((2, 1), -float(value)))


def known(history):
    """Return the one context of all worlds."""
    ((rows, context, _),) = history.groups()
    assert rows.tolist() == [0, 1]
    return context


def test_models_without_a_memory_see_the_state():
    history = History(1)
    history.add(at(0), None)
    assert [first for _, _, first in history.groups()] == [True]
    history.add(at(1), torch.ones(2, 1))
    assert isinstance(known(history), State)
    assert [first for _, _, first in history.groups()] == [False]


def test_the_last_frames_and_what_acted_in_them():
    history = History(3)
    history.add(at(0), None)
    assert isinstance(known(history), State)
    for frame in range(1, 6):
        history.add(at(frame), torch.full((2, 1), 10.0 * frame))
    window = known(history)
    assert isinstance(window, Window)
    assert window.q[0, :, 0].tolist() == [2, 3, 4, 5]
    assert window.qd[1, :, 0].tolist() == [-2, -3, -4, -5]
    assert window.torque[0, :, 0].tolist() == [30, 40, 50]
    history.add(at(9), None)
    assert isinstance(known(history), State)


def test_a_world_that_starts_over_forgets_its_past_alone():
    history = History(2)
    history.add(at(0), None)
    for frame in range(1, 4):
        history.add(at(frame), torch.full((2, 1), 10.0 * frame))
    history.restart(torch.tensor([False, True]))
    history.add(at(4), torch.full((2, 1), 40.0))
    assert history.first.tolist() == [False, True]
    (fresh, state, first), (old, window, goes_on) = history.groups()
    assert (fresh.tolist(), first, old.tolist(), goes_on) == ([1], True, [0], False)
    assert isinstance(state, State)
    assert state.q.tolist() == [[4.0]]
    assert window.torque[0, :, 0].tolist() == [30, 40]
    history.add(at(5), torch.full((2, 1), 50.0))
    (fresh, young, first), (old, window, _) = history.groups()
    assert (fresh.tolist(), first) == ([1], False)
    assert young.q[0, :, 0].tolist() == [4, 5]
    assert young.torque[0, :, 0].tolist() == [50]
    assert window.q[0, :, 0].tolist() == [3, 4, 5]
    history.add(at(6), torch.full((2, 1), 60.0))
    assert known(history).q[:, :, 0].tolist() == [[4, 5, 6], [4, 5, 6]]
