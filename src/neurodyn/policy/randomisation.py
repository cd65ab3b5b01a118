# SPDX-License-Identifier: Apache-2.0
"""Worlds that differ: draws of named quantities, for trainings and evaluations of policies.

What is drawn is given by texts (`core.description.randomisation`), or is the posterior of a run that `neurodyn
identify` or `neurodyn adapt` made.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import torch
from torch import Tensor

from neurodyn.control.returns import EpisodeOutcomes, QuantitySensitivity, Returns
from neurodyn.core.description.drive import Drive
from neurodyn.core.errors import InputError
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.multibody.engine import nominal
from neurodyn.sim.draws import QuantityDraws, draws_of_drives, quantity_draws


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
            "run of kind hybrid, or analytic"
        )
    if draws_of_drives(texts):
        dynamics = _with_drives(dynamics)
    model = dynamics if isinstance(dynamics, HybridDynamics) else declared_hybrid(dynamics.robot)
    values = nominal(model.mechanism, model.config.contact)
    values |= dict(zip((spec.name for spec in model.physical.specs), model.physical().tolist(), strict=True))
    draws = quantity_draws(texts, values, model.mechanism)
    if isinstance(dynamics, HybridDynamics):
        dynamics = dynamics.freeing(draws.names)
    return Randomisation(dynamics, draws)


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
