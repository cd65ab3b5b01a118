# SPDX-License-Identifier: Apache-2.0
"""Whether a world model knows how sure it is: coverage, disagreement beside error, states unlike the log, noise."""

from typing import Any

import torch
from torch import Tensor

from neurodyn.data.windows import Windows
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.evaluate.forecasts import Forecasts, column_means, forecast, window
from neurodyn.evaluate.rank import chance_above, rank_correlation

_NOISE = (0.01, 0.03, 0.1)
_UNLIKE = (1.5, 2.0, 3.0)


def coverage_at(model: WorldModel, found: Forecasts, mark: int) -> dict[str, Any]:
    """Return how often the truth lies within one and two standard deviations; a normal one has .683 and .954."""
    error, spread = found.error[found.finite, mark - 1], found.spread[found.finite, mark - 1]
    entry: dict[str, Any] = {"seconds": mark * model.spec.dt}
    for sigmas in (1, 2):
        columns = (error.abs() <= sigmas * spread).double().mean(0)
        entry[str(sigmas)] = float(columns[model.varying].mean()) if len(error) else None
        entry[f"{sigmas}_columns"] = columns.tolist() if len(error) else None
    return entry


def disagreement_at(model: WorldModel, found: Forecasts, mark: int) -> dict[str, Any]:
    """Return how well disagreement, and the whole spread, order forecasts by their error at a horizon."""
    rows, scale = found.finite, model.state_scale
    error, epistemic, spread = (
        (x[rows, mark - 1].abs() / scale)[:, model.varying].mean(-1)
        for x in (found.error, found.epistemic, found.spread)
    )
    if len(error) < 3:
        return {"rank_correlation": None, "spread_rank_correlation": None}
    return {
        "seconds": mark * model.spec.dt,
        "rank_correlation": rank_correlation(epistemic, error),
        "spread_rank_correlation": rank_correlation(spread, error),
        "mean": float(epistemic.mean()),
    }


def unlike(model: WorldModel, windows: list[Windows], context: int) -> dict[str, Any]:
    """Return how much more the members disagree where states lie further from their mean than any log had them."""
    usual = _disagreement(model, windows, context, 1.0)
    if not len(usual):
        return {"usual_median": None}
    found: dict[str, Any] = {"usual_median": float(usual.median())}
    for factor in _UNLIKE:
        values = _disagreement(model, windows, context, factor)
        if not len(values):
            continue
        found[f"{factor:g}"] = {
            "ratio": float(values.median() / usual.median().clamp_min(1e-12)),
            "chance_above_usual": chance_above(values, usual),
        }
    return found


def _disagreement(model: WorldModel, windows: list[Windows], context: int, factor: float) -> Tensor:
    """Return the disagreement on one frame, mean over columns in their spreads, of states drawn out by a factor.

    What is not finite is left out.
    """
    values = []
    for batch in windows:
        states = model.observation.join(batch.q, batch.qd, batch.channels)[
            :, context - min(context, model.spec.context) :
        ]
        first = min(context, model.spec.context)
        states = states[:, : first + 1]
        mean = states.mean((0, 1))
        drawn = mean + factor * (states - mean)
        start = context - first
        past = window(model.observation, drawn, batch.control[:, start:context])
        path = model.rollout(past, batch.control[:, context : context + 1])
        assert path.epistemic is not None  # a world model says it
        values.append((path.epistemic[:, 0] / model.state_scale)[:, model.varying].mean(-1))
    joined = torch.cat(values)
    return joined[joined.isfinite()]


def with_noise(
    model: WorldModel, windows: list[Windows], context: int, marks: list[int], seed: int
) -> dict[str, dict[str, Any]]:
    """Return errors with noise on the history, by its size in spreads of the columns."""
    found = {}
    for size in (0.0, *_NOISE):
        errors = forecast(model, windows, context, noise=size, seed=seed)
        rows = errors.finite
        found[f"{size:g}"] = {
            "finite_fraction": float(rows.double().mean()),
            **{str(m): column_means(model, errors.error[rows, m - 1]) for m in marks},
        }
    return found
