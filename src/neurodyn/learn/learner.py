# SPDX-License-Identifier: Apache-2.0
"""What each kind of model adds to the training loop: its optimiser steps, its validation, its state."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from neurodyn.core.verdict import LEAST_STEPS, Verdict
from neurodyn.learn.devices import current_ranks
from neurodyn.learn.metrics import MetricsLog
from neurodyn.learn.optimiser import Schedule

_MOST_TRIALS = 128
"""Parts of a batch that are tried for those whose gradients are finite: enough for ten bad windows in 512."""


@dataclass(frozen=True)
class OptimiserStep:
    """What came of an optimiser step.

    Attributes:
        loss: The loss, a scalar.
        rate: The learning rate.
        taken: Whether the gradient was finite; otherwise the step was left out.
        left_out: Windows of the batch that were left out, so that the gradient of the others was.
    """

    loss: Tensor | float = float("nan")
    rate: float = 0.0
    taken: bool = True
    left_out: int = 0


@dataclass(frozen=True)
class Validation:
    """A measurement on held-out data.

    Attributes:
        score: What the best model is chosen by.
        values: Further figures for the metrics.
        text: The result in a few words, for a progress bar.
    """

    score: float
    values: dict[str, Any] = field(default_factory=dict)
    text: str = ""


_SCORES = ("best", "first", "last")
"""Numbers that JSON holds as texts, because they may not be finite."""


@dataclass
class TrainState:
    """Where a training stands.

    Attributes:
        phase: Index of the phase; the number of phases where all are over.
        step: Optimiser steps (of a policy: updates) in all phases.
        phase_step: Those in this phase.
        seconds: Wall time of the training so far, resumed parts included [s].
        cpu_seconds: Processor time of the training so far [s].
        phase_seconds: Time of this phase so far by the clock of the budget [s].
        best: Best validation score so far; None before the first.
        measured: Validations in this phase so far.
        first: Score of the first validation; None before it.
        last: Score of the last one.
        best_step: Step of the best model.
        skipped: Steps left out because their gradient was not finite.
        left_out: Windows left out of their batches because the model broke down on them.
        stale: Validations in a row that brought nothing better.
        carried: Share of the budget that this phase has beside its own, of phases that ended under a smaller budget.
        verdict: Whether the result can be used, and why not (`core.verdict`); empty before the end.
        starved: Whether, at the end, a budget of wall time was over though others had most of the processor.
    """

    phase: int = 0
    step: int = 0
    phase_step: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    phase_seconds: float = 0.0
    best: float | None = None
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

    def saved(self) -> dict[str, Any]:
        """Return the state as JSON can hold it."""
        scores = {name: None if (x := getattr(self, name)) is None else str(x) for name in _SCORES}
        return {**asdict(self), **scores}

    @classmethod
    def read(cls, saved: dict[str, Any]) -> Self:
        """Return the state that `saved` gave."""
        scores = {name: None if saved[name] is None else float(saved[name]) for name in _SCORES}
        return cls(**{**saved, **scores})


class RunningTraining(Protocol):
    """What a learner may know of the loop that trains it (`learn.loop.TrainingLoop`).

    Attributes:
        state: Where the training stands.
        last: The optimiser step that was taken last.
        log: Where its metrics go; None for nowhere.
    """

    state: TrainState
    last: OptimiserStep
    log: MetricsLog | None

    def save(self) -> None:
        """Write a checkpoint."""


class Learner:
    """A model in training; `TrainingLoop` calls these methods.

    A subclass needs `step`; `validate` and `keep` where it is validated; `state` and `load` where it has a run.
    """

    least_steps: int = LEAST_STEPS
    """Steps below which a training has hardly begun."""

    device: torch.device = torch.device("cpu")
    """Where it computes."""

    def verdicts(self, at: TrainState) -> list[Verdict]:
        """Return what is to be said of the result beside what the loop knows."""
        return []

    def begin(self, at: TrainState) -> None:
        """Prepare; called whenever a training begins or goes on."""

    def shared(self) -> list[Tensor]:
        """Return what must be equal on all ranks when a training begins: weights and statistics."""
        return []

    def enter(self, phase: int) -> None:
        """Make what the steps of a phase need: optimiser, sampler."""

    def leave(self, loop: RunningTraining) -> bool:
        """End a phase; return whether the training ends with it."""
        return False

    def step(self, done: float, at: TrainState) -> OptimiserStep:
        """Take one optimiser step, at the share `done` of the phase."""
        raise NotImplementedError

    def validate(self, at: TrainState) -> Validation:
        """Measure the model on held-out data."""
        raise NotImplementedError

    def better(self, score: float, best: float) -> bool:
        """Return whether a score is better than the best so far."""
        return score < best

    def keep(self, at: TrainState) -> None:
        """Keep the present model as the best so far."""

    def finish(self, at: TrainState) -> None:
        """End the training."""

    def state(self) -> dict[str, Any]:
        """Return tensors and numbers from which the training goes on bitwise."""
        raise NotImplementedError

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from `state`; called after `enter`."""
        raise NotImplementedError

    def metrics(self, loop: RunningTraining, found: Validation | None) -> dict[str, Any]:
        """Return the line of metrics of a step, with its validation if there was one; empty for no line."""
        if found is None:
            return {}
        at = loop.state
        return {
            "phase": at.phase,
            "loss": float(loop.last.loss),
            "rate": loop.last.rate,
            "seconds": round(at.seconds, 3),
            "cpu_seconds": round(at.cpu_seconds, 3),
            "skipped": at.skipped,
            "rollout_score": found.score,
            **found.values,
        }

    def text(self, loop: RunningTraining, found: Validation | None) -> str | None:
        """Return what a progress bar says after a step; None to leave it as it is."""
        return None if found is None else found.text

    def closing(self, at: TrainState) -> dict[str, Any]:
        """Return what the last line of the metrics says beside the times."""
        return {}


