# SPDX-License-Identifier: Apache-2.0
"""Where the roll-outs of a round start."""

import numpy as np
import pytest

from neurodyn.data.header import Split, Status, StoreHeader, episode_table
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import present_state
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.nets.ensemble import EnsembleConfig
from neurodyn.policy.online_learning.rounds import ModelOfRound
from neurodyn.tasks import load

TASK = load("cartpole-swingup")
CONTEXT = 8


def test_models_with_a_past_start_a_share_of_their_rollouts_where_episodes_begin():
    spec = TASK.declaration().spec
    rows = np.zeros((4 * 41, 5), np.float32)
    rows[:, 0] = np.tile(np.arange(41), 4) / 41  # the time
    split = [Split.TRAIN, Split.TRAIN, Split.VALIDATION, Split.TEST]
    table = episode_table([40] * 4, status=Status.COMPLETE, split=split)
    log = Store(StoreHeader(spec=spec, source="log"), rows, table)
    model = WorldModel(spec.with_context(CONTEXT), EnsembleConfig(members=2, width=8, depth=1, head=8))
    where = ModelOfRound("model", model, log)
    assert not where.is_drawn_by(TASK)
    time = present_state(where.mixed_starts(TASK, 0, 0.25).draw(2000)).q[:, 0] * 41
    first = float((time.round() == time.min().round()).float().mean())
    assert time.max() > 30
    # A window has 33 places in an episode.
    assert first == pytest.approx(0.25 + 0.75 / 33, abs=0.04)
