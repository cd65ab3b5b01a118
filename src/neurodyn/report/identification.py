# SPDX-License-Identifier: Apache-2.0
"""RUN/report.html of an identification or adaptation: sentences, curves of held-out motion, quantities, then tables."""

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import UNSET, UnsetType

from neurodyn.core.artifacts import write_text
from neurodyn.core.glossary import explanations
from neurodyn.identify.ladder.forecasts import Forecasts, read_forecasts
from neurodyn.identify.result import CoordinateErrors, IdentificationFigures, IdentifiedParameter, RunFit
from neurodyn.identify.unknowns.priors import NORMAL, PRIORS
from neurodyn.report import adaptation
from neurodyn.report.held_out import growth_lead, growth_plots, rest_plots, windows_section
from neurodyn.report.numbers import MISSING, count, title_of
from neurodyn.report.page import (
    ForestRow,
    Table,
    facts,
    fold,
    forest,
    glossary,
    grid,
    header,
    page,
    paragraph,
    section,
    sentence_list,
    tables,
    verdict_box,
)
from neurodyn.report.plots import PREDICTED, QUIET, SECOND, THIRD, TRUTH, PlotCurve, plot
from neurodyn.report.sentences import at_bound, change, declared_text, has_changed, phrase, sentences

_POINTS = 2400  # points per whole run, enough for zooming in
_ENDS = (
    "The best results of the search from several starts, refined on all windows. If different ones fit equally well, "
    "the logs do not distinguish between them."
)
_LEAST, _MOST = 3.0, 8.0
"""Range of the ends of a forest plot's axis, in standard deviations of priors."""
_SHARE, _SHARES = 0.2, 2.0
"""The same without priors, as shares of declared values."""
_COLOURS = {"nominal": THIRD, "identified": SECOND, "hybrid": PREDICTED}


def write_identification(run: Path, result: IdentificationFigures, runs: Sequence[RunFit] = ()) -> Path:
    """Write the page of an identification or adaptation to its run, atomically, and return its path.

    Curves come from RUN/forecasts.json; `runs` has the fits of whole runs.
    """
    verb = "adapted to" if result.rungs else "identified from"
    path = run / "report.html"
    curves = read_forecasts(run)
    body = [
        header(f"{result.robot}: {verb} its logs", source(result), eyebrow=f"neurodyn · {run}"),
        *opening(result),
        *evidence(result, curves),
        section("What remains unexplained", *_rest(result, curves), lead=adaptation.LEFT),
        _next(result),
        section("All quantities", *tables(_quantities(result)), lead="" if result.rungs else convergence(result)),
        section("The logs", *tables(_logs(result)), lead=adaptation.log_lead(result.log) if result.log else ""),
        section("Where searches ended", ends(result).html(), lead=_ENDS),
        _profiles(result),
        section("Sensors", sensors(result).html()),
        section("Torques", torques(result).html()),
        section("Errors on held-out windows", *tables(errors(result)), lead=errors_lead(result)),
        _runs(result, runs),
        _sight(result),
        _facts(result),
    ]
    write_text(path, page(f"{result.robot}: {verb} its logs", body))
    return path


def opening(result: IdentificationFigures) -> list[str]:
    """Return what a reader needs first: sentences, verdict, and warnings."""
    warnings = [*(result.log.warnings if result.log else ()), *result.warnings]
    return [
        sentence_list(sentences(result)),
        "" if result.verdict is UNSET else verdict_box(result.verdict, result.findings),
        *(paragraph(f"Warning: {text}", "note") for text in warnings),
    ]


def evidence(result: IdentificationFigures, curves: Forecasts | None) -> list[str]:
    """Return what the sentences rest on: the log beside the models, errors over the horizon, and quantities."""
    confidence = "90 %" if any(one.in_prior is not UNSET for one in result.parameters) else "95 %"
    return [
        "" if curves is None else windows_section(curves),
        _growth(result, curves),
        _forest_section(result.parameters, confidence),
    ]


