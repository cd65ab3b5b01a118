# SPDX-License-Identifier: Apache-2.0
"""Report on a world model: forecasts with bands, errors by horizon, calibration, contacts and failures."""

from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from msgspec import UNSET

from neurodyn.data.store import Store
from neurodyn.dynamics.measures import BASELINES, PERSISTENCE
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.evaluate.calibration import ColumnErrors, forecast_along
from neurodyn.evaluate.records import ForecastEvaluation
from neurodyn.evaluate.rollouts import log_starts
from neurodyn.report.accuracy import coverage, out_of_distribution_table, refusal_tables
from neurodyn.report.log import recordings
from neurodyn.report.numbers import digits, digits_or_dash, share, span
from neurodyn.report.page import Table, grid, heading, section
from neurodyn.report.plots import PREDICTED, SECOND, THIRD, TRUTH, PlotCurve, legend_list, plot

_MEAN, _RECORDED, _BAND = "forecast, mean of the members", "recorded", "two sigma"
_SAMPLES, _DRAWN = 3, 600
_MOST_COLUMNS = 8
_COLOURS = (PREDICTED, TRUTH, SECOND, THIRD)


def headline(result: ForecastEvaluation) -> list[tuple[str, str, str]]:
    """Return the headline figures."""
    last, dt = result.at_horizon[str(result.about.horizon)], result.about.dt
    near = str(min(result.marks, key=lambda mark: abs(mark * dt - 0.25)))
    errors = []
    for entry in (result.at_horizon[near], last):
        model, held = (digits(entry.by_model[name].scaled or 0.0) for name in ("model", PERSISTENCE))
        remark = f"in standard deviations of the data; persistence baseline {held}"
        errors.append((model, f"error after {span(entry.seconds)}", remark))
    within = (share(result.coverage[near].two_sigma), "within two sigma there", "95.4 % of a normal distribution")
    return [errors[0], within, errors[1]]


