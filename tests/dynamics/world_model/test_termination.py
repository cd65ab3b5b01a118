# SPDX-License-Identifier: Apache-2.0
"""Failures that a world model predicts: as many as there are, after a shift, and kept with the model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.world_model.model import WORLD_MODEL
from neurodyn.dynamics.world_model.termination import Alarms, alarms_along, fitted_shift
from tests import worlds


def shifted(chance: torch.Tensor, shift: float) -> torch.Tensor:
    return torch.sigmoid(torch.logit(chance, 1e-6) + shift)


@pytest.mark.parametrize("rare", [0.001, 0.3])
def test_with_the_shift_as_many_forecasts_fail_as_windows(rare: float):
    generator = torch.Generator().manual_seed(0)
    failed = torch.zeros(400, 10, dtype=torch.bool)
    failed[:37, 6] = True
    chance = rare * torch.rand(400, 10, generator=generator) + 0.5 * rare * failed
    shift = fitted_shift(Alarms(chance, failed))
    found = Alarms(shifted(chance, shift), failed)
    assert int(found.raised.sum()) == 37
    assert (found.raised & found.right).sum() > 15


def test_nothing_is_shifted_where_nothing_failed():
    assert fitted_shift(Alarms(torch.rand(5, 4), torch.zeros(5, 4, dtype=torch.bool))) == 0.0


def test_forecasts_are_those_of_an_environment_and_end_with_the_episode():
    model, store = worlds.make_model(), worlds.make_store(episodes=30)
    found = alarms_along(model, (store,), None, 6)
    assert found.chance.shape == (30 * 54, 100)
    # The first window starts at the first state with a past, the last one a frame before its episode's end.
    assert int((found.chance[0] > 0).sum()) == 54
    assert int((found.chance[53] > 0).sum()) == 1
    assert found.right.reshape(30, 54).all(1).tolist() == (np.arange(30) % 3 == 0).tolist()
    rows = torch.from_numpy(store.frames[:61].copy())
    q, qd, control, channels = rows[:, :2], rows[:, 2:4], rows[:, 4:6], rows[:, 6:7]
    from neurodyn.dynamics.batch import Window

    past = Window(q[None, :7], qd[None, :7], control[None, :6], channels[None, :7])
    carry, state = model.begin(past), past.present
    for frame in range(6, 60):
        carry, step = model.step(carry, state, Control(torque=control[None, frame]))
        state = step.state
        assert step.termination is not None
        torch.testing.assert_close(step.termination[0], found.chance[0, frame - 6])


def test_forecasts_that_are_not_finite_are_counted_and_left_out(monkeypatch: pytest.MonkeyPatch):
    model, store = worlds.make_model(), worlds.make_store(episodes=30)
    whole, step, frames = alarms_along(model, (store,), None, 6), model.step, []

    def broken(*arguments: Any) -> Any:
        carry, found = step(*arguments)
        frames.append(1)
        if len(frames) == 2:  # the last window of each episode has ended
            found.state.q[[0, 53]] = torch.nan
        return carry, found

    monkeypatch.setattr(model, "step", broken)
    found = alarms_along(model, (store,), None, 6)
    assert (whole.not_finite, found.not_finite) == (0, 1)
    torch.testing.assert_close(found.chance, whole.chance[1:])
    assert found.failed.equal(whole.failed[1:])


def test_the_shift_is_part_of_the_model(tmp_path: Path):
    model = worlds.make_model()
    rows = torch.from_numpy(worlds.make_store().frames[:8].copy())
    state, control = State(rows[:, :2], rows[:, 2:4], rows[:, 6:7]), Control(torque=rows[:, 4:6])
    before = model.step(model.begin(state), state, control)[1].termination
    model.termination_shift = 1.5
    WORLD_MODEL.save(tmp_path / "run", model)
    found = WORLD_MODEL.load(tmp_path / "run")
    assert found.termination_shift == 1.5
    after = found.step(found.begin(state), state, control)[1].termination
    assert before is not None
    torch.testing.assert_close(after, shifted(before, 1.5))
