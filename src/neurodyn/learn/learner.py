# SPDX-License-Identifier: Apache-2.0
"""Learners: the optimiser steps, validation and state that each kind of model adds to the training loop."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from neurodyn.core.verdict import LEAST_STEPS, Finding, percent
from neurodyn.dynamics.rollout_errors import Ranking
from neurodyn.learn.budget import TrainState
from neurodyn.learn.devices import current_ranks
from neurodyn.learn.metrics import MetricsLog
from neurodyn.learn.optimiser import MemberParameters, Schedule

_MOST_TRIALS = 128
"""Most parts of a batch whose gradients are tested separately: enough for ten bad windows in 512."""


@dataclass(frozen=True)
class OptimiserStep:
    """Outcome of an optimiser step.

    Attributes:
        loss: The loss, shape [].
        rate: The learning rate.
        taken: Whether the gradient was finite; otherwise the step was skipped.
        left_out: Windows of the batch that were left out to make the gradient finite.
    """

    loss: Tensor | float = float("nan")
    rate: float = 0.0
    taken: bool = True
    left_out: int = 0


@dataclass(frozen=True)
class Validation:
    """A measurement on held-out data.

    Attributes:
        score: Figure by which the best model is chosen among those with the same share `broken`.
        values: Further figures for the metrics.
        text: Text for a progress bar.
        over: Whether the phase ends here.
        broken: Share of roll-outs that are not finite; a model with a larger one is worse, whatever its score.
    """

    score: float
    values: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    over: bool = False
    broken: float = 0.0

    @classmethod
    def of_ranking(cls, ranking: Ranking, values: dict[str, Any], text: str) -> "Validation":
        """Return a validation from the rank of roll-outs; `values` and `text` get the share that is finite."""
        if ranking.broken == 1.0:
            text = "no held-out roll-out is finite"
        elif ranking.broken:
            text += f"; {percent(ranking.broken)} of the roll-outs are not finite"
        values = values | {"finite_fraction": 1.0 - ranking.broken}
        return cls(ranking.error, values, text, broken=ranking.broken)


class LoopView(Protocol):
    """What a learner sees of the loop that trains it.

    Attributes:
        state: Progress of the training.
        last: Outcome of the last optimiser step.
        log: Metrics of the run; None without one.
    """

    state: TrainState
    last: OptimiserStep
    log: MetricsLog | None

    def save(self) -> None:
        """Write a checkpoint."""


class Learner:
    """A model in training; `TrainingLoop` calls these methods.

    A subclass needs `step`; to be validated, `validate` and `keep`; to be resumed, `state` and `load`.

    Attributes:
        least_steps: Fewest steps of a useful training, for the verdict.
        device: Device that trains.
    """

    least_steps: int = LEAST_STEPS
    device: torch.device = torch.device("cpu")

    def verdicts(self, train_state: TrainState) -> list[Finding]:
        """Return judgements of the result in addition to the loop's."""
        return []

    def begin(self, train_state: TrainState) -> None:
        """Prepare; called when a training begins or resumes."""

    def shared_tensors(self) -> list[Tensor]:
        """Return the weights and statistics that all ranks take from rank 0 when a training begins."""
        return []

    def start_phase(self, phase: int) -> None:
        """Build the optimiser and the sampler of a phase."""

    def end_phase(self, loop: LoopView) -> bool:
        """End a phase; return whether the training ends with it."""
        return False

    def step(self, done: float, train_state: TrainState) -> OptimiserStep:
        """Take one optimiser step; `done` is the finished share of the phase."""
        raise NotImplementedError

    def validate(self, train_state: TrainState) -> Validation:
        """Measure the model on held-out data."""
        raise NotImplementedError

    def better(self, score: float, best: float) -> bool:
        """Return whether a score is better than the best so far."""
        return score < best

    def keep(self, train_state: TrainState) -> None:
        """Keep the current model as the best so far."""

    def finish(self, train_state: TrainState) -> None:
        """End the training."""

    def state(self) -> dict[str, Any]:
        """Return tensors and numbers from which the training can be resumed bitwise."""
        raise NotImplementedError

    def load(self, saved: dict[str, Any]) -> None:
        """Restore `state`; called after `start_phase`."""
        raise NotImplementedError

    def metrics(self, loop: LoopView, validation: Validation | None) -> dict[str, Any]:
        """Return the metrics of a step, including its validation if there was one; empty for no line."""
        if validation is None:
            return {}
        train_state = loop.state
        return {
            "phase": train_state.phase,
            "loss": float(loop.last.loss),
            "rate": loop.last.rate,
            "seconds": round(train_state.seconds, 3),
            "cpu_seconds": round(train_state.cpu_seconds, 3),
            "skipped": train_state.skipped,
            "rollout_score": validation.score,
            **validation.values,
        }

    def text(self, loop: LoopView, validation: Validation | None) -> str | None:
        """Return the text of the progress bar after a step; None for no change."""
        return None if validation is None else validation.text

    def closing_metrics(self, train_state: TrainState) -> dict[str, Any]:
        """Return figures for the last line of the metrics."""
        return {}


