# SPDX-License-Identifier: Apache-2.0
"""Worlds that differ: draws of named quantities, for trainings and evaluations of policies.

What is drawn is given by texts (`core.description.randomisation`), or is the posterior of a run that `neurodyn
identify` or `neurodyn adapt` made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import torch
from torch import Tensor

from neurodyn.control.returns import EpisodeOutcomes, QuantitySensitivity, Returns
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.description.randomisation import RandomisedQuantity, changed, randomised_quantities
from neurodyn.core.errors import InputError
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.identify.posterior import read_posterior
from neurodyn.multibody.engine import nominal

_ACTUATOR = "actuator."


class QuantityDraws(Protocol):
    """A distribution of named quantities."""

    @property
    def names(self) -> tuple[str, ...]:
        """The quantities."""
        ...

    def draw(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Return values, shape [worlds, names], float32, on the generator's device."""
        ...


@dataclass(frozen=True)
class IndependentDraws:
    """Draws of quantities that do not depend on each other.

    Attributes:
        names: The quantities.
        draws: Their distributions; `names` are those of these, one after another.
        declared: Declared values of `names`.
    """

    names: tuple[str, ...]
    draws: tuple[RandomisedQuantity, ...]
    declared: tuple[float, ...]

    def draw(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Return values, shape [worlds, names]."""
        columns: list[Tensor] = []
        for one in self.draws:
            number = _drawn(one, worlds, generator)
            for value in self.declared[len(columns) : len(columns) + len(one.names)]:
                columns.append(changed(one.change, value, number))
        return torch.stack(columns, 1)


def _drawn(one: RandomisedQuantity, worlds: int, generator: torch.Generator) -> Tensor:
    """Return numbers of one distribution, shape [worlds]."""
    device = generator.device
    uniform = torch.rand(worlds, generator=generator, device=device)
    if one.values:
        index = (uniform * len(one.values)).long().clamp_max(len(one.values) - 1)
        return torch.tensor(one.values, device=device)[index]
    if one.shape == "log":
        return one.lower * (one.upper / one.lower) ** uniform
    if one.shape == "normal":  # by the quantile function, cut off at two standard deviations
        tail = 0.5 * torch.special.erfc(torch.tensor(2.0**0.5, device=device))
        deviation = torch.special.ndtri(tail + (1.0 - 2.0 * tail) * uniform)
        return 0.5 * (one.lower + one.upper) + 0.25 * (one.upper - one.lower) * deviation
    return one.lower + (one.upper - one.lower) * uniform


@dataclass(frozen=True)
class SampledDraws:
    """Rows of a sample, each with the same chance.

    Attributes:
        names: The quantities.
        rows: The sample, shape [rows, names].
    """

    names: tuple[str, ...]
    rows: Tensor

    def draw(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Return values, shape [worlds, names]."""
        index = torch.randint(len(self.rows), (worlds,), generator=generator, device=generator.device)
        return self.rows.to(generator.device)[index]


@dataclass(frozen=True)
class JoinedDraws:
    """Distributions side by side; where two have a quantity, the last counts."""

    parts: tuple[QuantityDraws, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The quantities."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.names))

    def draw(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Return values, shape [worlds, names]."""
        columns = {
            name: column
            for part in self.parts
            for name, column in zip(part.names, part.draw(worlds, generator).unbind(1), strict=True)
        }
        return torch.stack([columns[name] for name in self.names], 1)


@dataclass(frozen=True)
class Randomisation:
    """Dynamics whose worlds can differ, and how they do.

    Attributes:
        dynamics: The dynamics.
        draws: The distribution.
    """

    dynamics: Dynamics
    draws: QuantityDraws


def open_randomisation(texts: Sequence[str], dynamics: Dynamics) -> Randomisation:
    """Return the draws that texts ask for, and dynamics whose worlds can differ in them.

    A text is a distribution (`core.description.randomisation`), or a run of `neurodyn identify` or `neurodyn adapt`,
    whose posterior is drawn from. Quantities of drives ("actuator.JOINT.gain") may be drawn of robots that declare no
    drives, too.

    Raises:
        InputError: A text is malformed or names an unknown quantity, or worlds of the dynamics cannot differ.
    """
    if not isinstance(dynamics, HybridDynamics | AnalyticDynamics):
        raise InputError(
            f"randomise: worlds of {dynamics.kind} dynamics cannot differ in quantities of the robot; valid: hybrid, a "
            "run of kind hybrid, or analytic with solver mujoco-c"
        )
    if any(_ACTUATOR in text.partition("=")[0] for text in texts):
        dynamics = _with_drives(dynamics)
    model = dynamics if isinstance(dynamics, HybridDynamics) else declared_hybrid(dynamics.robot)
    values = nominal(model.mechanism, model.config.contact)
    values |= dict(zip((spec.name for spec in model.physical.specs), model.physical().tolist(), strict=True))
    parts: list[QuantityDraws] = []
    plain = [text for text in texts if not _is_run(text)]
    parts += [SampledDraws(*read_posterior(Path(text))) for text in texts if _is_run(text)]
    if plain:
        ranges = {spec.name: spec.lower for spec in select_parameters(values, ["*"], model.mechanism.bounds())}
        found = randomised_quantities(plain, values, bounds=ranges)
        names = tuple(name for one in found for name in one.names)
        parts.append(IndependentDraws(names, found, tuple(values[name] for name in names)))
    draws = parts[0] if len(parts) == 1 else JoinedDraws(tuple(parts))
    if isinstance(dynamics, HybridDynamics):
        dynamics = dynamics.freeing(draws.names)
    return Randomisation(dynamics, draws)


def _is_run(text: str) -> bool:
    return "=" not in text


def _with_drives(dynamics: HybridDynamics | AnalyticDynamics) -> HybridDynamics | AnalyticDynamics:
    """Return dynamics of which every driven joint has a drive; those that have some are left as they are."""
    has = dynamics.mechanism.drives if isinstance(dynamics, HybridDynamics) else dynamics.robot.drives
    if has:
        return dynamics
    driven = dynamics.with_drives({name: Drive() for name in dynamics.spec.controls})
    if driven is None:
        raise InputError("randomise: quantities of drives in a model whose networks see the controls; valid: others")
    return driven


def robust(returns: Returns, policies: Sequence[EpisodeOutcomes], draws: QuantityDraws | None) -> Returns:
    """Return the returns of one or several policies with their worst tenth, and with what they depend on.

    Where no draws are given they are left as they are.
    """
    if draws is None:
        return returns
    values = torch.cat([one.returns for one in policies]).double()
    numbers = torch.cat([one.robots for one in policies if one.robots is not None]).double()
    worst = values.sort().values[: max(1, len(values) // 10)].mean()
    found = [_sensitivity(name, column, values) for name, column in zip(draws.names, numbers.unbind(1), strict=True)]
    found.sort(key=lambda one: -abs(one.correlation))
    return msgspec.structs.replace(returns, worst_tenth=float(worst), sensitivity=found)


def _sensitivity(name: str, numbers: Tensor, returns: Tensor) -> QuantitySensitivity:
    order = numbers.argsort()
    third = max(1, len(order) // 3)
    low, high = order[:third], order[-third:]
    a, b = (ranks - ranks.mean() for ranks in (_ranks(numbers), _ranks(returns)))
    size = float((a.square().sum() * b.square().sum()).sqrt())
    return QuantitySensitivity(
        name=name, low=float(numbers[low].mean()), high=float(numbers[high].mean()),
        return_low=float(returns[low].mean()), return_high=float(returns[high].mean()),
        correlation=float((a * b).sum()) / size if size > 0.0 else 0.0,
    )  # fmt: skip


def _ranks(values: Tensor) -> Tensor:
    """Return ranks; equal values share their mean rank."""
    _, place, count = values.unique(return_inverse=True, return_counts=True)
    last = count.cumsum(0).double()
    return (last - 0.5 * (count.double() - 1.0))[place]
