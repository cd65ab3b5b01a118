# SPDX-License-Identifier: Apache-2.0
"""Errors of roll-outs by the conditions of a network, within the range of its training data and beyond."""

from collections.abc import Sequence

import torch
from torch import Tensor

from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.seeds import derive_seed
from neurodyn.dynamics.conditions import Condition
from neurodyn.evaluate.metrics import Compared
from neurodyn.evaluate.records import ConditionBin, ConditionErrors

_INSIDE, _BEYOND = 384, 64
"""Roll-outs with all conditions in the range of the training data, and with one of them beyond either end."""

_REACH = 0.25
"""How far beyond the range, as a share of it."""

THIRDS = ("lower third", "middle third", "upper third")
BELOW, ABOVE = "below the training data", "above the training data"


def drawn_conditions(conditions: Sequence[Condition], seed: int) -> Tensor:
    """Return values of conditions for roll-outs, uniform in their ranges, one at a time beyond them, shape [worlds, n].

    Quantities that are never negative stay so.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "conditions"))
    lower, upper = (torch.tensor([getattr(one, end) for one in conditions]) for end in ("lower", "upper"))

    def inside(worlds: int) -> Tensor:
        return lower + (upper - lower) * torch.rand(worlds, len(conditions), generator=generator)

    parts = [inside(_INSIDE)]
    for column, one in enumerate(conditions):
        width = _REACH * (one.upper - one.lower)
        least = select_parameters({one.name: max(one.value, 0.0)}, [one.name])[0].lower
        below = one.lower - width if least is None else max(one.lower - width, least)
        for low, high in ((below, one.lower), (one.upper, one.upper + width)):
            if high - low > 1e-6 * width:
                part = inside(_BEYOND)
                part[:, column] = low + (high - low) * torch.rand(_BEYOND, generator=generator)
                parts.append(part)
    return torch.cat(parts)


def errors_by_condition(
    conditions: Sequence[Condition], numbers: Tensor, compared: Compared, frames: int
) -> list[ConditionErrors]:
    """Return mean errors up to a horizon by thirds of the range of each condition, and beyond it.

    A roll-out counts where all other conditions are in their ranges.

    Args:
        conditions: The conditions.
        numbers: Their values in each roll-out, shape [worlds, conditions].
        compared: The roll-outs beside the truth.
        frames: The horizon.
    """
    lower, upper = (torch.tensor([getattr(one, end) for one in conditions]) for end in ("lower", "upper"))
    inside = (numbers >= lower) & (numbers <= upper)
    errors = {name: values[:, :frames].double().mean((1, 2)) for name, values in compared.errors.items()}
    found = []
    for column, one in enumerate(conditions):
        others = torch.cat([inside[:, :column], inside[:, column + 1 :]], 1).all(1) & compared.finite
        values, edges = numbers[:, column].contiguous(), torch.linspace(one.lower, one.upper, len(THIRDS) + 1)
        third = torch.bucketize(values, edges[1:-1])
        rows = {name: inside[:, column] & (third == k) for k, name in enumerate(THIRDS)}
        rows |= {BELOW: values < lower[column], ABOVE: values > upper[column]}
        bins = {name: _bin(values, others & chosen, errors, inside=name in THIRDS) for name, chosen in rows.items()}
        found.append(
            ConditionErrors(
                name=one.name, lower=one.lower, upper=one.upper, frames=frames,
                bins={name: entry for name, entry in bins.items() if entry.rollouts},
            )
        )  # fmt: skip
    return found


def _bin(values: Tensor, rows: Tensor, errors: dict[str, Tensor], *, inside: bool) -> ConditionBin:
    own = values[rows]
    return ConditionBin(
        rollouts=len(own), inside=inside, mean=float(own.mean()) if len(own) else None,
        errors={name: float(error[rows].mean()) if len(own) else None for name, error in errors.items()},
    )  # fmt: skip
