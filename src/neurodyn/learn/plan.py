# SPDX-License-Identifier: Apache-2.0
"""Settings shared by trainings of all kinds of models (phases, budget, optimiser), and progress in the budget."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Self, TypeVar

import msgspec

from neurodyn.core.config import Config, require_numbers
from neurodyn.core.errors import InputError, require
from neurodyn.core.workers import resolve_threads
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


Clock = Literal["own", "wall", "cpu"]
"""Clock of a budget of minutes: time in which this process had a core, so that the same command trains as long on a
busy machine as on a quiet one; wall time; or CPU time of all threads."""

_MOST_WAITED = 4.0
"""Largest ratio of wall time to the time that counts, for work that waits for something else than a core."""


def counted_seconds(clock: Clock, wall: float, cpu: float) -> float:
    """Return what a passed time [s] counts of a budget, given the CPU time of this process in it."""
    return {"wall": wall, "cpu": cpu, "own": min(wall, max(cpu, wall / _MOST_WAITED))}[clock]


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
    def budget(self) -> "TrainingBudget":
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


_SCORES = ("best", "first", "last")
"""Scores saved as text, as JSON has no non-finite numbers."""


@dataclass
class TrainState:
    """Progress of a training.

    Attributes:
        phase: Index of the phase; the number of phases when all are over.
        step: Optimiser steps (updates of a policy) in all phases.
        phase_step: Optimiser steps in this phase.
        seconds: Wall time so far, including the time before a resumption [s].
        cpu_seconds: CPU time so far [s].
        phase_seconds: Time in this phase by the clock of the budget [s].
        best: Best validation score; None before the first validation.
        broken: Share of the best model's validation roll-outs that were not finite; 1 if its score was not.
        measured: Validations in this phase.
        first: Score of the first validation; None before it.
        last: Score of the last validation.
        best_step: Step of the best model.
        skipped: Steps skipped because their gradient was not finite.
        left_out: Windows left out of their batches because the model broke down on them.
        stale: Validations in a row without improvement.
        carried: Share of the budget added to this phase by earlier phases that ended under a smaller budget.
        verdict: Whether the result can be used, and why not (`core.verdict`); empty before the end.
        starved: Whether a budget of wall time ended while other processes used most of the CPU.
        waited: Wall time that other processes took, which does not count of a budget of minutes [s].
    """

    phase: int = 0
    step: int = 0
    phase_step: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    phase_seconds: float = 0.0
    best: float | None = None
    broken: float = 0.0
    measured: int = 0
    first: float | None = None
    last: float | None = None
    best_step: int = 0
    skipped: int = 0
    left_out: int = 0
    stale: int = 0
    carried: float = 0.0
    verdict: str = ""
    starved: bool = False
    waited: float = 0.0

    def plain(self) -> dict[str, Any]:
        """Return the state as plain data for JSON."""
        scores = {name: None if (x := getattr(self, name)) is None else str(x) for name in _SCORES}
        return {**asdict(self), **scores}

    @classmethod
    def read(cls, saved: dict[str, Any]) -> Self:
        """Return the state from the plain data of `plain`."""
        scores = {name: None if saved[name] is None else float(saved[name]) for name in _SCORES}
        return cls(**{**saved, **scores})


@dataclass(frozen=True)
class TrainingBudget:
    """Steps, time, or both: a phase ends when the first of them is used up.

    Attributes:
        steps: Optimiser steps in all phases; None for no limit.
        minutes: Time of all phases [min]; None for no limit.
        shares: Relative share of each phase.
        clock: Clock of the minutes.
        as_needed: Whether phases after the first may be left out; progress is then that in the phases so far.
    """

    steps: int | None = None
    minutes: float | None = None
    shares: tuple[float, ...] = (1.0,)
    clock: Clock = "own"
    as_needed: bool = False

    def done(self, train_state: TrainState) -> float:
        """Return the finished share of the current phase."""
        share, done = self.shares[train_state.phase] / sum(self.shares) + train_state.carried, 0.0
        if self.steps is not None:
            done = train_state.phase_step / max(1, round(self.steps * share))
        if self.minutes is not None:
            done = max(done, train_state.phase_seconds / (60.0 * self.minutes * share))
        return done

    def carry_over(self, train_state: TrainState, former: "TrainingBudget") -> float:
        """Return the share of this budget that earlier phases, ended under a smaller one, leave to this phase."""
        limits = ((former.steps, self.steps), (former.minutes, self.minutes))
        ratio = next((old / new for old, new in limits if old is not None and new is not None), 1.0)
        before = sum(self.shares[: train_state.phase]) / sum(self.shares)
        return train_state.carried if ratio == 1.0 else before - ratio * (before - train_state.carried)

    def overall(self, train_state: TrainState) -> float:
        """Return the finished share of the whole training."""
        if train_state.phase >= len(self.shares):
            return 1.0
        before, share = sum(self.shares[: train_state.phase]), self.shares[train_state.phase]
        whole = before + share if self.as_needed else sum(self.shares)
        return min(1.0, (before + min(1.0, self.done(train_state)) * share) / whole)

    def validations(self, phase: int, count: int) -> int:
        """Return the number of validations in a phase, of `count` in the whole training."""
        return max(1, round(count * self.shares[phase] / sum(self.shares))) if count else 0


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
