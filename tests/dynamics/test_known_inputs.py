# SPDX-License-Identifier: Apache-2.0
"""Models know what they have seen: inputs far from it, and histories against it, are refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from neurodyn.data.header import Split
from neurodyn.data.mixture import Mixture
from neurodyn.data.store import Store
from neurodyn.data.windows import select_windows
from neurodyn.dynamics.batch import Control, State, Window
from neurodyn.dynamics.known_inputs import KnownInputs, quantiles
from neurodyn.dynamics.rollouts import context_of
from neurodyn.dynamics.world_model.model import WORLD_MODEL, WorldModel
from neurodyn.evaluate.refusals import refusals, refused_starts
from neurodyn.evaluate.rollouts import log_starts
from tests import worlds

CONTEXT = 6


def test_what_is_far_from_all_frames_is_outside():
    generator = torch.Generator().manual_seed(0)
    frames, held_out = torch.randn(2, 2000, 3, generator=generator)
    known = KnownInputs()
    assert not known.fitted
    known.fit(frames, held_out)
    assert known.outside(held_out).double().mean() == pytest.approx(0.01, abs=0.003)
    assert known.outside(held_out, 0.9).double().mean() == pytest.approx(0.1, abs=0.01)
    assert known.outside(held_out[:4].view(2, 2, 3) + 9.0).all()
    assert known.outside(torch.full((1, 3), torch.nan)).all()
    # A ring: its middle is within the range of every coordinate, but nothing was there.
    ring = 3.0 * torch.nn.functional.normalize(frames[:, :2])
    known = KnownInputs()
    known.fit(ring[::2], ring[1::2])
    assert known.outside(torch.zeros(1, 2)).all()


def test_later_frames_are_known_beside_earlier_ones():
    known = KnownInputs()
    known.fit(torch.randn(4096, 2), torch.randn(500, 2))
    known.fit(torch.randn(1000, 2) + 20.0, torch.randn(500, 2) + 20.0)
    assert len(known.frames) == 2048 + 1000
    assert not known.outside(torch.tensor([[0.0, 0.0], [20.0, 20.0]])).any()
    assert known.outside(torch.full((1, 2), 10.0)).all()


def history(store: Store, split: Split) -> Window:
    past = context_of(select_windows(store, split, CONTEXT + 1).after(CONTEXT).to(torch.float32))
    assert isinstance(past, Window)
    return past


@pytest.fixture(scope="module")
def model() -> WorldModel:
    """The system itself, which expects an error of .01 of each frame."""
    model, store = worlds.exact_model(CONTEXT), worlds.make_store(noise=0.01)
    with torch.no_grad():
        model.net.skip.bias.zero_()  # type: ignore[union-attr]
        model.net.log_std.zero()
        model.net.log_std.bias.fill_(np.log(0.01))
    model.remember_inputs(Mixture.of(store), worlds.make_model())
    model.known_inputs.contradictions = quantiles(model.contradiction(history(store, Split.VALIDATION)))
    return model


def test_a_history_of_another_robot_is_refused(model: WorldModel):
    same, other = worlds.make_store(seed=5, noise=0.01), worlds.make_store(seed=5, noise=0.01, drag=8.0)
    mine, theirs = (model.contradicted(history(store, Split.TEST)) for store in (same, other))
    assert mine is not None
    assert theirs is not None
    assert mine.double().mean() < 0.06
    assert theirs.double().mean() > 0.5
    past = history(same, Split.TEST)
    assert model.contradicted(past.present) is None  # a state is no history
    longer = context_of(select_windows(other, Split.TEST, CONTEXT + 4).after(CONTEXT + 3).to(torch.float32))
    assert model.contradicted(longer).double().mean() > 0.5


def test_refused_starts_have_reasons(model: WorldModel):
    store = worlds.make_store(seed=5, noise=0.01)
    starts, _ = log_starts(store, Split.TEST, CONTEXT, 3)
    known = refused_starts(model, store, starts)
    assert known is not None
    found = refusals(known, torch.ones(starts.count), 0.06)
    assert found.refused < 0.2  # four held-out episodes set the distances
    far = replace(starts, control=starts.control + 50.0)
    other = refused_starts(model, store, far)
    assert other is not None
    assert other.outside.all()
    assert torch.equal(other.contradicted, known.contradicted)
    both = refusals(other, torch.ones(starts.count), 0.06)
    assert (both.refused, both.error, both.error_of_others) == (1.0, 1.0, None)
    assert refused_starts(worlds.make_model(), store, starts) is None


def test_files_hold_them_and_older_files_do_not(model: WorldModel, tmp_path):
    WORLD_MODEL.save(tmp_path, model)
    again = WORLD_MODEL.load(tmp_path)
    for name, value in model.known_inputs.state_dict().items():
        assert torch.equal(value, again.known_inputs.state_dict()[name]), name
    state, far = State(torch.zeros(2, 2), torch.zeros(2, 2), torch.zeros(2, 1)), torch.tensor([[0.0, 0.0], [99.0, 0.0]])
    assert again.outside(state, Control(torque=far)).tolist() == [False, True]
    older = {name: value for name, value in model.state_dict().items() if not name.startswith("_known")}
    empty = worlds.make_model(context=CONTEXT)
    empty.load_state_dict(older)
    assert empty.outside(state, Control(torque=far)) is None
    assert empty.refused(state, Control(torque=far)) is None
