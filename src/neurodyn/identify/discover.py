# SPDX-License-Identifier: Apache-2.0
"""Which quantities of a robot's dynamics need a network, and which inputs each needs, found from a log.

Every candidate quantity gets a network that sees every candidate input. All are trained together on multi-step
roll-outs, with a sparse-group lasso on the first layers whose strength kappa rises step by step from nothing. Of the
blueprints on that path the sparsest is taken whose held-out error, after a refit without penalty, is nearly the best.
From it every input that can go without harm is taken away, the weakest first: a penalty ranks inputs well,
but rarely stops at the right one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import torch
from torch import Tensor

from neurodyn.core.blueprint import Blueprint
from neurodyn.core.config import Config
from neurodyn.core.errors import InputError
from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import State
from neurodyn.dynamics.tangent import position_difference
from neurodyn.identify.candidates import default_candidates, require_single, scaled
from neurodyn.identify.sparsity import first_layers, shrink_, strengths
from neurodyn.learn.hybrid.windows import FitWindows


class DiscoverySettings(Config, frozen=True):
    """How augmentations are discovered.

    Attributes:
        hidden: Widths of the hidden layers of the candidate networks.
        horizon: Frames of the roll-outs that are compared with the log.
        windows: Most windows of the training episodes.
        held_out: Most windows of the validation episodes.
        kappas: Strengths of the penalty, rising; the path begins without any.
        steps: Optimiser steps at each strength; the first, without penalty, takes three times as many.
        rate: Learning rate.
        decay: lambda of the penalty lambda |weights|^2 on all layers but the first.
        refit: Optimiser steps of a refit without penalty.
        polish: Most iterations of L-BFGS on the blueprint that is taken; 0 for none.
        tolerance: Share of the improvement over no network at all that a sparser blueprint may give up.
        seed: Seed of the weights.
    """

    hidden: tuple[int, ...] = (8,)
    horizon: int = 10
    windows: int = 256
    held_out: int = 256
    kappas: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    steps: int = 200
    rate: float = 0.01
    decay: float = 1e-5
    refit: int = 600
    polish: int = 300
    tolerance: float = 0.02
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("horizon", "windows", "held_out", "steps", "refit"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; valid: at least 1")
        if not self.kappas or list(self.kappas) != sorted(self.kappas) or self.kappas[0] <= 0:
            raise ValueError(f"kappas is {list(self.kappas)}; valid: numbers above 0, rising")


Pair = tuple[str, str]
"""A quantity that a network acts on, and an input of that network."""


@dataclass(frozen=True)
class Candidate:
    """A blueprint on the path.

    Attributes:
        kappa: Strength of the penalty that left it over.
        pairs: What is left: (quantity, input), the strongest first.
        blueprint: The networks that are left, with these inputs alone.
        error: Held-out error after the refit, in spreads of the log.
        weights: Weights after the refit, shape [weights].
    """

    kappa: float
    pairs: tuple[Pair, ...]
    blueprint: Blueprint
    error: float
    weights: Tensor


@dataclass(frozen=True)
class Discovery:
    """What was found.

    Attributes:
        chosen: The blueprint that is taken.
        path: All blueprints on the path, from dense to sparse.
        bare: Held-out error without any network.
        ranking: Every candidate pair with the greatest strength at which it was still there, the most persistent first.
        dynamics: The model with the chosen blueprint, refitted.
    """

    chosen: Candidate
    path: tuple[Candidate, ...]
    bare: float
    ranking: tuple[tuple[str, str, float], ...]
    dynamics: HybridDynamics

    def summary(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "pairs": [{"quantity": q, "input": x} for q, x in self.chosen.pairs],
            "kappa": self.chosen.kappa,
            "held_out_error": self.chosen.error,
            "bare_error": self.bare,
            "path": [{"kappa": c.kappa, "pairs": len(c.pairs), "held_out_error": c.error} for c in self.path],
            "ranking": [{"quantity": q, "input": x, "survives": k} for q, x, k in self.ranking],
        }


Progress = Callable[[str], None]


def discover(
    dynamics: HybridDynamics,
    train: FitWindows,
    held_out: FitWindows,
    settings: DiscoverySettings | None = None,
    candidates: Blueprint | None = None,
    progress: Progress | None = None,
) -> Discovery:
    """Find the augmentations that data ask for.

    Args:
        dynamics: The model without networks; its free quantities keep their values.
        train: Windows to train on.
        held_out: Windows to choose by.
        settings: How to search.
        candidates: Networks to choose among, one quantity each; None for one on the torque of every joint with one
            degree of freedom, with all positions, velocities and controls as inputs.
        progress: Told about every point on the path.

    Raises:
        InputError: A candidate names what is not there, or a roll-out without networks is not finite.
    """
    settings = settings or DiscoverySettings()
    blueprint = candidates or default_candidates(dynamics, train, settings.hidden)
    blueprint = scaled(blueprint, train, dynamics)
    require_single(blueprint)
    bare = _Fit(dynamics, train, held_out, Blueprint(), settings)
    if not math.isfinite(bare.held_out_error()):
        raise InputError(
            "a roll-out without networks is not finite; identify the parameters first, or shorten `horizon`"
        )
    fit = _Fit(dynamics, train, held_out, blueprint, settings)
    fit.descend(3 * settings.steps, settings.rate)
    survived: dict[Pair, float] = {}
    found: dict[tuple[Pair, ...], Candidate] = {}
    for kappa in settings.kappas:
        fit.descend(settings.steps, settings.rate, kappa)
        pairs = fit.pairs()
        survived |= dict.fromkeys(pairs, kappa)
        key = tuple(sorted(pairs))
        if key in found:
            continue
        found[key] = _refitted(dynamics, train, held_out, blueprint, pairs, kappa, settings)
        if progress is not None:
            progress(f"kappa {kappa:g}: {len(pairs)} pairs, held-out error {found[key].error:.4g}")
        if not pairs:
            break
    path = tuple(found.values())
    least = min(candidate.error for candidate in path)
    without = bare.held_out_error()
    most = least + settings.tolerance * max(without - least, 0.0)
    chosen = min((c for c in path if c.error <= most), key=lambda c: len(c.pairs))
    for pair in reversed(chosen.pairs):
        pairs = tuple(other for other in chosen.pairs if other != pair)
        smaller = _refitted(dynamics, train, held_out, blueprint, pairs, chosen.kappa, settings)
        if smaller.error <= most:
            chosen = smaller
            if progress is not None:
                progress(f"without {pair[1]} -> {pair[0]}: held-out error {smaller.error:.4g}")
    chosen = _polished(dynamics, train, held_out, chosen, settings)
    everything = [(a.quantities[0], x) for a in blueprint.augmentations for x in a.inputs]
    ranking = sorted(((q, x, survived.get((q, x), 0.0)) for q, x in everything), key=lambda row: -row[2])
    model = _with_blueprint(dynamics, chosen.blueprint)
    with torch.no_grad():
        model.weights.copy_(chosen.weights)
    return Discovery(chosen, path, without, tuple(ranking), model)


def _refitted(
    dynamics: HybridDynamics,
    train: FitWindows,
    held_out: FitWindows,
    blueprint: Blueprint,
    pairs: tuple[Pair, ...],
    kappa: float,
    settings: DiscoverySettings,
) -> Candidate:
    """Train the networks of these pairs alone, without penalty."""
    fit = _Fit(dynamics, train, held_out, _restricted(blueprint, pairs), settings)
    fit.descend(settings.refit, settings.rate)
    return Candidate(kappa, pairs, fit.blueprint, fit.held_out_error(), fit.weights.detach())


def _polished(
    dynamics: HybridDynamics,
    train: FitWindows,
    held_out: FitWindows,
    candidate: Candidate,
    settings: DiscoverySettings,
) -> Candidate:
    """Train a blueprint to convergence; it is kept where the held-out error agrees."""
    if not candidate.pairs or not settings.polish:
        return candidate
    fit = _Fit(dynamics, train, held_out, candidate.blueprint, settings)
    with torch.no_grad():
        fit.weights.copy_(candidate.weights)
    fit.converge(settings.polish)
    error = fit.held_out_error()
    if not error < candidate.error:
        return candidate
    return replace(candidate, error=error, weights=fit.weights.detach())


class _Fit:
    """Networks of a blueprint, trained on multi-step roll-outs."""

    def __init__(
        self,
        dynamics: HybridDynamics,
        train: FitWindows,
        held_out: FitWindows,
        blueprint: Blueprint,
        settings: DiscoverySettings,
    ) -> None:
        self.blueprint, self._settings = blueprint, settings
        self._model = _with_blueprint(dynamics, blueprint, settings.seed)
        self._train, self._held_out = train, held_out
        self._layers = first_layers(blueprint)
        self.weights = self._model.weights.detach().clone()
        generator = torch.Generator().manual_seed(settings.seed)
        # A last layer of zeros would give the first ones no gradient, and the penalty would empty them meanwhile.
        noise = torch.rand(self.weights.shape, generator=generator, dtype=torch.float64) - 0.5
        self.weights = torch.where(self.weights == 0, 0.1 * noise, self.weights).requires_grad_(True)
        self._values = self._model.physical().detach()
        spread = torch.cat([_spread(position_changes(dynamics.spec, train)), _spread(train.qd - train.qd[:, :1])])
        self._scale = spread.clamp_min(1e-9)

    def descend(self, steps: int, rate: float, kappa: float = 0.0) -> None:
        """Take proximal Adam steps on the mean squared error of all training windows."""
        if not self.blueprint.augmentations:
            return
        optimiser = torch.optim.Adam([self.weights], lr=rate)
        for step in range(steps):
            for group in optimiser.param_groups:
                group["lr"] = rate * 0.5 * (1.0 + math.cos(math.pi * step / steps)) + 0.01 * rate
            optimiser.zero_grad()
            loss = self._error(self._train).square().mean() + self._settings.decay * self._later().square().sum()
            loss.backward()
            torch.nn.utils.clip_grad_norm_([self.weights], 1.0)
            optimiser.step()
            if kappa:
                shrink_(self.weights, self._layers, kappa * optimiser.param_groups[0]["lr"])

    def converge(self, iterations: int) -> None:
        """Take L-BFGS iterations on the same error, without penalty."""
        optimiser = torch.optim.LBFGS([self.weights], max_iter=iterations, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimiser.zero_grad()
            value = self._error(self._train).square().mean() + self._settings.decay * self._later().square().sum()
            value.backward()
            return value

        optimiser.step(loss)  # pyright: ignore[reportArgumentType]  # it wants a float, and takes what has one

    def held_out_error(self) -> float:
        """Return the root of the mean squared error on the held-out windows."""
        with torch.no_grad():
            return float(self._error(self._held_out).square().mean().sqrt())

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Return the pairs (quantity, input) that are left, the strongest first."""
        found = []
        listening = strengths(self.weights, self._layers)
        for augmentation, strength in zip(self.blueprint.augmentations, listening, strict=True):
            for name, size in zip(augmentation.inputs, strength.tolist(), strict=True):
                if size > 0:
                    found.append((size, (augmentation.quantities[0], name)))
        return tuple(pair for _, pair in sorted(found, key=lambda entry: -entry[0]))

    def _error(self, windows: FitWindows) -> Tensor:
        start = State(windows.q[:, 0], windows.qd[:, 0])
        path = self._model.simulate(start, windows.control, self._values, self.weights)
        positions = position_difference(self._model.spec, path.q[:, 1:], windows.q[:, 1:])
        return torch.cat([positions, path.qd[:, 1:] - windows.qd[:, 1:]], -1) / self._scale

    def _later(self) -> Tensor:
        mask = torch.ones_like(self.weights, dtype=torch.bool)
        for layer in self._layers:
            layer.of(mask).fill_(False)
        return self.weights[mask]