def source(result: IdentificationFigures) -> str:
    """Say what was identified from what data."""
    networks = f", and networks of {result.weights:,} weights" if result.weights else ""
    number = len(result.parameters)
    of = "1 quantity" if number == 1 else f"{number} quantities"
    length = f", {result.log.minutes:.1f} minutes at {result.log.rate:.0f} Hz" if result.log else ""
    return (
        f"{of}{networks}, from {count(result.windows, 'window')} of {result.horizon_s:g} s out of "
        f"{count(result.logs, 'log')}{length}."
    )


def _growth(result: IdentificationFigures, curves: Forecasts | None) -> str:
    """Return errors over the horizon, with tables of a ladder, and what the names of its models mean."""
    beside = adaptation.reference_errors(result)
    drawn = [] if curves is None else [title_of(name) for models in curves.growth.values() for name in models]
    points = {name: groups for name, groups in beside.items() if title_of(name) not in drawn}
    plots = "" if curves is None else growth_plots(curves, points, result.horizons)
    found = tables([*adaptation.errors(result), adaptation.steps(result)]) if result.rungs else []
    names = [*(rung.name for rung in result.rungs), *beside] or (list(result.errors) if curves else [])
    names += ["hold-last", "constant-velocity"] if curves is not None else []
    words = explanations(map(title_of, names))
    return section("Error over the horizon", plots, *found, glossary(words) if words else "", lead=growth_lead(curves))


def _rest(result: IdentificationFigures, curves: Forecasts | None) -> list[str]:
    if not result.unexplained:
        return []
    return [
        *([] if curves is None else [rest_plots(curves)]),
        *tables([*adaptation.unexplained_tables(result), adaptation.tried_structures(result)]),
    ]


def _next(result: IdentificationFigures) -> str:
    if result.next is UNSET:
        return ""
    parts = [*tables([adaptation.following(result), adaptation.limits(result)])] or [
        paragraph("No motion is proposed.")
    ]
    return section("What to log next", *parts, lead=adaptation.next_lead(result))


def _quantities(result: IdentificationFigures) -> list[Table]:
    return [adaptation.quantities(result.parameters) if result.rungs else parameters(result), by_log(result)]


def _logs(result: IdentificationFigures) -> list[Table]:
    return [adaptation.differences(result), *([adaptation.log(result.log)] if result.log else [])]


def convergence(result: IdentificationFigures) -> str:
    """Describe whether the search converged, and the source of the intervals."""
    if not result.converged:
        return f"Not converged: {result.reason}. There are no intervals."
    how = f"the sandwich covariance over {result.blocks}"
    if result.intervals == "torques":
        how = f"the covariance of torques and prior, {result.blocks}"
    if result.resamples is not UNSET:
        how = f"{result.resamples} resamples of {result.blocks}"
    return (
        f"Converged: {result.reason}. Intervals come from {how}, and hold for the model's own parameters, before "
        "networks are added."
    )


def torques(result: IdentificationFigures) -> Table:
    """Return the torque errors of inverse dynamics; empty for roll-outs."""
    found = result.torque
    head = ["Joint", "Logged", "Declared misses", "Identified misses", "Of declared"]
    if found is UNSET:
        return Table("Torques", head, [])
    rows = [
        [name, f"{size:.3g}", f"{(nominal := found.nominal[name]):.3g}", f"{(now := found.identified[name]):.3g}",
         f"{now / max(nominal, 1e-12):.2f}"]
        for name, size in found.logged.items()
    ]  # fmt: skip
    return Table(f"Torques of the {found.split} split, root mean square [N m or N]", head, rows, strong=3)


