# SPDX-License-Identifier: Apache-2.0
"""The optimiser and its learning-rate schedule: linear warm-up, then half a cosine."""

import math
from collections.abc import Iterable

import torch
from torch import nn

from neurodyn.learn.plan import Plan, Stage


def build_optimiser(parameters: Iterable[nn.Parameter], settings: Plan, phase: Stage) -> torch.optim.Optimizer:
    """Return a fresh optimiser for a phase."""
    trainable = [p for p in parameters if p.requires_grad]
    if settings.optimiser == "adam":
        return torch.optim.AdamW(trainable, lr=phase.rate, weight_decay=settings.weight_decay)
    from pytorch_optimizer import SOAP

    return SOAP(trainable, lr=phase.rate, weight_decay=settings.weight_decay, precondition_frequency=10)


def set_rate(optimiser: torch.optim.Optimizer, settings: Plan, phase: Stage, progress: float) -> float:
    """Set the learning rate for a share `progress` of the phase done, and return it."""
    rise = min(1.0, (progress + 1e-3) / settings.warmup) if settings.warmup > 0 else 1.0
    cosine = 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
    rate = phase.rate * rise * (settings.final + (1.0 - settings.final) * cosine)
    for group in optimiser.param_groups:
        group["lr"] = rate
    return rate