@torch.no_grad()
def bands(model: WorldModel, store: Store, split: int | None, horizon: int) -> str:
    """Return forecasts with bands of two standard deviations and the truth, from evenly spaced starts."""
    starts, _ = log_starts(store, split, model.spec.context, horizon, _DRAWN)
    forecasts, count = forecast_along(model, store, starts), starts.count
    chosen = sorted({(2 * k + 1) * count // (2 * _SAMPLES) for k in range(_SAMPLES)})
    legend = legend_list([(_MEAN, PREDICTED), (_RECORDED, TRUTH), (_BAND, SECOND)])
    parts = []
    for world in chosen:
        episode, start = starts.source.places[world].tolist()
        where = f"Episode {episode}, from {digits((start + model.spec.context) * model.spec.dt)} s"
        parts.append(heading(where) + _sample(model, forecasts, world))
    lead = "Starts spread evenly over the episodes, not chosen by how well they went."
    return section("Forecasts with bands", legend, *parts, lead=lead)


def _sample(model: WorldModel, forecasts: ColumnErrors, world: int) -> str:
    paths = forecasts.compared.predicted, forecasts.compared.truth
    mean, true = (model.observation.join(x.q, x.qd, x.channels)[world, 1:] for x in paths)
    seconds, band = [(k + 1) * model.spec.dt for k in range(len(mean))], forecasts.std[world]
    plots = []
    for i in range(min(_MOST_COLUMNS, model.observation.size)):
        curves = [
            PlotCurve(None, seconds, (mean[:, i] - 2 * band[:, i]).tolist(), SECOND, "--", 0.8, name=_BAND),
            PlotCurve(None, seconds, (mean[:, i] + 2 * band[:, i]).tolist(), SECOND, "--", 0.8, name=_BAND),
            PlotCurve(None, seconds, true[:, i].tolist(), TRUTH, "-", 4.0, 0.5, name=_RECORDED),
            PlotCurve(None, seconds, mean[:, i].tolist(), PREDICTED, "-", 1.2, name=_MEAN),
        ]
        name = f"{model.observation.names[i]} [{model.observation.units[i]}]"
        plots.append(plot(f"band-{world}-{i}", curves, legend=False, caption=name))
    return grid(plots)


def errors(result: ForecastEvaluation) -> Table:
    """Return errors of the model, the persistence baseline and other models, by horizon."""
    rows = []
    for entry in result.at_horizon.values():
        by_model = [entry.by_model[name] for name in _models(result)]
        for what, values in (
            ("positions", [one.q_mean for one in by_model]),
            ("velocities", [one.qd_mean for one in by_model]),
            ("all columns [standard deviations]", [one.scaled for one in by_model]),
        ):
            rows.append([f"{span(entry.seconds)}: {what}", *map(digits_or_dash, values)])
    head = ["Horizon", *map(_label, _models(result))]
    return Table("Mean absolute errors at the horizon itself", head, rows, strong=1)


def by_column(result: ForecastEvaluation) -> Table:
    """Return errors by column and horizon."""
    rows = []
    for entry in result.at_horizon.values():
        columns = [entry.by_model[name].columns for name in _models(result)]
        for i, (column, unit) in enumerate(zip(result.columns, result.units, strict=True)):
            cells = [digits_or_dash(None if values is None else values[i]) for values in columns]
            rows.append([f"{span(entry.seconds)}: {column} [{unit}]", *cells])
    return Table("By column", ["Horizon and column", *map(_label, _models(result))], rows, strong=1)


def groups(result: ForecastEvaluation) -> list[Table]:
    """Return position errors at the longest horizon by group of recordings, if there are several."""
    last, rows = str(result.about.horizon), []
    for name, group in result.groups.items() if len(result.groups) > 1 else ():
        rows.append([name, f"{group.starts:,}", *(digits_or_dash(one.q_mean) for one in group.marks[last].values())])
    return [Table(f"Positions after {last} frames", ["Group", "Starts", "Model", "Persistence"], rows)] if rows else []


def calibration(result: ForecastEvaluation) -> list[Table]:
    """Return coverage and rank correlations by horizon, out of distribution, and errors with noise."""
    noise = [
        [f"{size} standard deviations", *(digits_or_dash(mark.scaled) for mark in entry.marks.values())]
        for size, entry in result.noise.items()
    ]
    noisy = ["Noise on the history", *(f"{m} frames" for m in result.marks)]
    return [
        coverage("Coverage and rank correlations", result.coverage, result.epistemic),
        out_of_distribution_table("Out of distribution", result.out_of_distribution),
        *refusal_tables(result.refusals),
        Table("Errors with noise [standard deviations]", noisy, noise),
    ]


def events(result: ForecastEvaluation) -> Table:
    """Return scores of contacts and termination."""
    rows = [
        [name, *map(share, (entry.rate, entry.recall, entry.precision, entry.balanced_accuracy))]
        for name, entry in result.events.items()
    ]
    head = ["Event", "Rate", "Recall", "Precision", "Balanced accuracy"]
    return Table("Contacts by frame, termination by forecast", head, rows)


def failures(result: ForecastEvaluation) -> list[Table]:
    """Return the fractions of failed episodes and of predicted failures; empty for models without termination."""
    share_of = result.failures
    if share_of is UNSET:
        return []
    rows = [["log", share(share_of.failed)], ["model", share(share_of.predicted)]]
    title = f"Failures within {share_of.frames} frames of {share_of.starts} starts"
    if share_of.finite_fraction is not UNSET:
        title += f"; {share(share_of.finite_fraction)} of the forecasts are finite"
    return [Table(title, ["", "Failed"], rows)]


def forecast_parts_of_page(result: ForecastEvaluation) -> dict[str, Any]:
    """Return the values of `templates/forecast.html`, without sample forecasts and training."""
    seconds = [(k + 1) * result.about.dt for k in range(result.about.horizon)]
    curves = [
        PlotCurve(_label(name), seconds, values, colour)
        for (name, values), colour in zip(result.by_frame.items(), cycle(_COLOURS))
    ]
    caption = "Mean absolute error of all columns, each in units of its standard deviation over the training data"
    return {
        "by_frame": plot("by-frame", curves, log=True, caption=caption),
        "errors": [errors(result), *groups(result), by_column(result)],
        "calibration": calibration(result),
        "events": [events(result), *failures(result)],
        "notes": recordings(result.notes),
    }


def _models(result: ForecastEvaluation) -> list[str]:
    return list(next(iter(result.at_horizon.values())).by_model)


def _label(name: str) -> str:
    return {"model": "this model", PERSISTENCE: BASELINES[PERSISTENCE].title}.get(name, Path(name).name)
