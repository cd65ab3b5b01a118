# SPDX-License-Identifier: Apache-2.0
"""Budgets of trainings in steps and time, and progress in them."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

Clock = Literal["own", "wall", "cpu"]
"""Clock of a budget of minutes: time in which this process had a core, so that the same command trains as long on a
busy machine as on a quiet one; wall time; or CPU time of all threads."""

_MOST_WAITED = 4.0
"""Largest ratio of wall time to the time that counts, for work that waits for something else than a core."""


def counted_seconds(clock: Clock, wall: float, cpu: float) -> float:
    """Return what a passed time [s] counts of a budget, given the CPU time of this process in it."""
    return {"wall": wall, "cpu": cpu, "own": min(wall, max(cpu, wall / _MOST_WAITED))}[clock]


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
