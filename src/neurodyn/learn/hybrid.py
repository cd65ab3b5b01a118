# SPDX-License-Identifier: Apache-2.0
"""Training of the networks of hybrid dynamics, the second stage of an identification."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from neurodyn.core.config import Config, require_numbers
from neurodyn.core.description.blueprint import Blueprint
from neurodyn.core.seeds import derive_seed
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import RecordedEnvironments, Trajectory
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.rollout_errors import Ranking
from neurodyn.dynamics.rollouts import context_of, require_finite_path
from neurodyn.learn.budget import TrainState
from neurodyn.learn.learner import GradientLearner, LoopView, Validation
from neurodyn.learn.optimiser import OPTIMISERS, Groups, Schedule, build_optimiser


class NetworkTrainingSettings(Config, frozen=True):
    """Settings of the training of a blueprint's networks, together with the parameters.

    Attributes:
        optimiser: "adam", "soap", "lbfgs" (on the same batch throughout), or another one of
            `learn.optimiser.OPTIMISERS`.
        rate: Highest learning rate of the weights; it falls to 1 % of that along half a cosine.
        parameter_rate: Highest learning rate of the free quantities, in their unbounded coordinates; 0 keeps them
            fixed.
        batch: Windows in a batch.
        windows: Largest number of windows to draw batches from, spread evenly over all possible ones.
        loss: "absolute" or "squared" error of a roll-out, by channel over its scale.
        regularisation: R in the penalty R |weights|^2.
        clip: Largest norm of a gradient.
        validations: Number of validations by the roll-out error on the validation split.
        patience: Validations without improvement after which the training ends; the best model is kept.
        steps: Optimiser steps, without a time budget.
        moving: Whether to train only on windows with motion, if the parameters were fitted to such windows. Networks
            may then be worse at rest, which they have not seen.
    """

    optimiser: str = "adam"
    rate: float = 3e-3
    parameter_rate: float = 1e-3
    batch: int = 128
    windows: int = 20_000
    loss: Literal["absolute", "squared"] = "absolute"
    regularisation: float = 1e-5
    clip: float = 1.0
    validations: int = 40
    patience: int = 12
    steps: int = 2000
    moving: bool = False

    budget_fields: ClassVar[tuple[str, ...]] = ("steps", "validations")

    def __post_init__(self) -> None:
        OPTIMISERS.require(self.optimiser)
        require_numbers(self, above=("rate", "clip", "batch", "windows", "validations", "patience", "steps"))


NETWORK_STATE = "networks"
"""Name of this stage's checkpoint."""


@dataclass(frozen=True)
class NetworkWindows:
    """Data of the training of networks.

    Attributes:
        train: Windows of the training split, with valid initial states of a forecast.
        held_out: Windows of the validation split.
        scale: Divisor of the errors of positions and velocities, shape [2 nv]; infinite to ignore a coordinate.
        environments: Environments of the windows.
    """

    train: Windows
    held_out: Windows
    scale: Tensor
    environments: RecordedEnvironments