class GradientLearner(Learner):
    """A model that is trained by the gradient of a loss.

    Attributes:
        schedule: Learning rate over a phase.
        clip: Largest norm of a gradient.
    """

    schedule: Schedule = Schedule()
    clip: float = 1.0
    _optimiser: torch.optim.Optimizer
    _line_search = False
    _batch: Any

    def loss(self) -> Tensor:
        """Return the loss of the current batch; the elements of a vector are summed."""
        raise NotImplementedError

    def draw(self) -> None:
        """Draw the batch of the next step."""

    def after_step(self, step: OptimiserStep) -> None:
        """Called after each optimiser step."""

    def set_optimiser(self, optimiser: torch.optim.Optimizer, *, line_search: bool = False) -> None:
        """Set a fresh optimiser; the rates of its groups are the highest ones of the schedule."""
        self._optimiser, self._line_search = optimiser, line_search
        self._highest = [group["lr"] for group in optimiser.param_groups]

    def parameters(self) -> Iterable[Tensor]:
        """Return the parameters whose gradients count for the norm."""
        return [p for group in self._optimiser.param_groups for p in group["params"]]

    def batch_weight(self) -> Tensor | None:
        """Return the total weight of the batch's windows, in the shape of the loss; None if all weigh the same."""
        return None

    def gradients(self) -> list[Tensor]:
        """Return the gradients of the batch before clipping."""
        return [p.grad for p in self.parameters() if p.grad is not None]

    def zero_gradients(self) -> None:
        """Clear the gradients of the last step."""
        self._optimiser.zero_grad(set_to_none=True)

    def differentiate(self, share: Tensor | float = 1.0) -> Tensor:
        """Set the gradients of `share` times the loss of the batch; return the mean of that loss, shape []."""
        self.zero_gradients()
        loss = share * self.loss()
        loss.sum().backward()
        return loss.detach().mean()

    def clip_gradients(self) -> Tensor:
        """Clip the gradients to the norm `clip`; return the norm before."""
        return nn.utils.clip_grad_norm_(self.parameters(), self.clip)

    def step(self, done: float, train_state: TrainState) -> OptimiserStep:
        """Take one optimiser step with the mean gradient of all ranks, if it is finite."""
        rate = self._set_rates(done, train_state.step)
        self.draw()
        last = torch.tensor(float("nan"))

        def closure(share: Tensor | float = 1.0) -> Tensor:
            nonlocal last
            last = self.differentiate(share)
            return last

        taken, left_out = True, 0
        if self._line_search:
            self._optimiser.step(closure)  # pyright: ignore[reportCallIssue, reportArgumentType]  # takes tensors too
        else:
            closure(current_ranks().share(self.batch_weight))
            current_ranks().average([last, *self.gradients()])
            taken = self._clip_to_finite(last)
            if not taken:
                taken, left_out = self._leave_out_bad_windows(closure)
            if taken:
                self._optimiser.step()
        step = OptimiserStep(last, rate, taken, left_out)
        self.after_step(step)
        return step

    def windows(self) -> int:
        """Return the number of windows in the batch; 0 if it cannot be split."""
        return 0

    def keep_windows(self, rows: Tensor) -> None:
        """Replace the batch by some of its windows; their indices have shape [windows], int64."""
        raise NotImplementedError

    def report_breakdown(self, row: int) -> None:
        """Report a window on which the model breaks down."""

    def _leave_out_bad_windows(self, closure: Callable[..., Tensor]) -> tuple[bool, int]:
        """Leave out the windows whose gradients are not finite, and take the gradient of the others.

        Each rank finds them by bisection, largest parts first. After `_MOST_TRIALS` all parts not known to be finite
        are left out, so that the search ends early if nearly every window is bad.

        Returns:
            Whether the gradient is finite now, and the number of windows left out on all ranks.
        """
        count = self.windows()
        if count < 2:
            return False, 0
        whole = self._batch

        def finite(rows: Tensor) -> bool:
            self._batch = whole
            self.keep_windows(rows)
            return self._clip_to_finite(closure())

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
            self.report_breakdown(min(alone) if alone else int((~keep).int().argmax()))
        self._batch = whole
        if kept:
            self.keep_windows(keep.nonzero()[:, 0])
        own = [closure(current_ranks().share(lambda: self._weight_of(kept))), *self.gradients()]
        if not kept:  # only the other ranks have windows to learn from
            for tensor in own:
                tensor.zero_()
        current_ranks().average(own)
        return self._clip_to_finite(own[0]), int(left_out)

    def _clip_to_finite(self, loss: Tensor) -> bool:
        """Clip the gradients; return whether they and the loss are finite.

        The loss counts too, because the gradient of an absolute error that is NaN is 0.
        """
        return bool(torch.isfinite(self.clip_gradients()) & torch.isfinite(loss))

    def _weight_of(self, kept: int) -> Tensor:
        """Return the total weight of the batch, of which `kept` windows are left."""
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
    """A model trained on windows of a store; `_model` and `_sampler` are set when `start_phase` returns."""

    _model: Any  # a module
    _sampler: Any  # with draw, state_dict and load_state_dict
    _parameters: MemberParameters | None = None  # the optimiser's views, by member

    def draw(self) -> None:
        """Draw the next windows."""
        self._batch = self._sampler.draw()

    def shared_tensors(self) -> list[Tensor]:
        """Return weights and statistics of the model."""
        return list(self._model.state_dict().values())

    def gradients(self) -> list[Tensor]:
        """Return the gradients of the model; the optimiser may have views of them."""
        return [p.grad for p in self._model.parameters() if p.grad is not None]

    def zero_gradients(self) -> None:
        """Clear the gradients of the model."""
        self._model.zero_grad(set_to_none=True)

    def clip_gradients(self) -> Tensor:
        """Clip the gradient of each member."""
        return super().clip_gradients() if self._parameters is None else self._parameters.take_gradients(self.clip)

    def state(self) -> dict[str, Any]:
        """Return the states of model, optimiser and sampler."""
        return {
            "model": self._model.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "sampler": self._sampler.state_dict(),
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Restore `state`."""
        self._optimiser.load_state_dict(saved["optimiser"])
        self._sampler.load_state_dict(saved["sampler"])
        self._model.load_state_dict(saved["model"])
