# SPDX-License-Identifier: Apache-2.0
"""Optimisers by name, learning-rate schedules, and views of an ensemble's weights by member.

To add an optimiser, write a function and a line `OPTIMISERS.add(name, Method(function))`.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from neurodyn.core.errors import InputError, choices
from neurodyn.core.registry import Registry

Groups = list[dict[str, Any]]
"""Parameter groups of torch's optimisers: each group has "params" and its highest rate "lr"."""


@dataclass(frozen=True)
class Method:
    """An optimiser that settings can name.

    Attributes:
        build: Its constructor: build(groups, weight_decay, **options).
        line_search: Whether it searches for the length of each step; it then evaluates the loss several times on the
            same batch, and ignores the schedule.
    """

    build: Callable[..., torch.optim.Optimizer]
    line_search: bool = False


OPTIMISERS: Registry[Method] = Registry("optimiser")


def build_optimiser(name: str, groups: Groups, *, weight_decay: float = 0.0, **options: Any) -> torch.optim.Optimizer:
    """Return a fresh optimiser by its name in `OPTIMISERS`, with its own `options`."""
    return OPTIMISERS[name].build(groups, weight_decay, **options)


def trainable(parameters: Iterable[Tensor], rate: float) -> Groups:
    """Return one group of the parameters that are not frozen."""
    return [{"params": [p for p in parameters if p.requires_grad], "lr": rate}]


def require_scheduled(name: str) -> None:
    """Raise an InputError for an optimiser with a line search, or an unknown one."""
    if OPTIMISERS[name].line_search:
        valid = choices(name for name, method in OPTIMISERS.items() if not method.line_search)
        raise InputError(f"optimiser {name!r} needs the same batch in every step; valid here: {valid}")


def _adam(groups: Groups, weight_decay: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, weight_decay=weight_decay)


def _soap(groups: Groups, weight_decay: float) -> torch.optim.Optimizer:
    """Return SOAP: Adam in the eigenbasis of Shampoo (arXiv 2409.11321)."""
    from pytorch_optimizer import SOAP

    apart = any(p.device.type == "cuda" for group in groups for p in group["params"])
    every = 50 if apart else 10  # decomposing small matrices takes a GPU longer than many steps
    return SOAP(groups, lr=groups[0]["lr"], weight_decay=weight_decay, precondition_frequency=every)


def _lbfgs(groups: Groups, weight_decay: float, *, iterations: int = 10, history: int = 20) -> torch.optim.Optimizer:
    return torch.optim.LBFGS(
        [p for group in groups for p in group["params"]], lr=1.0, max_iter=iterations, history_size=history,
        line_search_fn="strong_wolfe",
    )  # fmt: skip


OPTIMISERS.add("adam", Method(_adam))
OPTIMISERS.add("soap", Method(_soap))
OPTIMISERS.add("lbfgs", Method(_lbfgs, line_search=True))


@dataclass(frozen=True)
class Schedule:
    """Learning rate over a phase.

    Attributes:
        warmup: Share of the phase over which the rate rises.
        warmup_steps: Optimiser steps of the whole training over which it rises; 0 for `warmup` instead.
        final: Rate at the end of the phase, as a share of the highest.
        offset: Share of the highest rate that is always added.
    """

    warmup: float = 0.0
    warmup_steps: int = 0
    final: float = 0.0
    offset: float = 0.0

    def rate(self, highest: float, done: float, step: int = 0) -> float:
        """Return the learning rate at the share `done` of a phase, after `step` optimiser steps in total."""
        rise = min(1.0, (done + 1e-3) / self.warmup) if self.warmup > 0 else 1.0
        if self.warmup_steps:
            rise = min(1.0, (step + 1) / self.warmup_steps)
        cosine = 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))
        return highest * rise * (self.final + (1.0 - self.final) * cosine) + self.offset * highest


class MemberParameters:
    """Views of an ensemble's parameters by member, which share memory with the ensemble.

    Parameters whose first axis has length `members` belong to the members, others are shared.

    Attributes:
        views: All views, ordered by parameter and then by member.
    """

    def __init__(self, model: nn.Module, members: int) -> None:
        self._whole = [p for p in model.parameters() if p.requires_grad and p.shape[0] == members]
        self._shared = [p for p in model.parameters() if p.requires_grad and p.shape[0] != members]
        self._by_member = [[nn.Parameter(_cut(p.data, m)) for p in self._whole] for m in range(members)]
        own = [view for parameter in zip(*self._by_member, strict=True) for view in parameter]
        self.views: list[nn.Parameter] = [*own, *self._shared]

    def take_gradients(self, clip: float) -> Tensor:
        """Copy the gradients of the ensemble to the views, and clip each member's to the norm `clip`.

        Returns:
            Largest norm of the gradient of a member or the shared part, shape []; not finite if one of them is not.
        """
        norms = []
        for m, views in enumerate(self._by_member):
            for view, whole in zip(views, self._whole, strict=True):
                view.grad = None if whole.grad is None else _cut(whole.grad, m)
            norms.append(nn.utils.clip_grad_norm_(views, clip))
        if self._shared:
            norms.append(nn.utils.clip_grad_norm_(self._shared, clip))
        return torch.stack(norms).max() if norms else torch.zeros(())


def _cut(x: Tensor, member: int) -> Tensor:
    part = x[member]
    # Biases are rows, but optimisers that precondition matrices should get them as vectors.
    return part.reshape(-1) if part.numel() == part.shape[-1] else part
