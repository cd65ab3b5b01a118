# SPDX-License-Identifier: Apache-2.0
"""The second stage of an identification: the networks of a blueprint, and the parameters with them.

Gradients of roll-outs over batches of windows come from the compiled adjoint. What is minimised is the error of the
roll-outs plus R |weights|^2 (NeuralSim, arXiv 2011.04217); what is kept is the model with the least error on windows of
the validation split. In steps mode everything depends on the seed alone, resumed or not.
"""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neurodyn.core import artifacts
from neurodyn.core.blueprint import Blueprint
from neurodyn.core.seeds import derive_seed
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import State, Trajectory
from neurodyn.dynamics.recorded_environment import RecordedEnvironments
from neurodyn.dynamics.tangent import position_difference
from neurodyn.learn.hybrid.finite import require_finite_path
from neurodyn.learn.hybrid.settings import NetworkSettings
from neurodyn.learn.hybrid.windows import FitWindows
from neurodyn.learn.metrics import MetricsLog, Progress

SAVE_SECONDS = 30.0
_STATE = "networks"


@dataclass
class Standing:
    """Where a training stands.

    Attributes:
        step: Optimiser steps.
        seconds: Wall time so far [s].
        best: Least validation error.
        waited: Validations since then.
        measured: Validations so far.
        skipped: Steps left out because their gradient was not finite.
        over: Whether it ended, by its budget or its patience.
    """

    step: int = 0
    seconds: float = 0.0
    best: float = math.inf
    waited: int = 0
    measured: int = 0
    skipped: int = 0
    over: bool = False


@dataclass(frozen=True)
class Task:
    """What networks are trained on.

    Attributes:
        train: Windows that begin in states from which a forecast may start.
        held_out: The same of the validation split.
        scale: What errors of each channel are divided by, shape [2 nv]; infinite for channels that do not count.
        environment: Where the windows took place.
    """

    train: FitWindows
    held_out: FitWindows
    scale: Tensor
    environments: RecordedEnvironments


