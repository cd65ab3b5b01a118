# SPDX-License-Identifier: Apache-2.0
"""How well a world model predicts contacts and the end of episodes, frame by frame of its forecasts."""

from typing import Any

import torch
from torch import Tensor

from neurodyn.data.windows import Windows
from neurodyn.dynamics.interface import present_state
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.evaluate.forecasts import window


@torch.no_grad()
def event_scores(model: WorldModel, windows: list[Windows], context: int) -> dict[str, Any]:
    """Return scores of all frames of the forecasts, with a chance above one half taken for yes.

    Args:
        model: The model.
        windows: Windows with labels.
        context: Frames of them that are history.

    Returns:
        For each contact and for "termination", where they are predicted: "rate" of the label, "recall" of those that
        are, "precision" of those that are said to be, "balanced_accuracy" (mean of the recalls of both classes).
    """
    if not model.net.events:
        return {}
    chances, labels = [], []
    for batch in windows:
        chance = _chances(model, batch, context)
        truth = [] if batch.contacts is None else [batch.contacts[:, context + 1 :]]
        if model.terminates:
            none = torch.zeros(*batch.control.shape[:2], 1)[:, context:]
            truth.append(none if batch.failed is None else batch.failed[:, context + 1 :, None].float())
        chances.append(chance.flatten(0, 1))
        labels.append(torch.cat(truth, -1).flatten(0, 1))
    names = [*model.spec.contacts, *(["termination"] if model.terminates else [])]
    said, is_so = torch.cat(chances) > 0.5, torch.cat(labels) > 0.5
    return {name: _scores(said[:, i], is_so[:, i]) for i, name in enumerate(names)}


def _chances(model: WorldModel, batch: Windows, context: int) -> Tensor:
    first = context - min(context, model.spec.context)
    states = model.observation.join(batch.q, batch.qd, batch.channels)[:, first : context + 1]
    past = window(model.observation, states, batch.control[:, first:context])
    start = model.observation.of_state(present_state(past))
    found = model.follow(model.begin(past).hidden, start[None], batch.control[None, :, context:])
    assert found.logits is not None  # asked for only of models with events
    return found.logits.sigmoid().mean(0)


def _scores(said: Tensor, is_so: Tensor) -> dict[str, float | None]:
    both = float((said & is_so).sum())
    yes, no, claimed = float(is_so.sum()), float((~is_so).sum()), float(said.sum())
    recall = both / yes if yes else None
    others = float((~said & ~is_so).sum()) / no if no else None
    return {
        "rate": yes / max(1.0, yes + no),
        "recall": recall,
        "precision": both / claimed if claimed else None,
        "balanced_accuracy": None if recall is None or others is None else (recall + others) / 2,
    }
