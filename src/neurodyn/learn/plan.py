# SPDX-License-Identifier: Apache-2.0
"""Settings shared by trainings of all kinds of models: phases, budget, optimiser."""

from typing import Any, ClassVar, Literal, TypeVar

import msgspec

from neurodyn.core.config import Config, require_numbers
from neurodyn.core.errors import InputError, require
from neurodyn.core.workers import resolve_threads
from neurodyn.learn.budget import Clock, TrainingBudget
from neurodyn.learn.optimiser import Schedule, require_scheduled


class TrainingPhase(Config, frozen=True, kw_only=True):
    """One phase of a training."""

    share: float
    """Relative share of the budget."""
    rate: float
    """Highest learning rate."""
    batch: int
    """Windows per batch, of each member."""

    def __post_init__(self) -> None:
        require_numbers(self, above=("share", "rate", "batch"))


Keep = Literal["best", "last"]

MOST_VALIDATIONS = 40
"""Default limit of the number of validations."""


class TrainingPlan(Config, frozen=True, kw_only=True):
    """Settings shared by trainings of all kinds of models."""

    budget_fields: ClassVar[tuple[str, ...]] = ("minutes", "clock", "steps", "validations")
    frame_lengths: ClassVar[frozenset[str]] = frozenset({"context", "forecast", "frames", "cut", "validation_frames"})

    phases: tuple[TrainingPhase, ...]
    """Phases, in order."""
    minutes: float | None = None
    """Time budget [min]; None to train for `steps`."""
    steps: int | None = None
    """Optimiser steps; None to train for `minutes`."""
    clock: Clock = "own"
    """Clock of the minutes: "own" counts wall time in which other processes left this one a core, "wall" all of it,
    "cpu" the CPU time of all threads."""
    optimiser: str = "soap"
    """"soap", "adam", or another one of `learn.optimiser.OPTIMISERS`."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""
    clip: float = 1.0
    """Limit of the gradient norm."""
    warmup: float = 0.02
    """Share of a phase over which the rate rises."""
    final: float = 0.01
    """Rate at the end of a phase, as a share of its highest."""
    validations: int | None = None
    """Number of validations by roll-out, in place of 40 or one in 10 steps, whichever is less."""
    validation_rollouts: int = 256
    """Held-out windows in a validation."""
    validation_frames: int = 100
    """Frames of a validation roll-out, at most those of the longest episode."""
    keep: Keep = "best"
    """"best" or "last" weights, by validation."""
    conditions: tuple[str, ...] = ()
    """Parameters of the data as inputs: names or shell patterns of quantities in which episodes differ."""
    threads: int = 1
    """Threads of tensor operations. One is fastest for small networks. The order of sums, and so every bit of the
    result, depends on the number."""
    seed: int = 0
    """Seed of weights and batches."""

    def __post_init__(self) -> None:
        if not self.phases:
            raise ValueError("phases is empty; give at least one")
        if (self.minutes is None) == (self.steps is None):
            raise ValueError("give either minutes or steps")
        require_scheduled(self.optimiser)
        counts = ("steps", "validations", "validation_rollouts", "validation_frames", "threads")
        require_numbers(self, above=("clip", "minutes", *counts))
        for name in ("warmup", "final"):
            require(getattr(self, name) <= 1, name, getattr(self, name), "at most 1")

    @property
    def budget(self) -> TrainingBudget:
        """End of each phase."""
        return TrainingBudget(self.steps, self.minutes, tuple(phase.share for phase in self.phases), self.clock)

    @property
    def validation_count(self) -> int:
        """Number of validations, at least 1; more would take longer than the steps between them."""
        if self.validations is not None:
            return self.validations
        return MOST_VALIDATIONS if self.steps is None else max(1, min(MOST_VALIDATIONS, self.steps // 10))

    @property
    def schedule(self) -> Schedule:
        """Learning rate over a phase."""
        return Schedule(warmup=self.warmup, final=self.final)


P = TypeVar("P", bound=TrainingPlan)


def with_budget(
    settings: P, minutes: float | None, steps: int | None, seed: int | None, threads: int | None = None,
    keep: Keep | None = None,
) -> P:  # fmt: skip
    """Return settings with another budget, seed, number of threads or choice of weights, as far as given.

    Raises:
        InputError: Both budgets are given, or a value is invalid.
    """
    if minutes is not None and steps is not None:
        raise InputError("training budget: both minutes and steps are given; give one")
    changes: dict[str, Any] = {}
    if minutes is not None or steps is not None:
        changes |= {"minutes": minutes, "steps": steps}
    if seed is not None:
        changes["seed"] = seed
    if keep is not None:
        changes["keep"] = keep
    if threads is not None:
        changes["threads"] = resolve_threads(threads)
    try:
        return msgspec.structs.replace(settings, **changes)
    except ValueError as error:
        raise InputError(f"training budget: {error}") from None
