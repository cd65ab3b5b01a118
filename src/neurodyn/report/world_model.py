# SPDX-License-Identifier: Apache-2.0
"""The page of a world model: forecasts with bands over the truth, errors by horizon, and how honest the bands are."""

from pathlib import Path
from typing import Any

import torch

from neurodyn.core.artifacts import resolve_run, write_text
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.world_model.artifact import WORLD_MODEL
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.evaluate.forecasts import window, windows_of
from neurodyn.evaluate.world_model_run import chosen_split, open_log_of
from neurodyn.learn.metrics import read_metrics
from neurodyn.report.numbers import MISSING, digits, share, span
from neurodyn.report.page import cards, code, facts, figure, grid, heading, page, paragraph, section, table
from neurodyn.report.plots import PREDICTED, SECOND, THIRD, TRUTH, Curve, legend_list, plot

_SAMPLES, _DRAWN = 3, 600
_MOST_COLUMNS = 8
_COLOURS = (PREDICTED, TRUTH, SECOND, THIRD)


def write_world_report(
    run: str, result: dict[str, Any], *, data: str | None = None, split: str | None = None, path: Path | None = None
) -> Path:
    """Write the report page of a world model, atomically, and return its path.

    Args:
        run: Run directory, or "pretrained:NAME".
        result: What `fit.evaluate_world_model.evaluate_world_model` returned.
        data: As of the evaluation.
        split: As of the evaluation.
        path: File to write; None for RUN/report.html.

    Raises:
        InputError: There is no such run, its data are gone, or the file cannot be written.
    """
    folder = resolve_run(run)
    store = open_log_of(run, data)
    path = folder / "report.html" if path is None else path
    body = [
        _header(result),
        samples(WORLD_MODEL.load(run), store, chosen_split(store, split), result["horizon"]),
        errors(result),
        honesty(result),
        events(result),
        training(folder),
        _reproduce(folder, run),
    ]
    write_text(path, page(f"{result['robot']}: world model", body))
    return path


def _header(result: dict[str, Any]) -> str:
    last = result["at_horizon"][str(result["horizon"])]
    near = min(result["marks"], key=lambda m: abs(m * result["dt"] - 0.25))
    entry, within = result["at_horizon"][str(near)], result["coverage"][str(near)]
    head = cards(
        [
            (digits(entry["model"]["spreads"] or 0.0), f"error after {span(near * result['dt'])}",
             f"spreads of the data; holding the last state {digits(entry['hold_last']['spreads'] or 0.0)}"),
            (share(within["2"]), "within two sigma there", "95.4 % of a normal distribution"),
            (digits(last["model"]["spreads"] or 0.0), f"error after {span(last['seconds'])}",
             f"holding the last state {digits(last['hold_last']['spreads'] or 0.0)}"),
        ]
    )  # fmt: skip
    entries = [
        ("Robot", result["robot"]),
        ("Ensemble", f"{result['members']} members ({result['network']}), {result['parameters']:,} weights"),
        ("Measured on", f"{result['episodes']} episodes ({result['split']}), {result['rollouts']:,} starts"),
        ("History", f"{result['context_frames']} frames of {digits(1e3 * result['dt'])} ms"),
    ]
    lead = "Learned from logs alone. Forecasts are open loop: nothing of the recorded motion is seen after their start."
    return "\n".join(
        [f"<header><h1>{result['robot']}: world model</h1>", paragraph(lead), "</header>", head, facts(entries)]
    )


