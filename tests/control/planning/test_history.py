# SPDX-License-Identifier: Apache-2.0
"""What a model remembers of the worlds it plans in."""

import torch

from neurodyn.control.planning.history import History
from neurodyn.dynamics.interface import State, Window


def at(value):
    return State(torch.full((2, 1), float(value)), torch.full((2, 1), -float(value)))


def test_models_without_a_memory_see_the_state():
    history = History(1)
    history.add(at(0), None)
    history.add(at(1), torch.ones(2, 1))
    assert isinstance(history.context(), State)


def test_the_last_frames_and_what_acted_in_them():
    history = History(3)
    history.add(at(0), None)
    assert isinstance(history.context(), State)
    for frame in range(1, 6):
        history.add(at(frame), torch.full((2, 1), 10.0 * frame))
    window = history.context()
    assert isinstance(window, Window)
    assert window.q[0, :, 0].tolist() == [2, 3, 4, 5]
    assert window.qd[1, :, 0].tolist() == [-2, -3, -4, -5]
    assert window.torque[0, :, 0].tolist() == [30, 40, 50]
    history.add(at(9), None)
    assert isinstance(history.context(), State)