def parameters(result: IdentificationFigures) -> Table:
    """Return the free quantities with their intervals, or the reason for a missing interval."""
    columns: dict[str, Callable[[IdentifiedParameter], str]] = {
        "Parameter": lambda entry: entry.name,
        "Identified": lambda entry: f"{entry.value:.4g}",
        "95 % interval": lambda entry: _between(entry.interval) if entry.why_not is UNSET else f"none: {entry.why_not}",
    }
    if any(entry.sandwich is not UNSET for entry in result.parameters):
        columns["By the sandwich"] = lambda entry: MISSING if entry.sandwich is UNSET else _between(entry.sandwich)
    columns["Declared"] = lambda entry: f"{entry.nominal:.4g}"
    if any(entry.prior is not UNSET for entry in result.parameters):
        columns["Prior"] = lambda entry: MISSING if entry.prior is UNSET else _prior(entry.prior, entry.prior_kind)
    if any(entry.with_networks is not UNSET for entry in result.parameters):
        columns["With networks"] = lambda entry: f"{entry.with_networks:.4g}"
    rows = [[cell(entry) for cell in columns.values()] for entry in result.parameters]
    return Table("Parameters (SI units)", list(columns), rows, strong=1)


def ends(result: IdentificationFigures) -> Table:
    """Return the minima found from several starts; empty for one start."""
    found = result.ends
    if found is UNSET:
        return Table("", [], [])
    costs = [f"{cost / found.costs[0]:.4g}" if found.costs[0] else f"{cost:.4g}" for cost in found.costs]
    rows = [["cost over the lowest", *costs], *([n, *(f"{v:.4g}" for v in by)] for n, by in found.values.items())]
    head = ["", *(f"end {k + 1}" for k in range(len(costs)))]
    return Table(f"Where searches from {found.starts} starts ended", head, rows)


def runs(result: IdentificationFigures) -> Table:
    """Return the RMS residuals of whole runs by model."""
    models = list(result.runs[0].q) if result.runs else []
    head = ["Run", "Length", *map(title_of, models), "sensors' noise alone"]
    rows = [
        [entry.run, f"{entry.seconds:.3g} s", *(f"{entry.q[name]:.3g}" for name in models), f"{entry.floor:.3g}"]
        for entry in result.runs
    ]
    return Table(f"Residuals of whole runs, {result.horizon_s:g} s at a time [rad or m, rms]", head, rows)


def by_log(result: IdentificationFigures) -> Table:
    """Return the quantities that vary between logs, with the standard deviation of each value."""
    entries = [(entry.name, entry.by_log) for entry in result.parameters if entry.by_log is not UNSET]
    logs = list(entries[0][1]) if entries else []
    rows = [[log, *(f"{found[log].value:.4g} ± {found[log].deviation:.2g}" for _, found in entries)] for log in logs]
    return Table("Quantities of each log (SI units)", ["Log", *(name for name, _ in entries)], rows)


def sensors(result: IdentificationFigures) -> Table:
    """Return the errors of sensors on held-out windows."""
    rows = [
        [name, f"{entry.nominal:.3g}", f"{entry.identified:.3g}", f"{entry.noise:.3g}"]
        for name, entry in result.sensors.items()
    ]
    title = "Sensors on held-out windows: root mean square (SI units)"
    return Table(title, ["Reading", "Declared", "Identified", "Noise of the fit"], rows)


def errors(result: IdentificationFigures) -> list[Table]:
    """Return errors of positions and velocities on held-out windows by model, with the noise floor."""
    titles: dict[str, Callable[[CoordinateErrors], float | None]] = {
        "Positions [rad or m]": lambda found: found.q_mean,
        "Velocities [rad/s or m/s]": lambda found: found.qd_mean,
    }
    if not result.errors:
        return []
    marks, found = list(result.noise_floor), {**result.errors, "sensors' noise alone": result.noise_floor}
    return [
        Table(
            title,
            ["Model", *(f"{mark} s" for mark in marks)],
            [
                [
                    title_of(name),
                    *(f"{_number(mean(by[mark].errors))} ({_number(mean(by[mark].moving))})" for mark in marks),
                ]
                for name, by in found.items()
            ],
        )
        for title, mean in titles.items()
    ]


def errors_lead(result: IdentificationFigures) -> str:
    """Describe the held-out windows."""
    held = result.held_out
    if held is UNSET:
        return ""
    return (
        f"Open-loop forecasts of {held.starts:,} windows of the {held.split} split, from states as {held.start}; mean "
        f"absolute error at the horizon (in brackets over the {held.moving_starts:,} windows whose mean joint speed is "
        f"above {held.moving_above:g})."
    )


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3g}"


