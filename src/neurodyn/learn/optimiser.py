# SPDX-License-Identifier: Apache-2.0
"""Optimisers by name; another one is a function and a line `OPTIMISERS.add(name, Method(function))`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.errors import InputError, choices
from neurodyn.core.registry import Registry

Groups = list[dict[str, Any]]
"""Parameters as torch's optimisers take them: each group has "params" and its highest rate "lr"."""


@dataclass(frozen=True)
class Method:
    """An optimiser that settings can name.

    Attributes:
        build: Makes it: build(groups, weight_decay, **options).
        line_search: Whether it finds its own step lengths: it evaluates the loss several times in a step, along one
            and the same batch, and obeys no schedule.
    """

    build: Callable[..., torch.optim.Optimizer]
    line_search: bool = False


OPTIMISERS: Registry[Method] = Registry("optimiser")
"""All optimisers."""


def build_optimiser(name: str, groups: Groups, *, weight_decay: float = 0.0, **options: Any) -> torch.optim.Optimizer:
    """Return a fresh optimiser.

    Args:
        name: Its name in `OPTIMISERS`.
        groups: Parameters with their highest rates.
        weight_decay: Decoupled weight decay.
        options: What the optimiser takes beside these.

    Raises:
        InputError: There is no such optimiser.
    """
    return OPTIMISERS[name].build(groups, weight_decay, **options)


def trainable(parameters: Iterable[Tensor], rate: float) -> Groups:
    """Return one group of all parameters that are not frozen."""
    return [{"params": [p for p in parameters if p.requires_grad], "lr": rate}]


def require_scheduled(name: str) -> None:
    """Refuse optimisers that search along a line, where every step has a batch of its own.

    Raises:
        InputError: It is one, or there is no such optimiser.
    """
    if OPTIMISERS[name].line_search:
        valid = choices(name for name, method in OPTIMISERS.items() if not method.line_search)
        raise InputError(f"optimiser {name!r} needs the same batch in every step; valid here: {valid}")


def _adam(groups: Groups, weight_decay: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, weight_decay=weight_decay)


def _soap(groups: Groups, weight_decay: float) -> torch.optim.Optimizer:
    """Shampoo's eigenbasis with Adam in it (arXiv 2409.11321)."""
    from pytorch_optimizer import SOAP

    return SOAP(groups, lr=groups[0]["lr"], weight_decay=weight_decay, precondition_frequency=10)


def _lbfgs(groups: Groups, weight_decay: float, *, iterations: int = 10, history: int = 20) -> torch.optim.Optimizer:
    return torch.optim.LBFGS(
        [p for group in groups for p in group["params"]], lr=1.0, max_iter=iterations, history_size=history,
        line_search_fn="strong_wolfe",
    )  # fmt: skip


OPTIMISERS.add("adam", Method(_adam))
OPTIMISERS.add("soap", Method(_soap))
OPTIMISERS.add("lbfgs", Method(_lbfgs, line_search=True))
