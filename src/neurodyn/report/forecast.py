# SPDX-License-Identifier: Apache-2.0
"""Sections on a world model: forecasts with bands over the truth, errors by horizon, calibration, events."""

from pathlib import Path

import torch

from neurodyn.data.store import Store
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.evaluate.forecasts import Forecasts
from neurodyn.evaluate.recorded import Recorded
from neurodyn.evaluate.records import PERSISTENCE, Forecast
from neurodyn.report.numbers import MISSING, digits, share, span
from neurodyn.report.page import figure, grid, heading, section, table
from neurodyn.report.plots import PREDICTED, SECOND, THIRD, TRUTH, Curve, legend_list, plot

_SAMPLES, _DRAWN = 3, 600
_MOST_COLUMNS = 8
_COLOURS = (PREDICTED, TRUTH, SECOND, THIRD)


def cards(result: Forecast) -> list[tuple[str, str, str]]:
    """Return the few figures that matter most."""
    last, dt = result.at_horizon[str(result.about.horizon)], result.about.dt
    near = str(min(result.marks, key=lambda mark: abs(mark * dt - 0.25)))
    found = []
    for entry in (result.at_horizon[near], last):
        model, held = (digits(entry.by_model[name].scaled or 0.0) for name in ("model", PERSISTENCE))
        remark = f"in standard deviations of the data; persistence baseline {held}"
        found.append((model, f"error after {span(entry.seconds)}", remark))
    within = (share(result.coverage[near].two_sigma), "within two sigma there", "95.4 % of a normal distribution")
    return [found[0], within, found[1]]


@torch.no_grad()
def bands(model: WorldModel, store: Store, split: int | None, horizon: int) -> str:
    """Return forecasts with bands of two standard deviations over the truth, from evenly spread starts."""
    starts = Recorded.along(store, split, model.spec.context, horizon, _DRAWN)
    found = Forecasts.along(model, starts)
    count = len(found.error)
    chosen = sorted({(2 * k + 1) * count // (2 * _SAMPLES) for k in range(_SAMPLES)})
    legend = legend_list([("forecast, mean of the members", PREDICTED), ("recorded", TRUTH), ("two sigma", SECOND)])
    places = [(e, s) for w in starts.windows for e, s in zip(w.episode, w.start, strict=True)]
    parts = []
    for world in chosen:
        episode, start = places[world]
        where = f"Episode {int(episode)}, from {digits((int(start) + starts.context) * model.spec.dt)} s"
        parts.append(heading(where) + _sample(found, world))
    lead = "Starts spread evenly over the episodes, not chosen by how well they went."
    return section("Forecasts with bands", legend, *parts, lead=lead)


def _sample(found: Forecasts, world: int) -> str:
    model, path, truth = found.model, found.path, found.truth
    mean, true = (model.observation.join(x.q, x.qd, x.channels)[world, 1:] for x in (path, truth))
    seconds, band = [(k + 1) * model.spec.dt for k in range(len(mean))], found.std[world]
    plots = []
    for i in range(min(_MOST_COLUMNS, model.observation.size)):
        curves = [
            Curve(None, seconds, (mean[:, i] - 2 * band[:, i]).tolist(), SECOND, "--", 0.8),
            Curve(None, seconds, (mean[:, i] + 2 * band[:, i]).tolist(), SECOND, "--", 0.8),
            Curve(None, seconds, true[:, i].tolist(), TRUTH, "-", 4.0, 0.5),
            Curve(None, seconds, mean[:, i].tolist(), PREDICTED, "-", 1.2),
        ]
        name = f"{model.observation.names[i]} [{model.observation.units[i]}]"
        svg = plot(f"band-{world}-{i}", curves, x_label="time [s]", unit="", legend=False, description=name)
        plots.append(figure(svg, name))
    return grid(plots)


def errors(result: Forecast) -> str:
    """Return errors by horizon beside the persistence baseline and other models, in all columns and in each."""
    seconds = [(k + 1) * result.about.dt for k in range(result.about.horizon)]
    curves = [
        Curve(_label(name), seconds, values, _COLOURS[i % 4])
        for i, (name, values) in enumerate(result.by_frame.items())
    ]
    caption = "Mean absolute error of all columns, each in units of its standard deviation over the training data"
    svg = plot("by-frame", curves, x_label="time [s]", unit="", log=True, description=caption)
    rows = []
    for entry in result.at_horizon.values():
        columns = [entry.by_model[name].columns for name in result.by_frame]
        for i, (column, unit) in enumerate(zip(result.columns, result.units, strict=True)):
            cells = [MISSING if values is None else digits(values[i]) for values in columns]
            rows.append([f"{span(entry.seconds)}: {column} [{unit}]", *cells])
    body = table(["Horizon and column", *map(_label, result.by_frame)], rows, strong=1)
    noise = [
        [f"{size} standard deviations", *(digits(found.scaled or 0.0) for found in entry.marks.values())]
        for size, entry in result.noise.items()
    ]
    robust = table(["Noise on the history", *(f"{m} frames" for m in result.marks)], noise)
    lead = "At the horizon itself, mean over starts."
    return section("Errors by horizon", figure(svg, caption), body, heading("With noise added"), robust, lead=lead)


def calibration(result: Forecast) -> str:
    """Return coverage by horizon, rank correlations, and the epistemic standard deviation out of distribution."""
    rows = []
    for mark, entry in result.coverage.items():
        ranks = result.epistemic[mark].epistemic_rank, result.epistemic[mark].total_rank
        cells = [MISSING if value is None else digits(value) for value in ranks]
        rows.append([f"{mark} frames", share(entry.one_sigma), share(entry.two_sigma), *cells])
    rank = "Rank correlation of error and epistemic standard deviation"
    head = ["Horizon", "Within one sigma", "Within two", rank, "of error and total"]
    drawn = [
        [f"{factor} times as far from the mean", f"{digits(entry.ratio)}x", share(entry.chance_above_usual)]
        for factor, entry in result.out_of_distribution.by_factor.items()
    ]
    beyond = table(["States", "Epistemic standard deviation beside the usual", "Chance that it is above"], drawn)
    lead = (
        "A normal distribution has 68.3 % and 95.4 % within one and two standard deviations. The bands are scaled by "
        "factors that were fitted on validation episodes."
    )
    return section(
        "Calibration", table(head, rows, strong=2), heading("Out of distribution"), beyond, lead=lead
    )  # fmt: skip


def events(result: Forecast) -> str:
    """Return scores of contacts and termination."""
    rows = [
        [name, *map(share, (entry.rate, entry.recall, entry.precision, entry.balanced_accuracy))]
        for name, entry in result.events.items()
    ]
    head = ["Event", "Rate", "Recall", "Precision", "Balanced accuracy"]
    return section("Contacts and termination", table(head, rows) if rows else "")


def _label(name: str) -> str:
    return {"model": "this model", PERSISTENCE: "persistence"}.get(name, Path(name).name)
