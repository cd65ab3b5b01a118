# SPDX-License-Identifier: Apache-2.0
"""Starts along a log that a model refuses, and the errors of its forecasts from these and from the others."""

from dataclasses import dataclass

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.base import EnsembleDynamics
from neurodyn.dynamics.batch import present_state
from neurodyn.dynamics.control import control_of
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.rollouts import recorded_environments, starts_of
from neurodyn.evaluate.records import Refusals

_BATCH = 1024


@dataclass(frozen=True)
class Refused:
    """Which starts a model refuses, bool, shape [starts].

    Attributes:
        outside: Whether the network inputs of the first frame are far from the training data.
        contradicted: Whether the history contradicts the model; None if it cannot say.
    """

    outside: Tensor
    contradicted: Tensor | None

    @property
    def any(self) -> Tensor:
        """Whether a start is refused for either reason."""
        return self.outside if self.contradicted is None else self.outside | self.contradicted


@torch.no_grad()
def refused_starts(model: Dynamics, store: Store, starts: Windows) -> Refused | None:
    """Return which starts along windows of a log a model refuses; None if it does not know its training data."""
    if not isinstance(model, EnsembleDynamics):  # also what merely rolls out, such as models that start from their past
        return None
    outside, contradicted, environments = [], [], recorded_environments(store, model)
    for part in starts.batches(_BATCH):
        batch = starts_of(part.to(torch.float32), model, environments)
        control = control_of(model.spec, part.control[:, 0].float())
        far = model.outside(present_state(batch.past), control, batch.environment)
        if far is None:
            return None
        outside.append(far)
        against = model.contradicted(batch.past, batch.environment)
        if against is not None:
            contradicted.append(against)
    return Refused(torch.cat(outside), torch.cat(contradicted) if contradicted else None)


def refusals(
    refused: Refused | None, errors: Tensor, seconds: float, unit: str = "standard deviations"
) -> Refusals | UnsetType:
    """Return the shares of refused starts, with mean errors, shape [starts], of these and the others."""
    if refused is None or not len(errors):
        return UNSET
    bad = refused.any
    return Refusals(
        refused=_mean(bad) or 0.0, outside=_mean(refused.outside) or 0.0,
        contradicted=None if refused.contradicted is None else _mean(refused.contradicted),
        seconds=seconds, unit=unit, error=_mean(errors[bad]), error_of_others=_mean(errors[~bad]),
    )  # fmt: skip


def _mean(values: Tensor) -> float | None:
    values = values[values.isfinite()]
    return float(values.double().mean()) if len(values) else None
