# SPDX-License-Identifier: Apache-2.0
"""Discovery of missing effects: which quantities need a network, and which inputs, by a sparse-group lasso."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import torch
from torch import Tensor

from neurodyn.core.config import Config, require_numbers
from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.core.progress import present_work, stage, tell, tracked
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.learn.budget import TrainingBudget
from neurodyn.learn.learner import GradientLearner, LoopView, OptimiserStep, Validation
from neurodyn.learn.loop import Callback, TrainingLoop
from neurodyn.learn.manifest import RunRecord
from neurodyn.learn.optimiser import Groups, Schedule, build_optimiser
from neurodyn.multibody.articulated import Tree


def default_candidates(dynamics: HybridDynamics, windows: Windows, hidden: tuple[int, ...]) -> Blueprint:
    """Return a network on the torque of each scalar joint, with all motions and controls as inputs."""
    spec = dynamics.spec
    single = [joint for joint in spec.joints if joint.scalar]
    inputs: list[str] = []
    for joint in single:
        inputs += [f"sin(q.{joint.name})", f"cos(q.{joint.name})"] if joint.continuous else [f"q.{joint.name}"]
    inputs += [f"qd.{name}" for name in spec.qd_names]
    inputs += [f"control.{name}" for name in spec.controls]
    sizes = torque_sizes(dynamics.mechanism, spec, windows)
    return Blueprint(
        tuple(
            Augmentation((f"torque.{joint.name}",), tuple(inputs), hidden=hidden, output_scale=(sizes[joint.name],))
            for joint in single
        )
    )


def torque_sizes(mechanism: Mechanism, spec: StateSpec, windows: Windows) -> dict[str, float]:
    """Return the typical torque of each velocity coordinate in the log: inertia times acceleration."""
    nominal = mechanism.quantities()
    tree = Tree(mechanism, nominal.__getitem__)
    q = windows.q[0, 0].tolist()
    still = [0.0] * spec.nv
    rest = tree.accelerations(tree.motions(q, still), q, still)
    change = (windows.qd[:, 1:] - windows.qd[:, :-1]) / spec.dt
    std = change.square().mean((0, 1)).sqrt().tolist()
    sizes = {}
    for dof, name in enumerate(spec.qd_names):
        unit = [float(i == dof) for i in range(spec.nv)]
        driven = tree.accelerations(tree.motions(q, still), q, unit)
        sizes[name] = max(std[dof] / abs(driven[dof] - rest[dof]), 1e-6)
    return sizes


def scale_inputs(blueprint: Blueprint, windows: Windows, dynamics: HybridDynamics) -> Blueprint:
    """Return networks whose inputs are divided by their root mean square in the log, unless a scale is given."""
    spec = dynamics.spec
    values = {f"q.{name}": windows.q[..., i] for i, name in enumerate(spec.q_names)}
    values |= {f"qd.{name}": windows.qd[..., i] for i, name in enumerate(spec.qd_names)}
    values |= {f"control.{name}": windows.control[..., i] for i, name in enumerate(spec.controls)}
    sizes = {name: max(float(value.square().mean().sqrt()), 1e-6) for name, value in values.items()}
    return Blueprint(
        tuple(
            msgspec.structs.replace(a, input_scale=a.input_scale or tuple(sizes.get(x, 1.0) for x in a.inputs))
            for a in blueprint.augmentations
        )
    )


def require_single(blueprint: Blueprint) -> None:
    """Check that inputs can be selected for each quantity.

    Raises:
        InputError: A network acts on several quantities, or has no hidden layer.
    """
    for augmentation in blueprint.augmentations:
        if len(augmentation.quantities) > 1 or not augmentation.hidden:
            raise InputError(
                f"candidates: the network of {', '.join(augmentation.quantities)} acts on several quantities or has no "
                "hidden layer; valid: one quantity for each, and a hidden layer, so that inputs can be told apart"
            )


@dataclass(frozen=True)
class FirstLayer:
    """Location of the first layer of one network in the weight vector.

    Attributes:
        index: Index of the augmentation.
        inputs: Number of inputs.
        units: Number of units of the first hidden layer.
        start: Index of the first weight of the matrix [units, inputs].
    """

    index: int
    inputs: int
    units: int
    start: int

    def of(self, weights: Tensor) -> Tensor:
        """Return the matrix as a view, shape [units, inputs]."""
        return weights[self.start : self.start + self.units * self.inputs].view(self.units, self.inputs)


def first_layers(blueprint: Blueprint) -> tuple[FirstLayer, ...]:
    """Return the first layer of every network."""
    layers, start = [], 0
    for index, augmentation in enumerate(blueprint.augmentations):
        inputs, units, *_ = augmentation.widths
        layers.append(FirstLayer(index, inputs, units, start))
        start += augmentation.weights
    return tuple(layers)


@torch.no_grad()
def shrink_(weights: Tensor, layers: tuple[FirstLayer, ...], kappa: float, group: float = 0.5) -> None:
    r"""Take the proximal step of the sparse-group lasso in place, with `kappa` times the step size and group share g.

    $$\kappa \left((1 - g) |W|_1 + g \sum_j \sqrt{units}\,|W_j|_2\right)$$

    Soft thresholds by element, then by column (Simon, Friedman, Hastie and Tibshirani 2013, "A sparse-group lasso",
    equation 12).
    """
    for layer in layers:
        matrix = layer.of(weights)
        soft = torch.sign(matrix) * (matrix.abs() - kappa * (1.0 - group)).clamp_min(0.0)
        norm = soft.norm(dim=0, keepdim=True)
        keep = (1.0 - kappa * group * layer.units**0.5 / norm.clamp_min(1e-300)).clamp_min(0.0)
        matrix.copy_(soft * keep)


def strengths(weights: Tensor, layers: tuple[FirstLayer, ...]) -> list[Tensor]:
    """Return the norm of the first-layer weights of each input, shape [inputs] for each network."""
    return [layer.of(weights.detach()).norm(dim=0) for layer in layers]


class DiscoverySettings(Config, frozen=True):
    """Settings of a discovery.

    Attributes:
        hidden: Widths of the hidden layers of the candidate networks.
        horizon: Frames of the roll-outs.
        windows: Maximum number of training windows.
        held_out: Maximum number of validation windows.
        kappas: Penalty strengths in ascending order; the path starts without a penalty.
        steps: Optimiser steps at each strength; three times as many without a penalty.
        rate: Learning rate.
        decay: Factor lambda of the penalty lambda |weights|^2 on all layers but the first.
        refit: Optimiser steps of a refit without penalty.
        polish: Maximum number of L-BFGS iterations on the chosen blueprint; 0 for none.
        tolerance: Share of the improvement over no network that may be given up for a sparser blueprint.
        seed: Seed of the weights.
    """

    budget_fields: ClassVar[tuple[str, ...]] = ("steps", "refit", "polish")

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
        require_numbers(self, above=("hidden", "rate", "horizon", "windows", "held_out", "steps", "refit"))
        if not self.kappas or list(self.kappas) != sorted(self.kappas) or self.kappas[0] <= 0:
            raise ValueError(f"kappas is {list(self.kappas)}; valid: numbers above 0, rising")


Pair = tuple[str, str]
"""A quantity that a network acts on, and an input of that network."""


@dataclass(frozen=True)
class Candidate:
    """A blueprint on the regularisation path.

    Attributes:
        kappa: Penalty strength that selected it.
        pairs: Remaining (quantity, input) pairs, strongest first.
        blueprint: Networks with these inputs alone.
        error: Held-out error after the refit, in standard deviations of the log.
        weights: Weights after the refit, shape [weights].
    """

    kappa: float
    pairs: tuple[Pair, ...]
    blueprint: Blueprint
    error: float
    weights: Tensor


@dataclass(frozen=True)
class Discovery:
    """Result of a discovery.

    Attributes:
        chosen: The chosen blueprint.
        path: All blueprints on the path, from dense to sparse.
        error_without_networks: Held-out error without any network.
        ranking: Every candidate pair with the largest strength that it survived, in descending order.
        dynamics: The model with the chosen blueprint, refitted.
    """

    chosen: Candidate
    path: tuple[Candidate, ...]
    error_without_networks: float
    ranking: tuple[tuple[str, str, float], ...]
    dynamics: HybridDynamics

    def summary(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "pairs": [{"quantity": q, "input": x} for q, x in self.chosen.pairs],
            "kappa": self.chosen.kappa,
            "held_out_error": self.chosen.error,
            "bare_error": self.error_without_networks,
            "path": [{"kappa": c.kappa, "pairs": len(c.pairs), "held_out_error": c.error} for c in self.path],
            "ranking": [{"quantity": q, "input": x, "survives": k} for q, x, k in self.ranking],
        }


def discover(
    dynamics: HybridDynamics,
    train: Windows,
    held_out: Windows,
    settings: DiscoverySettings | None = None,
    candidates: Blueprint | None = None,
    *,
    run: Path | None = None,
    record: RunRecord[Any] | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Discovery:
    """Find augmentations that explain the residuals of a model on a log.

    Args:
        dynamics: Model without networks; its free quantities keep their values.
        train: Training windows.
        held_out: Windows for the choice.
        settings: Settings.
        candidates: Candidate networks, one quantity each; None for `default_candidates`.
        run: Run directory for checkpoints and metrics; None to write none.
        record: Content of the run's config.yaml.
        resume: Whether to continue from the run's checkpoint.
        callbacks: Called during the joint training of all candidates.

    Raises:
        InputError: A candidate names an unknown quantity or input, a roll-out without networks is not finite, or the
            run
            cannot be resumed.
    """
    settings = settings or DiscoverySettings()
    blueprint = candidates or default_candidates(dynamics, train, settings.hidden)
    blueprint = scale_inputs(blueprint, train, dynamics)
    require_single(blueprint)
    problem = _DiscoveryProblem(dynamics, train, held_out, settings)
    error_without_networks = _DiscoveryNetworks(problem, Blueprint()).held_out_error()
    if not math.isfinite(error_without_networks):
        raise InputError(
            "a roll-out without networks is not finite; identify the parameters first, or shorten `horizon`"
        )
    search = _Search(problem, blueprint)
    steps, points = settings.steps, len(settings.kappas)
    budget = TrainingBudget((3 + points) * steps, shares=(3.0,) + points * (1.0,))
    with stage(0.0, 0.85):
        loop = TrainingLoop(search, budget, run, record=record, callbacks=callbacks, progress=present_work())
        if resume:
            loop.resume()
        loop.run()
    least = min(candidate.error for candidate in search.path)
    most = least + settings.tolerance * max(error_without_networks - least, 0.0)
    chosen = min((c for c in search.path if c.error <= most), key=lambda c: len(c.pairs))
    with stage(0.85, 0.95, "leaving out pairs"):
        for pair in tracked(chosen.pairs[::-1]):
            pairs = tuple(other for other in chosen.pairs if other != pair)
            smaller = search.refit(pairs, chosen.kappa)
            loop.save()
            if smaller.error <= most:
                chosen = smaller
                tell(1.0, f"without {pair[1]} -> {pair[0]}: held-out error {smaller.error:.4g}")
    with stage(0.95, 1.0, "last training"):
        chosen = _polish(problem, chosen)
    everything = [(a.quantities[0], x) for a in blueprint.augmentations for x in a.inputs]
    ranking = sorted(((q, x, search.survived.get((q, x), 0.0)) for q, x in everything), key=lambda row: -row[2])
    model = _with_blueprint(dynamics, chosen.blueprint)
    with torch.no_grad():
        model.weights.copy_(chosen.weights)
    return Discovery(chosen, tuple(search.path), error_without_networks, tuple(ranking), model)


@dataclass(frozen=True)
class _DiscoveryProblem:
    """Data and settings that all blueprints share."""

    dynamics: HybridDynamics
    train: Windows
    held_out: Windows
    settings: DiscoverySettings


class _DiscoveryNetworks(GradientLearner):
    """Networks of a blueprint, trained on roll-outs over all training windows at once."""

    schedule = Schedule(offset=0.01)

    def __init__(self, problem: _DiscoveryProblem, blueprint: Blueprint, *, polish: int | None = None) -> None:
        """Prepare a training with Adam, or with `polish` iterations of L-BFGS."""
        self.blueprint, self._problem, self._polish = blueprint, problem, polish
        settings, train = problem.settings, problem.train
        self._model = _with_blueprint(problem.dynamics, blueprint, settings.seed)
        self._layers = first_layers(blueprint)
        self.weights = self._model.weights.detach().clone()
        generator = torch.Generator().manual_seed(settings.seed)
        # With a last layer of zeros, the first layers get no gradient, and the penalty would shrink them to zero.
        noise = torch.rand(self.weights.shape, generator=generator, dtype=torch.float64) - 0.5
        self.weights = torch.where(self.weights == 0, 0.1 * noise, self.weights).requires_grad_(True)
        self._values = self._model.physical().detach()
        moved = position_difference(problem.dynamics.spec, train.q, train.q[:, :1].expand_as(train.q))
        changes = moved, train.qd - train.qd[:, :1]
        self._scale = torch.cat([change.square().mean((0, 1)).sqrt() for change in changes]).clamp_min(1e-9)

    def train(self, steps: int) -> None:
        """Train without a penalty."""
        if self.blueprint.augmentations:
            TrainingLoop(self, TrainingBudget(steps)).run()

    def start_phase(self, phase: int) -> None:
        groups: Groups = [{"params": [self.weights], "lr": self._problem.settings.rate}]
        if self._polish is None:
            self.set_optimiser(build_optimiser("adam", groups))
        else:
            polisher = build_optimiser("lbfgs", groups, iterations=self._polish, history=100)
            self.set_optimiser(polisher, line_search=True)

    def loss(self) -> Tensor:
        """Return the mean squared error on all training windows plus the decay of all layers but the first."""
        later = torch.ones_like(self.weights, dtype=torch.bool)
        for layer in self._layers:
            layer.of(later).fill_(False)
        decay = self._problem.settings.decay * self.weights[later].square().sum()
        return self._error(self._problem.train).square().mean() + decay

    def held_out_error(self) -> float:
        """Return the root of the mean squared error on the held-out windows."""
        with torch.no_grad():
            return float(self._error(self._problem.held_out).square().mean().sqrt())

    def state(self) -> dict[str, Any]:
        return {"weights": self.weights.detach(), "optimiser": self._optimiser.state_dict()}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore `state`."""
        with torch.no_grad():
            self.weights.copy_(saved["weights"])
        self._optimiser.load_state_dict(saved["optimiser"])

    def _error(self, windows: Windows) -> Tensor:
        start = State(windows.q[:, 0], windows.qd[:, 0])
        path = self._model.simulate(start, windows.control, self._values, self.weights)
        positions = position_difference(self._model.spec, path.q[:, 1:], windows.q[:, 1:])
        return torch.cat([positions, path.qd[:, 1:] - windows.qd[:, 1:]], -1) / self._scale


