# SPDX-License-Identifier: Apache-2.0
"""Judgement of fits along held-out windows, as the ladder judges models."""

from collections.abc import Sequence

import torch

from neurodyn.data.header import Split
from neurodyn.data.windows import blocks_of
from neurodyn.dynamics.rollout_errors import Judgement, judge_windows
from neurodyn.identify.fit.intervals import identifiability, unexplained
from neurodyn.identify.ladder.initial_states import start_of
from neurodyn.identify.ladder.own_quantities import own_quantities, with_groups
from neurodyn.identify.ladder.rungs import HeldOutErrors, Ladder
from neurodyn.identify.result import CONFIDENCE
from neurodyn.identify.settings import FitStage
from neurodyn.identify.stages.growing_windows import Fitting, settled


def held_out_of(fitting: Fitting, past: int = 0) -> HeldOutErrors:
    """Return the errors of a fit, with the values of its logs, along held-out windows after at least `past` frames."""
    residuals = fitting.residuals(fitting.windows(Split.TRAIN, fitting.stages[-1]))
    own = own_quantities(residuals, fitting.begin(residuals), "group" if fitting.groups else "run")
    store = fitting.store if own is None else with_groups(fitting.store, own)
    noise = fitting.noise if start_of(store, fitting.settings.start) == "past" else None
    dynamics = fitting.current()
    ladder = Ladder(store, max(past, fitting.past), fitting.settings, noise)
    return ladder.with_best_context(dynamics).held_out(dynamics)


@torch.no_grad()
def judged_by_costs(below: Fitting, above: Fitting) -> Judgement:
    """Return whether held-out windows of another fit cost less.

    Their starts are fitted: noise of logged ones, which is most of the errors of a good model, is not in these costs.
    """
    windows = max(below, above, key=lambda one: one.past).windows(Split.VALIDATION, below.stages[-1])
    both = [one.residuals(windows).with_free_starts() for one in (below, above)]
    before, after = (
        free.window_costs(settled(free, one.begin(free)))[0] for one, free in zip((below, above), both, strict=True)
    )
    return judge_windows(before, after, blocks_of(windows), "costs from fitted starts")


@torch.no_grad()
def has_effect(fitting: Fitting, names: Sequence[str], stage: FitStage) -> bool:
    """Return whether some coordinates, together, differ from their declared values in a fit to the windows of a stage.

    Wald's test with the covariance of intervals. Those at a bound do not differ; of no coordinates, all do.
    """
    from scipy.special import fdtri

    if not names:
        return True
    residuals = fitting.residuals(fitting.windows(Split.TRAIN, stage))
    point = fitting.start(residuals)
    analysis = identifiability(residuals, point).inflated(unexplained(residuals, point))
    rows = [k for k in map(fitting.space.names.index, names) if not bool(analysis.bound[k])]
    if not rows:
        return False
    deviations, apart = analysis.deviations[rows].clamp(max=1.0), (fitting.x - fitting.space.declared)[rows]
    covariance = deviations[:, None] * analysis.correlation[rows][:, rows] * deviations
    statistic = float(apart @ torch.linalg.pinv(covariance, hermitian=True) @ apart) / len(rows)
    return statistic > float(fdtri(len(rows), max(1, analysis.degrees), CONFIDENCE))