def position_changes(spec: StateSpec, windows: FitWindows) -> Tensor:
    """Return positions less those at the start of the window, shape [W, T + 1, nv]."""
    return position_difference(spec, windows.q, windows.q[:, :1].expand_as(windows.q))


def _spread(changes: Tensor) -> Tensor:
    return changes.square().mean((0, 1)).sqrt()


def _with_blueprint(dynamics: HybridDynamics, blueprint: Blueprint, seed: int = 0) -> HybridDynamics:
    config = msgspec.structs.replace(dynamics.config, blueprint=blueprint)
    model = HybridDynamics(
        dynamics.spec, dynamics.mechanism, config, dynamics.physical.specs, dynamics.fingerprint, dynamics.scene,
        declaration=dynamics.declaration, seed=seed,
    )  # fmt: skip
    model.physical.load_state_dict(dynamics.physical.state_dict())
    return model


def _restricted(blueprint: Blueprint, pairs: Sequence[tuple[str, str]]) -> Blueprint:
    """Return the networks with the inputs of these pairs alone."""
    kept = []
    for augmentation in blueprint.augmentations:
        rows = [i for i, name in enumerate(augmentation.inputs) if (augmentation.quantities[0], name) in pairs]
        if rows:
            kept.append(
                msgspec.structs.replace(
                    augmentation,
                    inputs=tuple(augmentation.inputs[i] for i in rows),
                    input_scale=tuple(augmentation.input_scale[i] for i in rows),
                )
            )
    return Blueprint(tuple(kept))