class _Search(_DiscoveryNetworks):
    """Joint training of all candidates: one phase per penalty strength, and a refit of each surviving set of pairs.

    Attributes:
        path: A candidate for each distinct set of pairs, from dense to sparse.
        survived: The largest strength that each pair survived.
    """

    def __init__(self, problem: _DiscoveryProblem, blueprint: Blueprint) -> None:
        super().__init__(problem, blueprint)
        self._last = "all pairs"
        self.path: list[Candidate] = []
        self.survived: dict[Pair, float] = {}
        self._refits: dict[tuple[Pair, ...], Candidate] = {}
        self.device = torch.device(problem.dynamics.compute_device or "cpu")
        self._kappa = 0.0

    def start_phase(self, phase: int) -> None:
        """Start the next penalty strength; the first is 0."""
        super().start_phase(phase)
        self._kappa = (0.0, *self._problem.settings.kappas)[phase]

    def text(self, loop: LoopView, validation: Validation | None) -> str:
        """Return the pairs that survived the last strength."""
        return self._last

    def after_step(self, step: OptimiserStep) -> None:
        """Take the proximal step of the penalty."""
        if self._kappa:
            shrink_(self.weights, self._layers, self._kappa * step.rate)

    def end_phase(self, loop: LoopView) -> bool:
        """Refit the surviving pairs; stop the path if there are none."""
        loop.save()
        if not self._kappa:
            return False
        pairs = self.pairs()
        self.survived |= dict.fromkeys(pairs, self._kappa)
        if not any(set(pairs) == set(candidate.pairs) for candidate in self.path):
            self.path.append(self.refit(pairs, self._kappa))
            error = self.path[-1].error
            if loop.log is not None:
                loop.log.write(loop.state.step, kappa=self._kappa, pairs=len(pairs), held_out=error)
            self._last = f"kappa {self._kappa:g}: {len(pairs)} pairs, held-out error {error:.4g}"
        return not pairs

    def pairs(self) -> tuple[Pair, ...]:
        """Return the surviving (quantity, input) pairs, strongest first."""
        pairs = []
        for augmentation, strength in zip(
            self.blueprint.augmentations, strengths(self.weights, self._layers), strict=True
        ):
            for name, size in zip(augmentation.inputs, strength.tolist(), strict=True):
                if size > 0:
                    pairs.append((size, (augmentation.quantities[0], name)))
        return tuple(pair for _, pair in sorted(pairs, key=lambda entry: -entry[0]))

    def refit(self, pairs: tuple[Pair, ...], kappa: float) -> Candidate:
        """Train the networks of these pairs without penalty, once for each set of pairs."""
        key = tuple(sorted(pairs))
        if key not in self._refits:
            networks = _DiscoveryNetworks(self._problem, _restrict(self.blueprint, pairs))
            networks.train(self._problem.settings.refit)
            error = networks.held_out_error()
            self._refits[key] = Candidate(kappa, pairs, networks.blueprint, error, networks.weights.detach())
        return replace(self._refits[key], kappa=kappa, pairs=pairs)

    def state(self) -> dict[str, Any]:
        """Return weights, optimiser, the path and all refits."""
        path = [[c.kappa, list(c.pairs)] for c in self.path]
        refits = [{"pairs": list(pairs), "error": c.error, "weights": c.weights} for pairs, c in self._refits.items()]
        survived = [[*pair, kappa] for pair, kappa in self.survived.items()]
        return {**super().state(), "path": path, "refits": refits, "survived": survived}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore `state`."""
        super().load(saved)
        for refit in saved["refits"]:
            pairs = tuple((q, x) for q, x in refit["pairs"])
            blueprint = _restrict(self.blueprint, pairs)
            self._refits[pairs] = Candidate(0.0, pairs, blueprint, refit["error"], refit["weights"])
        self.path = [self.refit(tuple((q, x) for q, x in pairs), kappa) for kappa, pairs in saved["path"]]
        self.survived = {(q, x): kappa for q, x, kappa in saved["survived"]}


def _polish(problem: _DiscoveryProblem, candidate: Candidate) -> Candidate:
    """Train a blueprint to convergence; keep the result if the held-out error falls."""
    if not candidate.pairs or not problem.settings.polish:
        return candidate
    networks = _DiscoveryNetworks(problem, candidate.blueprint, polish=problem.settings.polish)
    with torch.no_grad():
        networks.weights.copy_(candidate.weights)
    networks.train(1)
    error = networks.held_out_error()
    if not error < candidate.error:
        return candidate
    return replace(candidate, error=error, weights=networks.weights.detach())


def _with_blueprint(dynamics: HybridDynamics, blueprint: Blueprint, seed: int = 0) -> HybridDynamics:
    config = msgspec.structs.replace(dynamics.config, blueprint=blueprint)
    model = HybridDynamics(
        dynamics.spec, dynamics.mechanism, config, dynamics.physical.specs, dynamics.fingerprint, dynamics.scene,
        declaration=dynamics.declaration, threads=dynamics.threads, seed=seed,
    )  # fmt: skip
    model.training_range = dynamics.training_range
    model.compute_device = dynamics.compute_device
    model.physical.load_state_dict(dynamics.physical.state_dict())
    return model


def _restrict(blueprint: Blueprint, pairs: Sequence[tuple[str, str]]) -> Blueprint:
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