@torch.no_grad()
def samples(model: WorldModel, store: Store, split: int | None, horizon: int) -> str:
    """Return forecasts with bands of two standard deviations over the truth, from evenly spread starts."""
    context = model.spec.context
    picked = windows_of(store, split, context + horizon, _DRAWN)[0]
    legend = legend_list([("forecast, mean of the members", PREDICTED), ("recorded", TRUTH), ("two sigma", SECOND)])
    count = len(picked.group)
    chosen = sorted({(2 * k + 1) * count // (2 * _SAMPLES) for k in range(_SAMPLES)})
    parts = [_sample(model, picked, world, context, horizon) for world in chosen]
    lead = "Starts spread evenly over the episodes, not chosen by how well they went."
    return section("Forecasts with bands", legend, *parts, lead=lead)


def _sample(model: WorldModel, picked: Windows, world: int, context: int, horizon: int) -> str:
    only = slice(world, world + 1)
    channels = None if picked.channels is None else picked.channels[only]
    truth = model.observation.join(picked.q[only], picked.qd[only], channels)
    past = window(model.observation, truth[:, : context + 1], picked.control[only, :context])
    path = model.rollout(past, picked.control[only, context:])
    assert path.aleatoric is not None  # a world model predicts both
    assert path.epistemic is not None
    band = torch.hypot(path.aleatoric, path.epistemic)[0]
    mean = model.observation.join(path.q, path.qd, path.channels)[0, 1:]
    seconds = [(k + 1) * model.spec.dt for k in range(horizon)]
    plots = []
    for i in range(min(_MOST_COLUMNS, model.observation.size)):
        curves = [
            Curve(None, seconds, (mean[:, i] - 2 * band[:, i]).tolist(), SECOND, "--", 0.8),
            Curve(None, seconds, (mean[:, i] + 2 * band[:, i]).tolist(), SECOND, "--", 0.8),
            Curve(None, seconds, truth[0, context + 1 :, i].tolist(), TRUTH, "-", 4.0, 0.5),
            Curve(None, seconds, mean[:, i].tolist(), PREDICTED, "-", 1.2),
        ]
        name = f"{model.observation.names[i]} [{model.observation.units[i]}]"
        svg = plot(f"band-{world}-{i}", curves, x_label="time [s]", unit="", legend=False, description=name)
        plots.append(figure(svg, name))
    where = (
        f"Episode {int(picked.episode[world])}, from {digits((int(picked.start[world]) + context) * model.spec.dt)} s"
    )
    return heading(where) + grid(plots)


def errors(result: dict[str, Any]) -> str:
    """Return errors by horizon beside holding the last state and other models, in all columns and in each."""
    seconds = [(k + 1) * result["dt"] for k in range(result["horizon"])]
    curves = [
        Curve(_label(name), seconds, values, _COLOURS[i % 4])
        for i, (name, values) in enumerate(result["by_frame"].items())
    ]
    caption = "Mean absolute error of all columns, each in units of its spread over the training data"
    svg = plot("by-frame", curves, x_label="time [s]", unit="", log=True, description=caption)
    names = list(result["by_frame"])
    rows = []
    for entry in result["at_horizon"].values():
        for i, column in enumerate(result["columns"]):
            cells = [MISSING if entry[n]["columns"] is None else digits(entry[n]["columns"][i]) for n in names]
            rows.append([f"{span(entry['seconds'])}: {column} [{result['units'][i]}]", *cells])
    body = table(["Horizon and column", *(_label(n) for n in names)], rows, strong=1)
    noise = [
        [f"{size} spreads", *(digits(entry[str(m)]["spreads"] or 0.0) for m in result["marks"])]
        for size, entry in result["noise"].items()
    ]
    robust = table(["Noise on the history", *(f"{m} frames" for m in result["marks"])], noise)
    lead = "At the horizon itself, mean over starts."
    return section("Errors by horizon", figure(svg, caption), body, heading("With noise added"), robust, lead=lead)


def honesty(result: dict[str, Any]) -> str:
    """Return coverage by horizon, rank correlations, and disagreement on states unlike those of the log."""
    rows = []
    for mark, entry in result["coverage"].items():
        rank = result["epistemic"][mark]
        rows.append(
            [
                f"{mark} frames",
                share(entry["1"]),
                share(entry["2"]),
                _number(rank["rank_correlation"]),
                _number(rank["spread_rank_correlation"]),
            ]
        )
    head = ["Horizon", "Within one sigma", "Within two", "Rank correlation of disagreement and error", "of the spread"]
    unlike = [
        [f"{factor} times as far from the mean", f"{digits(entry['ratio'])}x", share(entry["chance_above_usual"])]
        for factor, entry in result["unlike"].items()
        if isinstance(entry, dict)
    ]
    beyond = table(["States", "Disagreement beside the usual", "Chance that it is above"], unlike)
    lead = (
        "A normal distribution has 68.3 % and 95.4 % within one and two standard deviations. The bands are scaled by "
        "factors that were fitted on validation episodes, not on these."
    )
    return section(
        "Does it know how sure it is?", table(head, rows, strong=2), heading("Unlike the log"), beyond, lead=lead
    )


def events(result: dict[str, Any]) -> str:
    """Return scores of contacts and termination."""
    rows = [
        [name, *(share(entry[key]) for key in ("rate", "recall", "precision", "balanced_accuracy"))]
        for name, entry in result["events"].items()
    ]
    return (
        section("Contacts and termination", table(["Event", "Rate", "Recall", "Precision", "Balanced accuracy"], rows))
        if rows
        else ""
    )


def training(folder: Path) -> str:
    """Return the training curves."""
    lines = [line for line in read_metrics(folder) if "rollout_score" in line]
    if len(lines) < 2:
        return ""
    seconds = [line["seconds"] for line in lines]
    plots = []
    for key, caption in (
        ("rollout_score", "Held-out roll-out error, in spreads of the columns"),
        ("loss", "Training loss; its scale differs from phase to phase"),
    ):
        curve = Curve(None, seconds, [line.get(key) for line in lines], PREDICTED)  # type: ignore[arg-type]
        svg = plot(
            f"training-{key}", [curve], x_label="training time [s]", unit="", log=key != "loss", description=caption
        )
        plots.append(figure(svg, caption))
    return section("Training", grid(plots))


def _reproduce(folder: Path, run: str) -> str:
    path = folder / "config.yaml"
    if not path.is_file():
        return ""
    return section("Repeat it", code(f"neurodyn evaluate {run}"), code(path.read_text(encoding="utf-8")))


def _label(name: str) -> str:
    return {"model": "this model", "hold_last": "hold last"}.get(name, Path(name).name)


def _number(value: float | None) -> str:
    return MISSING if value is None else digits(value)