class NetworkLearner(GradientLearner):
    """Trains the weights and the free quantities of a hybrid model; ends with the best ones."""

    schedule = Schedule(warmup_steps=20, final=0.01)

    def __init__(
        self,
        model: HybridDynamics,
        windows: NetworkWindows,
        settings: NetworkTrainingSettings,
        *,
        seed: int,
        save: Callable[[HybridDynamics], None] | None = None,
    ) -> None:
        """Prepare a training; `seed` is that of the batches, and `save`, if any, keeps the model as the best so far."""
        self._model, self._windows, self.settings, self._save = model, windows, settings, save
        self.clip = settings.clip
        self._leaves = [nn.Parameter(part.clone()) for part in split_weights(model.config.blueprint, model.weights)]
        self._raw = nn.Parameter(model.physical.raw.detach().clone())
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "network batches"))
        self._best = (self._raw.detach().clone(), self._flat().detach().clone())

    def start_phase(self, phase: int) -> None:
        """Build the optimiser."""
        settings = self.settings
        groups: Groups = [{"params": self._leaves, "lr": settings.rate}]
        if settings.parameter_rate and self._raw.numel():
            groups.append({"params": [self._raw], "lr": settings.parameter_rate})
        name = settings.optimiser
        self.set_optimiser(build_optimiser(name, groups), line_search=OPTIMISERS[name].line_search)

    def draw(self) -> None:
        """Draw windows; a line search gets the same ones each time, because it estimates the curvature of one loss."""
        train = self._windows.train
        count = min(self.settings.batch, train.count)
        if self._line_search:
            self._batch = train.rows(torch.linspace(0, train.count - 1, count).round().long())
        else:
            self._batch = train.rows(torch.randint(train.count, (count,), generator=self._generator))

    def windows(self) -> int:
        """Return the number of windows in the batch."""
        return self._batch.count

    def keep_windows(self, rows: Tensor) -> None:
        """Replace the batch by some of its windows."""
        self._batch = self._batch.rows(rows)

    def loss(self) -> Tensor:
        """Return the error of the roll-outs plus the penalty."""
        weights = self._flat()
        errors = self._errors(self._roll_out(self._batch, weights), self._batch)
        size = errors.abs() if self.settings.loss == "absolute" else errors.square()
        return size.mean() + self.settings.regularisation * weights.square().sum()

    @torch.no_grad()
    def validate(self, train_state: TrainState) -> Validation:
        """Roll out along held-out windows; before the first step a roll-out that is not finite is an InputError."""
        windows = self._windows.held_out
        path = self._roll_out(windows, self._flat())
        if train_state.step == 0:
            require_finite_path(path, self._model.spec, windows)
        ranking = Ranking.of(self._errors(path, windows).abs().mean((1, 2)))
        best = "" if train_state.best is None else f" (best {train_state.best:.3g})"
        return Validation.of_ranking(ranking, {}, f"networks, held-out error {ranking.error:.3g}{best}")

    def keep(self, train_state: TrainState) -> None:
        """Write the model to the run directory."""
        self._best = (self._raw.detach().clone(), self._flat().detach().clone())
        self._take_best()
        if self._save is not None:
            self._save(self._model)

    def finish(self, train_state: TrainState) -> None:
        """Set the model to its best weights and quantities."""
        self._take_best()

    def metrics(self, loop: LoopView, validation: Validation | None) -> dict[str, Any]:
        """Return the metrics of a validation."""
        train_state = loop.state
        if validation is None:
            return {}
        return {
            "stage": "networks", "loss": float(loop.last.loss), "held_out": validation.score, "best": train_state.best,
            **validation.values, "seconds": train_state.seconds, "skipped": train_state.skipped,
        }  # fmt: skip

    def state(self) -> dict[str, Any]:
        """Return weights and parameters, now and at their best, and the states of optimiser and batches."""
        return {
            "raw": self._raw.detach(),
            "leaves": [leaf.detach() for leaf in self._leaves],
            "optimiser": self._optimiser.state_dict(),
            "generator": self._generator.get_state(),
            "best_raw": self._best[0],
            "best_weights": self._best[1],
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Restore `state`."""
        with torch.no_grad():
            self._raw.copy_(saved["raw"])
            for leaf, part in zip(self._leaves, saved["leaves"], strict=True):
                leaf.copy_(part)
        self._optimiser.load_state_dict(saved["optimiser"])
        self._generator.set_state(saved["generator"])
        self._best = (saved["best_raw"], saved["best_weights"])

    @torch.no_grad()
    def _take_best(self) -> None:
        self._model.physical.raw.copy_(self._best[0])
        self._model.weights.copy_(self._best[1])

    def _flat(self) -> Tensor:
        return torch.cat([leaf.flatten() for leaf in self._leaves])

    def _roll_out(self, windows: Windows, weights: Tensor) -> Trajectory:
        """Forecast windows from their first states; differentiable in parameters and weights."""
        environment = self._windows.environments.at(windows.ground)
        return self._model.simulate(
            context_of(windows), windows.commands, self._model.physical(self._raw), weights, environment
        )

    def _errors(self, path: Trajectory, windows: Windows) -> Tensor:
        """Return scaled errors of positions and velocities, shape [W, T, 2 nv]."""
        q = position_difference(self._model.spec, path.q[:, 1:], windows.q[:, 1:])
        return torch.cat([q, path.qd[:, 1:] - windows.qd[:, 1:]], -1) / self._windows.scale


def split_weights(blueprint: Blueprint, weights: Tensor) -> list[Tensor]:
    """Return the matrices and biases of all networks of a blueprint, as views of the flat weights."""
    parts, first = [], 0
    for augmentation in blueprint.owners:
        for before, after in pairwise(augmentation.widths):
            parts.append(weights.detach()[first : first + after * before].view(after, before))
            first += after * before
            parts.append(weights.detach()[first : first + after])
            first += after
    return parts
