# SPDX-License-Identifier: Apache-2.0
"""How well a world model predicts contacts and the end of episodes, frame by frame of its forecasts."""

import torch
from torch import Tensor

from neurodyn.dynamics.interface import present_state
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.evaluate.engine import Batch
from neurodyn.evaluate.recorded import Recorded
from neurodyn.evaluate.records import EventScores


@torch.no_grad()
def event_scores(model: WorldModel, starts: Recorded) -> dict[str, EventScores]:
    """Return scores of all frames of the forecasts, with a chance above one half taken for yes.

    Args:
        model: The model.
        starts: Windows with labels.

    Returns:
        Scores of each contact and of "termination", where they are predicted.
    """
    if not model.net.events:
        return {}
    chances, labels, context = [], [], starts.context
    for windows, batch in zip(starts.windows, starts.batches(model.spec.context, environments=False), strict=True):
        truth = [] if windows.contacts is None or not model.spec.nc else [windows.contacts[:, context + 1 :]]
        if model.terminates:
            none = torch.zeros(*windows.control.shape[:2], 1)[:, context:]
            truth.append(none if windows.failed is None else windows.failed[:, context + 1 :, None].float())
        chances.append(_chances(model, batch).flatten(0, 1))
        labels.append(torch.cat(truth, -1).flatten(0, 1))
    names = [*model.spec.contacts, *(["termination"] if model.terminates else [])]
    said, is_so = torch.cat(chances) > 0.5, torch.cat(labels) > 0.5
    return {name: _scores(said[:, i], is_so[:, i]) for i, name in enumerate(names)}


def _chances(model: WorldModel, batch: Batch) -> Tensor:
    start, control = model.observation.of_state(present_state(batch.past)), batch.drive.torque
    assert control is not None  # a log has controls
    found = model.follow(model.begin(batch.past).hidden, start[None], control[None])
    assert found.logits is not None  # asked for only of models with events
    return found.logits.sigmoid().mean(0)


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
