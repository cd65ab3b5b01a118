# SPDX-License-Identifier: Apache-2.0
"""Judgement of fits along held-out windows, as the ladder judges models."""

from collections.abc import Sequence

import torch
from torch import Tensor

from neurodyn.data.header import Split
from neurodyn.identify.fit.intervals import identifiability, moves_of_starts, unexplained
from neurodyn.identify.ladder.initial_states import start_of
from neurodyn.identify.ladder.own_quantities import own_quantities, with_groups
from neurodyn.identify.ladder.rungs import HeldOutErrors, Ladder
from neurodyn.identify.result import CONFIDENCE
from neurodyn.identify.settings import FitStage
from neurodyn.identify.stages.growing_windows import Fitting
from neurodyn.identify.unknowns.search_space import PAYLOAD


def held_out_of(fitting: Fitting, past: int = 0, context: int | None = None) -> tuple[HeldOutErrors, int | None]:
    """Return the errors of a fit, with the values of its logs, along held-out windows.

    Args:
        fitting: The fit.
        past: Least frames before the windows.
        context: Frames to which initial states are fitted; None for those from which the fit errs least.

    Returns:
        The errors, and these frames; None for states as logged.
    """
    residuals = fitting.residuals(fitting.windows(Split.TRAIN, fitting.stages[-1]))
    own = own_quantities(residuals, fitting.begin(residuals), "group" if fitting.groups else "run")
    store = fitting.store if own is None else with_groups(fitting.store, own)
    noise = fitting.noise if start_of(store, fitting.settings.start) == "past" else None
    dynamics = fitting.current()
    ladder = Ladder(store, max(past, fitting.past), fitting.settings, noise, context=context)
    ladder = ladder if context is not None else ladder.with_best_context(dynamics)
    return ladder.held_out(dynamics), ladder.context


def has_effect(fitting: Fitting, names: Sequence[str], stage: FitStage, without: Fitting | None = None) -> bool:
    """Return whether some values, together, differ from the declared ones in a fit to the windows of a stage.

    Wald's test with the covariance of intervals; of no values, all do. Of a payload, mass and moment count: its mass
    trades with that of its link. Values that trade with others along a curved valley, such as friction per load with
    the gain of a motor, fail that test however much they save, so that what a fit `without` them costs more is enough:
    the test of the likelihood ratio, with the same variance.
    """
    from scipy.special import fdtri

    if not names:
        return True
    space, rows = fitting.space, [fitting.space.names.index(name) for name in names]

    def effect(x: Tensor) -> Tensor:
        values = torch.stack([space.coordinates[k].value(at) for k, at in zip(rows, x, strict=True)])
        return values[0] * torch.cat([values.new_ones(1), values[1:]]) if PAYLOAD[0] in names else values

    residuals = fitting.residuals(fitting.windows(Split.TRAIN, stage))
    point = fitting.start(residuals)
    analysis = identifiability(residuals, point).inflated(unexplained(residuals, point))
    if not residuals.options.base:
        analysis = analysis.widened(moves_of_starts(residuals, point))
    deviations = analysis.deviations[rows].clamp(max=1.0)
    slopes = torch.func.jacrev(effect)(fitting.x[rows]) * deviations
    covariance = slopes @ analysis.correlation[rows][:, rows] @ slopes.mT
    scale = covariance.diagonal().clamp_min(1e-300).sqrt()
    apart = (effect(fitting.x[rows]) - effect(space.declared[rows])) / scale
    inverse = torch.linalg.pinv(covariance / scale[:, None] / scale, rtol=1e-9, hermitian=True)
    least = len(rows) * float(fdtri(len(rows), max(1, analysis.degrees), CONFIDENCE))
    differs = float(apart @ inverse @ apart) > least
    if differs or without is None:
        return differs
    variance = analysis.variance * (1.0 + analysis.unexplained * analysis.degrees)
    return 2.0 * (without.stage_cost(stage) - float(residuals.cost(point))) > least * variance
