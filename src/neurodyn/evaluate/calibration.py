# SPDX-License-Identifier: Apache-2.0
"""Calibration of a model: coverage, its standard deviation beside its error, out of distribution, with noise."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from neurodyn.core.progress import tracked
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.evaluate.engine import roll_out
from neurodyn.evaluate.forecasts import Forecasts, MemberErrors, changed
from neurodyn.evaluate.rank import chance_above, rank_correlation
from neurodyn.evaluate.recorded import Recorded
from neurodyn.evaluate.records import Coverage, DrawnOut, Noisy, OutOfDistribution, RankCorrelation

_NOISE = (0.01, 0.03, 0.1)
FACTORS = (1.5, 2.0, 3.0)
"""Factors by which states are drawn out from their mean, beyond the distribution of the data."""


Known = Forecasts | MemberErrors
"""Errors beside what was predicted of them."""


def coverage_at(found: Known, mark: int) -> Coverage:
    """Return how often the truth lies within one and two standard deviations; a normal one has .683 and .954."""
    error, std = found.error[found.finite, mark - 1], found.std[found.finite, mark - 1]
    means, columns = [], []
    for sigmas in (1, 2):
        within = (error.abs() <= sigmas * std).double().mean(0)
        means.append(float(within[found.varying].mean()) if len(error) else None)
        columns.append(within.tolist() if len(error) else None)
    return Coverage(
        seconds=mark * found.dt, one_sigma=means[0], one_sigma_columns=columns[0], two_sigma=means[1],
        two_sigma_columns=columns[1],
    )  # fmt: skip


def ranks_at(found: Known, mark: int) -> RankCorrelation:
    """Return how well the standard deviations order forecasts by their error at a horizon."""
    rows, scale = found.finite, found.scale
    error, epistemic, std = (
        (x[rows, mark - 1].abs() / scale)[:, found.varying].mean(-1) for x in (found.error, found.epistemic, found.std)
    )
    if len(error) < 3:
        return RankCorrelation(epistemic_rank=None, total_rank=None)
    return RankCorrelation(
        seconds=mark * found.dt,
        epistemic_rank=rank_correlation(epistemic, error),
        total_rank=rank_correlation(std, error),
        mean=float(epistemic.mean()),
    )


def out_of_distribution(model: WorldModel, starts: Recorded) -> OutOfDistribution:
    """Return the epistemic standard deviation on states that lie further from their mean than those of any log."""
    usual = _epistemic(model, starts, 1.0)
    return drawn_out(usual, {factor: _epistemic(model, starts, factor) for factor in FACTORS})


def drawn_out(usual: Tensor, beyond: Mapping[float, Tensor]) -> OutOfDistribution:
    """Return epistemic standard deviations beside the usual ones, by the factor that states were drawn out by."""
    if not len(usual):
        return OutOfDistribution(usual_median=None)
    found = {}
    for factor, values in beyond.items():
        if len(values):
            ratio = float(values.median() / usual.median().clamp_min(1e-12))
            found[f"{factor:g}"] = DrawnOut(ratio=ratio, chance_above_usual=chance_above(values, usual))
    return OutOfDistribution(usual_median=float(usual.median()), by_factor=found)


def with_noise(model: WorldModel, starts: Recorded, marks: list[int], seed: int) -> dict[str, Noisy]:
    """Return errors with noise on the history, by its size in standard deviations of the columns."""
    found = {}
    for size in tracked((0.0, *_NOISE)):
        generator = torch.Generator().manual_seed(seed)

        def noisy(x: Tensor, size: float = size, generator: torch.Generator = generator) -> Tensor:
            return x + size * model.state_scale * torch.randn(x.shape, generator=generator) if size else x

        done = Forecasts.along(model, starts, changed(model, starts, noisy))
        found[f"{size:g}"] = Noisy(
            finite_fraction=float(done.finite.double().mean()),
            marks={str(m): done.means(done.error[done.finite, m - 1]) for m in marks},
        )
    return found


def _epistemic(model: WorldModel, starts: Recorded, factor: float) -> Tensor:
    """Return the epistemic standard deviation after one frame, mean over columns in their standard deviations.

    States are drawn out from their mean by a factor; what is not finite is left out.
    """

    def drawn(states: Tensor) -> Tensor:
        mean = states.mean((0, 1))
        return mean + factor * (states - mean)

    once = (replace(batch, drive=batch.drive.until(1)) for batch in changed(model, starts, drawn))
    path = roll_out(model, once).path
    assert path.epistemic is not None  # a world model predicts it
    values = (path.epistemic[:, 0] / model.state_scale)[:, model.varying].mean(-1)
    return values[values.isfinite()]
