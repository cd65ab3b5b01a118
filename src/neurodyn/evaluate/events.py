# SPDX-License-Identifier: Apache-2.0
"""How well a world model predicts contacts, frame by frame of its forecasts, and that episodes fail."""

import torch
from torch import Tensor

from neurodyn.data.store import Store
from neurodyn.dynamics.interface import present_state
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.dynamics.world_model.termination import FRAMES, Alarms, alarms_along
from neurodyn.evaluate.engine import Batch
from neurodyn.evaluate.recorded import Recorded
from neurodyn.evaluate.records import EventScores, Failures


@torch.no_grad()
def contact_scores(model: WorldModel, starts: Recorded) -> dict[str, EventScores]:
    """Return scores of each contact over all frames of forecasts, with a chance above one half taken for yes.

    Args:
        model: The model.
        starts: Windows with labels.
    """
    if not model.spec.nc:
        return {}
    chances, labels, context = [], [], starts.context
    for windows, batch in zip(starts.windows, starts.batches(model.spec.context, environments=False), strict=True):
        assert windows.contacts is not None  # of a log that a model of contacts fits
        labels.append(windows.contacts[:, context + 1 :].flatten(0, 1))
        chances.append(_chances(model, batch).flatten(0, 1))
    said, is_so = torch.cat(chances) > 0.5, torch.cat(labels) > 0.5
    return {name: _scores(said[:, i], is_so[:, i]) for i, name in enumerate(model.spec.contacts)}


def failure_scores(model: WorldModel, store: Store, split: int | None, context: int) -> tuple[EventScores, Failures]:
    """Return how well a model that terminates predicts which episodes fail within `FRAMES` frames.

    Args:
        model: The model.
        store: The log.
        split: Which episodes; None for all.
        context: Frames of history.
    """
    found: Alarms = alarms_along(model, (store,), split, context)
    said, is_so = found.raised, found.right
    failures = Failures(
        frames=FRAMES, starts=len(said), failed=float(is_so.double().mean()), predicted=float(said.double().mean())
    )
    return _scores(said, is_so), failures


def _chances(model: WorldModel, batch: Batch) -> Tensor:
    start, control = model.observation.of_state(present_state(batch.past)), batch.drive.torque
    assert control is not None  # a log has controls
    found = model.follow(model.begin(batch.past).hidden, start[None], control[None])
    assert found.logits is not None  # asked for only of models with contacts
    return found.logits[..., : model.spec.nc].sigmoid().mean(0)


def _scores(said: Tensor, is_so: Tensor) -> EventScores:
    both = float((said & is_so).sum())
    yes, no, claimed = float(is_so.sum()), float((~is_so).sum()), float(said.sum())
    recall = both / yes if yes else None
    others = float((~said & ~is_so).sum()) / no if no else None
    return EventScores(
        rate=yes / max(1.0, yes + no),
        recall=recall,
        precision=both / claimed if claimed else None,
        balanced_accuracy=None if recall is None or others is None else (recall + others) / 2,
    )
