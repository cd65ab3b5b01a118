# SPDX-License-Identifier: Apache-2.0
"""What the training of every kind of model is told: phases, a budget, an optimiser."""

import math
from typing import Literal, TypeVar

import msgspec

from neurodyn.core.config import Config
from neurodyn.core.errors import InputError


class Stage(Config, frozen=True, kw_only=True):
    """One stage of a training: its own loss, batch and learning-rate schedule.

    Attributes:
        share: Share of the budget (of all phases' shares together).
        rate: Highest learning rate.
        batch: Windows in a batch.
    """

    share: float
    rate: float
    batch: int

    def __post_init__(self) -> None:
        if not (0 < self.share < math.inf and 0 < self.rate < math.inf and self.batch >= 1):
            raise ValueError("share and rate must be finite and above 0, batch at least 1")


class Plan(Config, frozen=True, kw_only=True):
    """How a model is trained, whatever it is.

    Attributes:
        phases: Stages, in order.
        minutes: Time budget [min]; None to train for `steps`.
        steps: Optimiser steps; used where `minutes` is None.
        optimiser: "soap" (Shampoo's eigenbasis with Adam in it, arXiv 2409.11321) or "adam".
        weight_decay: Decoupled weight decay.
        clip: Greatest norm of a gradient.
        warmup: Share of a phase in which the rate rises.
        final: Rate at the end of a phase, as a share of its highest.
        validations: How often the roll-out error is measured in the course of the training.
        validation_rollouts: Held-out windows in a validation.
        validation_frames: Frames of a validation roll-out (shortened to what the episodes hold).
        threads: Threads of tensor operations. One is fastest for small networks, and the order of sums, and
            with it every bit of the result, depends on their number.
        seed: Seed of weights and batches.
    """

    phases: tuple[Stage, ...]
    minutes: float | None = None
    steps: int | None = None
    optimiser: Literal["soap", "adam"] = "soap"
    weight_decay: float = 0.0
    clip: float = 1.0
    warmup: float = 0.02
    final: float = 0.01
    validations: int = 40
    validation_rollouts: int = 256
    validation_frames: int = 100
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.phases:
            raise ValueError("phases is empty; give at least one")
        if (self.minutes is None) == (self.steps is None):
            raise ValueError("give either minutes or steps")
        for name in ("minutes", "steps"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} is {value}; valid: a finite number above 0")


P = TypeVar("P", bound=Plan)


def with_budget(settings: P, minutes: float | None, steps: int | None, seed: int | None) -> P:
    """Return settings with another budget or seed, where given.

    Raises:
        InputError: Both budgets are given, or one is not above 0.
    """
    if minutes is not None and steps is not None:
        raise InputError("training budget: both minutes and steps are given; give one")
    changes: dict[str, float | int | None] = {}
    if minutes is not None or steps is not None:
        changes |= {"minutes": minutes, "steps": steps}
    if seed is not None:
        changes["seed"] = seed
    try:
        return msgspec.structs.replace(settings, **changes)
    except ValueError as error:
        raise InputError(f"training budget: {error}") from None