class GradientLearner(Learner):
    """A model that is trained along the gradient of a loss.

    Attributes:
        schedule: Learning rate over a phase.
        clip: Greatest norm of a gradient.
    """

    schedule: Schedule = Schedule()
    clip: float = 1.0
    _optimiser: torch.optim.Optimizer
    _line_search = False
    _batch: Any

    def loss(self) -> Tensor:
        """Return the loss of the present batch; a vector's elements are summed."""
        raise NotImplementedError

    def draw(self) -> None:
        """Draw the batch of a step."""

    def stepped(self, step: OptimiserStep) -> None:
        """Follow up an optimiser step."""

    def set_optimiser(self, optimiser: torch.optim.Optimizer, *, line_search: bool = False) -> None:
        """Take a fresh optimiser, whose groups have their highest rates."""
        self._optimiser, self._line_search = optimiser, line_search
        self._highest = [group["lr"] for group in optimiser.param_groups]

    def parameters(self) -> Iterable[Tensor]:
        """Return the parameters whose gradients count for the norm."""
        return [p for group in self._optimiser.param_groups for p in group["params"]]

    def batch_weight(self) -> Tensor | None:
        """Return what the windows of the batch weigh together, in the shape of the loss; None where all weigh alike."""
        return None

    def gradients(self) -> list[Tensor]:
        """Return the gradients of the batch, before they are cut off."""
        return [p.grad for p in self.parameters() if p.grad is not None]

    def zero_gradients(self) -> None:
        """Forget the gradients of the last step."""
        self._optimiser.zero_grad(set_to_none=True)

    def clip_gradients(self) -> Tensor:
        """Cut the gradients off at the norm `clip`; return the norm before."""
        return nn.utils.clip_grad_norm_(self.parameters(), self.clip)

    def step(self, done: float, at: TrainState) -> OptimiserStep:
        """Take one optimiser step along a finite gradient, the mean of all ranks'."""
        rate = self._set_rates(done, at.step)
        self.draw()
        last = torch.tensor(float("nan"))

        def closure(share: Tensor | float = 1.0) -> Tensor:
            nonlocal last
            self.zero_gradients()
            loss = share * self.loss()
            loss.sum().backward()
            last = loss.detach().mean()
            return last

        taken, left_out = True, 0
        if self._line_search:
            self._optimiser.step(closure)  # pyright: ignore[reportCallIssue, reportArgumentType]  # takes tensors, too
        else:
            closure(current_ranks().share(self.batch_weight))
            current_ranks().average([last, *self.gradients()])
            taken = self._clipped(last)
            if not taken:
                taken, left_out = self._isolated(closure)
            if taken:
                self._optimiser.step()
        step = OptimiserStep(last, rate, taken, left_out)
        self.stepped(step)
        return step

    def windows(self) -> int:
        """Return how many windows the batch has; 0 where they cannot be taken apart."""
        return 0

    def take(self, rows: Tensor) -> None:
        """Replace the batch by some of its windows, shape [windows], int64."""
        raise NotImplementedError

    def broken(self, row: int) -> None:
        """Report a window on which the model breaks down."""

    def _isolated(self, closure: Callable[..., Tensor]) -> tuple[bool, int]:
        """Leave out the windows whose gradients are not finite, so that they do not spoil those of the others.

        They are found by halving, the largest parts first: a batch is halved only where it is bad. After `_MOST_TRIALS`
        what is not known to be finite is left out, as in a batch that is bad all over each window would be tried alone.
        Each rank does so with its own windows.

        Returns:
            Whether there is a finite gradient now, and how many windows were left out of it, on all ranks.
        """
        count = self.windows()
        if count < 2:
            return False, 0
        whole = self._batch

        def finite(rows: Tensor) -> bool:
            self._batch = whole
            self.take(rows)
            return self._clipped(closure())

        keep, alone = torch.zeros(count, dtype=torch.bool), []
        parts = deque(torch.arange(count).chunk(2))
        for _ in range(_MOST_TRIALS):
            if not parts:
                break
            rows = parts.popleft()
            if finite(rows):
                keep[rows] = True
            elif len(rows) > 1:
                parts.extend(rows.chunk(2))
            else:
                alone.append(int(rows))
        kept = int(keep.sum())
        left_out, left = current_ranks().total([count - kept, kept])
        if not left:
            return False, 0
        self._batch = whole
        if kept < count:
            self.broken(min(alone) if alone else int((~keep).int().argmax()))
        self._batch = whole
        if kept:
            self.take(keep.nonzero()[:, 0])
        own = [closure(current_ranks().share(lambda: self._weight_of(kept))), *self.gradients()]
        if not kept:  # the others' windows alone are learnt from
            for tensor in own:
                tensor.zero_()
        current_ranks().average(own)
        return self._clipped(own[0]), int(left_out)

    def _clipped(self, loss: Tensor) -> bool:
        """Cut the gradients off; return whether they and the loss are finite.

        The gradient of an absolute error that is not a number is 0: only the loss shows it.
        """
        return bool(torch.isfinite(self.clip_gradients()) & torch.isfinite(loss))

    def _weight_of(self, kept: int) -> Tensor:
        """Return what the batch weighs after so many of its windows were kept."""
        weight = self.batch_weight()
        if weight is None:
            return torch.tensor(float(kept), dtype=torch.float64)
        return weight if kept else torch.zeros_like(weight)

    def _set_rates(self, done: float, step: int) -> float:
        if not self._line_search:
            for group, highest in zip(self._optimiser.param_groups, self._highest, strict=True):
                group["lr"] = self.schedule.rate(highest, done, step)
        return self._optimiser.param_groups[0]["lr"]


class WindowLearner(GradientLearner):
    """A model that is trained on batches of windows of a store; its parts are set before `enter` returns."""

    _model: Any  # a module
    _sampler: Any  # with draw, state_dict and load_state_dict

    def draw(self) -> None:
        """Draw the next windows."""
        self._batch = self._sampler.draw()

    def shared(self) -> list[Tensor]:
        """Return weights and statistics of the model."""
        return list(self._model.state_dict().values())

    def gradients(self) -> list[Tensor]:
        """Return the gradients of the model; its optimiser may see views of them."""
        return [p.grad for p in self._model.parameters() if p.grad is not None]

    def state(self) -> dict[str, Any]:
        """Return the states of model, optimiser and sampler."""
        return {
            "model": self._model.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "sampler": self._sampler.state_dict(),
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from `state`."""
        self._optimiser.load_state_dict(saved["optimiser"])
        self._sampler.load_state_dict(saved["sampler"])
        self._model.load_state_dict(saved["model"])