def _prior(width: float, kind: str | UnsetType) -> str:
    return PRIORS[NORMAL if kind is UNSET else kind].words(width)


def _between(interval: list[float] | None) -> str:
    return MISSING if interval is None else f"{interval[0]:.4g} – {interval[1]:.4g}"


def _profiles(result: IdentificationFigures) -> str:
    intervals = {entry.name: entry.interval for entry in result.parameters}
    figures = []
    for number, (name, found) in enumerate((result.profiles or {}).items()):
        rise = [float("nan") if value is None else value for value in found.rise]
        curves = [
            PlotCurve("profile", found.values, rise, PREDICTED, "-", 1.8),
            PlotCurve("end of the interval", [found.values[0], found.values[-1]], [found.bound] * 2, QUIET, "--", 1.0),
        ]
        interval = intervals[name]
        if interval is not None:
            middle = 0.5 * (found.values[0] + found.values[-1])
            half = 0.5 * (interval[1] - interval[0])
            parabola = [found.bound * ((value - middle) / half) ** 2 for value in found.values]
            curves.insert(1, PlotCurve("parabola of the interval", found.values, parabola, SECOND, ":", 1.3))
        figures.append(plot(f"profile-{number}", curves, x_label=name, caption=f"Profile likelihood of {name}"))
    words = (
        "Twice the increase of the cost as one quantity is moved and all others, initial states included, are "
        "refitted, in variances of the residuals. Where a profile leaves the parabola, the sandwich interval is wrong."
    )
    return section("Profile likelihoods", grid(figures), lead=words)


def _runs(result: IdentificationFigures, fits: Sequence[RunFit]) -> str:
    figures = []
    for number, fit in enumerate(fits):
        time = [fit.dt * (frame + 1) for frame in range(len(fit.logged[0]))]
        for row, name in enumerate(fit.names):
            curves = [PlotCurve("logged", time, fit.logged[row], TRUTH, "-", 2.2)]
            curves += [
                PlotCurve(title_of(m), time, p[row], _COLOURS.get(m, THIRD), "-", 1.0) for m, p in fit.paths.items()
            ]
            figures.append(plot(f"run-{number}-{row}", curves, caption=f"{name} in {fit.run}", points=_POINTS))
        for row, name in enumerate(fit.tangent_names):
            curves = [
                PlotCurve(title_of(m), time, p[row], _COLOURS.get(m, THIRD), "-", 1.0) for m, p in fit.residuals.items()
            ]
            for band, label in ((2.0 * fit.floor[row], "± 2 sigma of the noise"), (-2.0 * fit.floor[row], None)):
                curves.append(PlotCurve(label, [time[0], time[-1]], [band] * 2, TRUTH, "--", 1.0))
            caption = f"Residual of {name} in {fit.run}"
            figures.append(plot(f"residual-{number}-{row}", curves, caption=caption, points=_POINTS))
    words = (
        f"Held-out runs, rolled out {result.horizon_s:g} s at a time. The band is the residual of a perfect model "
        "under the sensors' noise: residuals beyond it are errors of the model or of the torques."
    )
    return section("Whole runs", runs(result).html(), grid(figures), lead=words)


def _sight(result: IdentificationFigures) -> str:
    values = result.singular_values
    curve = PlotCurve(None, list(range(1, len(values) + 1)), values, PREDICTED, "-", 1.5)
    caption = f"Singular values of the scaled Jacobian; condition number {result.condition:.3g}"
    drawn = plot("singular", [curve], x_label="number", log=True, bars=True, caption=caption)
    rows = [[entry.direction, f"{entry.deviation:.3g}"] for entry in result.insensitive]
    head = ["Direction that the logs do not see", "Standard deviation [sizes]"]
    words = (
        "Columns are scaled by the sizes of the parameters, residuals by their standard deviations, and starting "
        "states are eliminated. 1 / s is how well a direction is known, as a share of the parameters' sizes."
    )
    return section("What the logs see", grid([drawn]), Table(caption, head, rows).html(), lead=words)