class Augmenter:
    """Trains the weights (and the free quantities) of a hybrid model in place, and keeps the best in `run`."""

    def __init__(
        self,
        run: Path,
        model: HybridDynamics,
        task: Task,
        settings: NetworkSettings,
        *,
        seed: int,
        minutes: float | None,
        save: Callable[[HybridDynamics], None],
    ) -> None:
        """Begin.

        Args:
            run: Run directory; its state is written every half minute and at the end.
            model: The model.
            task: What it is trained on.
            settings: How it is trained.
            seed: Seed of the batches.
            minutes: Time budget [min]; None to train for the settings' steps.
            save: Keeps the model as the best so far.
        """
        self._run, self._model, self._task, self._settings = run, model, task, settings
        self._minutes, self._save_model = minutes, save
        self._leaves = [nn.Parameter(part.clone()) for part in split_weights(model.config.blueprint, model.weights)]
        self._raw = nn.Parameter(model.physical.raw.detach().clone())
        self._optimiser = self._build()
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "network batches"))
        self.at = Standing()
        self._best = (self._raw.detach().clone(), self._flat().detach().clone())

    def resume(self) -> None:
        """Go on from the run's state."""
        saved = artifacts.read_tree(self._run / "state", _STATE)
        self.at = Standing(**{**saved["standing"], "best": float(saved["standing"]["best"])})
        with torch.no_grad():
            self._raw.copy_(saved["raw"])
            for leaf, part in zip(self._leaves, saved["leaves"], strict=True):
                leaf.copy_(part)
        self._optimiser.load_state_dict(saved["optimiser"])
        self._generator.set_state(saved["generator"])
        self._best = (saved["best_raw"], saved["best_weights"])

    def run(self, metrics: MetricsLog, first_step: int, progress: Progress | None = None) -> Standing:
        """Train to the end of the budget, or of the patience; the model is left as it was at its best."""
        if self.at.step == 0 and not self.at.over:
            self._validate(metrics, first_step, math.nan, progress)
        wall = saved = time.perf_counter()
        loss = math.nan
        while not self.at.over:
            self._set_rates(self._done())
            loss = self._descend()
            now = time.perf_counter()
            self.at.seconds, wall = self.at.seconds + now - wall, now
            if self._done() * self._settings.validations >= self.at.measured:
                self._validate(metrics, first_step, loss, progress)
            self.at.over = self._done() >= 1.0 or self.at.waited >= self._settings.patience
            if now - saved > SAVE_SECONDS or self.at.over:
                self._write()
                saved = now
        with torch.no_grad():
            self._model.physical.raw.copy_(self._best[0])
            self._model.weights.copy_(self._best[1])
        return self.at

    def _build(self) -> torch.optim.Optimizer:
        settings = self._settings
        moving = [self._raw] if settings.parameter_rate and self._raw.numel() else []
        groups: list[dict[str, Any]] = [{"params": self._leaves, "lr": settings.rate}]
        if moving:
            groups.append({"params": moving, "lr": settings.parameter_rate})
        if settings.optimiser == "lbfgs":
            return torch.optim.LBFGS(
                [*self._leaves, *moving], lr=1.0, max_iter=10, history_size=20, line_search_fn="strong_wolfe"
            )
        if settings.optimiser == "soap":
            from pytorch_optimizer import SOAP

            return SOAP(groups, lr=settings.rate, weight_decay=0.0, precondition_frequency=10)
        return torch.optim.Adam(groups)

    def _done(self) -> float:
        if self._minutes is None:
            return self.at.step / self._settings.steps
        return self.at.seconds / (60.0 * self._minutes)

    def _set_rates(self, done: float) -> None:
        if self._settings.optimiser == "lbfgs":
            return
        fall = 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))
        rise = min(1.0, (self.at.step + 1) / 20)
        rates = (self._settings.rate, self._settings.parameter_rate)
        for group, rate in zip(self._optimiser.param_groups, rates, strict=False):
            group["lr"] = rate * rise * (0.01 + 0.99 * fall)

    def _descend(self) -> float:
        windows = self._batch()
        last = math.nan

        def closure() -> float:
            nonlocal last
            self._optimiser.zero_grad(set_to_none=True)
            weights = self._flat()
            path = roll_out(self._model, windows, self._task.environments, self._raw, weights)
            errors = scaled_errors(self._model, path, windows, self._task.scale)
            size = errors.abs() if self._settings.loss == "absolute" else errors.square()
            loss = size.mean() + self._settings.regularisation * weights.square().sum()
            loss.backward()
            last = float(loss.detach())
            return last

        if self._settings.optimiser == "lbfgs":
            self._optimiser.step(closure)
        else:
            closure()
            norm = nn.utils.clip_grad_norm_([*self._leaves, self._raw], self._settings.clip)
            if bool(torch.isfinite(norm)):
                self._optimiser.step()
            else:
                self.at.skipped += 1
        self.at.step += 1
        return last

    def _batch(self) -> FitWindows:
        count = min(self._settings.batch, self._task.train.count)
        if self._settings.optimiser == "lbfgs":  # its curvature is that of one and the same function
            return self._task.train.rows(torch.linspace(0, self._task.train.count - 1, count).round().long())
        return self._task.train.rows(torch.randint(self._task.train.count, (count,), generator=self._generator))

    def _flat(self) -> Tensor:
        return torch.cat([leaf.flatten() for leaf in self._leaves])

    @torch.no_grad()
    def _validate(self, metrics: MetricsLog, first_step: int, loss: float, progress: Progress | None) -> None:
        at, windows = self.at, self._task.held_out
        path = roll_out(self._model, windows, self._task.environments, self._raw, self._flat())
        if at.step == 0:
            require_finite_path(path, self._model.spec, windows)
        error = float(scaled_errors(self._model, path, windows, self._task.scale).abs().mean())
        at.measured += 1
        at.waited += 1
        if error < at.best:
            at.best, at.waited = error, 0
            self._best = (self._raw.detach().clone(), self._flat().detach().clone())
            self._model.physical.raw.copy_(self._best[0])
            self._model.weights.copy_(self._best[1])
            self._save_model(self._model)
        metrics.write(
            first_step + at.step, stage="networks", loss=loss, held_out=error, best=at.best, seconds=at.seconds,
            skipped=at.skipped,
        )  # fmt: skip
        if progress is not None:
            progress.update(min(1.0, self._done()), f"networks, held-out error {error:.3g} (best {at.best:.3g})")

    def _write(self) -> None:
        tree = {
            "standing": {**asdict(self.at), "best": str(self.at.best)},
            "raw": self._raw.detach(),
            "leaves": [leaf.detach() for leaf in self._leaves],
            "optimiser": self._optimiser.state_dict(),
            "generator": self._generator.get_state(),
            "best_raw": self._best[0],
            "best_weights": self._best[1],
        }
        artifacts.write_tree(self._run / "state", _STATE, tree)


def has_networks(run: Path) -> bool:
    """Return whether a run directory holds the state of this stage."""
    return (run / "state" / f"{_STATE}.json").is_file()


def roll_out(
    model: HybridDynamics, windows: FitWindows, environments: RecordedEnvironments, raw: Tensor, weights: Tensor
) -> Trajectory:
    """Forecast windows from their first states; differentiable by `raw` and `weights`."""
    state = State(windows.q[:, 0], windows.qd[:, 0])
    where = environments.at(windows.ground)
    return model.simulate(state, windows.control, model.physical(raw), weights, where)


def scaled_errors(model: HybridDynamics, path: Trajectory, windows: FitWindows, scale: Tensor) -> Tensor:
    """Return errors of positions and velocities over their scales, shape [W, T, 2 nv]."""
    q = position_difference(model.spec, path.q[:, 1:], windows.q[:, 1:])
    return torch.cat([q, path.qd[:, 1:] - windows.qd[:, 1:]], -1) / scale


def split_weights(blueprint: Blueprint, weights: Tensor) -> list[Tensor]:
    """Return the matrices and biases of all networks, in their order, as views."""
    parts, first = [], 0
    for augmentation in blueprint.augmentations:
        for before, after in pairwise(augmentation.widths):
            parts.append(weights.detach()[first : first + after * before].view(after, before))
            first += after * before
            parts.append(weights.detach()[first : first + after])
            first += after
    return parts