def _facts(result: IdentificationFigures) -> str:
    entries = [
        ("Noise", ", ".join(f"{name} {value:.2g}" for name, value in result.noise.items())),
        ("Residuals", ", ".join(f"{name} {value:.2g}" for name, value in result.scale.items())),
        ("Delay of motors", "" if result.delay is UNSET else result.delay.text),
        ("Wall time", f"{result.seconds:.0f} s"),
        ("CPU time", f"{result.cpu_seconds:.0f} s"),
        *([("Values of", result.stage)] if result.stage else []),
        ("Seed", str(result.seed)),
    ]
    return section("How", facts(entries))


def _forest_section(parameters: Sequence[IdentifiedParameter], confidence: str) -> str:
    """Return what the logs tell of each quantity, largest changes first; undetermined ones are folded."""
    told = sorted((one for one in parameters if one.determined), key=_order)
    silent = [one for one in parameters if not one.determined]
    rows = {one.name: _row(one) for one in parameters}
    scaled = any(_prior_scaled(one) for one in parameters)
    ends = (_LEAST, _MOST) if scaled else (_SHARE, _SHARES)
    reach = round(min(max([1.15 * abs(row.value) for row in rows.values()] + [ends[0]]), ends[1]), 2)
    shown = [_within(rows[one.name], reach) for one in told]
    folds = []
    if silent:
        verb, which = ("quantity stays", "it") if len(silent) == 1 else ("quantities stay", "them")
        title = f"{len(silent)} {verb} as declared: the logs do not determine {which}"
        folds = [fold(title, forest((_within(rows[one.name], reach) for one in silent), reach, band=scaled))]
    lead = (
        "The axis is in standard deviations of what was known before the logs (the prior): the dashed line is its "
        "centre, the declared value, and the shaded band one standard deviation. "
        if scaled
        else "The axis is the change relative to the declared value, the dashed line. "
    )
    lead += (
        f"Dots are values, bars {confidence} intervals, upright strokes bounds of the search. Orange: the declared "
        "value is outside of the interval. Red: at a bound, so take it as a hint that something else differs."
    )
    parts = [forest(shown, reach, band=scaled)] if shown else [paragraph("The logs tell none of the quantities.")]
    return section("What differs from the declaration", *parts, *folds, lead=lead) if parameters else ""


def _order(one: IdentifiedParameter) -> tuple[int, float]:
    return (0 if at_bound(one) else 1 if has_changed(one) else 2), -change(one)


def _prior_scaled(one: IdentifiedParameter) -> bool:
    return one.in_prior is not UNSET or (one.prior is not UNSET and one.prior > 0)


def _row(one: IdentifiedParameter) -> ForestRow:
    words = (
        f"{phrase(one)}; declared {declared_text(one)}"
        if one.determined
        else f"declared {declared_text(one)} {one.unit}"
    )
    state = "silent" if not one.determined else "bound" if at_bound(one) else "changed" if has_changed(one) else "same"
    if one.in_prior is not UNSET:
        scaled = one.in_prior
        low, high = scaled.interval
        return ForestRow(one.name, words, scaled.value, low, high, tuple(scaled.bounds), scaled.declared, state)
    size = one.prior if one.prior is not UNSET and one.prior > 0 else abs(one.nominal)
    if not size:
        size = max(map(abs, one.interval or (one.value,)), default=0.0) or 1.0
    low, high = (None, None) if one.interval is None else ((end - one.nominal) / size for end in one.interval)
    return ForestRow(one.name, words, (one.value - one.nominal) / size, low, high, (), 0.0, state)


def _within(row: ForestRow, reach: float) -> ForestRow:
    """Return a row cut to the axis, with numbers of few digits."""

    def clip(value: float) -> float:
        return round(min(max(value, -reach), reach), 3)

    return ForestRow(
        row.name, row.words, clip(row.value), None if row.low is None else clip(row.low),
        None if row.high is None else clip(row.high),
        tuple(round(end, 3) for end in row.bounds if abs(end) <= reach), clip(row.declared), row.state,
    )  # fmt: skip
