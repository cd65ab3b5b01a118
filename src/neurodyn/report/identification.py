# SPDX-License-Identifier: Apache-2.0
"""RUN/report.html of an identification: parameters with intervals, errors by horizon, what the log does not see."""

from collections.abc import Callable
from pathlib import Path

from msgspec import UNSET

from neurodyn.core.artifacts import write_text
from neurodyn.identify.held_out import Errors
from neurodyn.identify.result import Identified, Sample
from neurodyn.report.numbers import MISSING
from neurodyn.report.page import Table, cards, facts, figure, grid, page, paragraph, section, tables
from neurodyn.report.plots import PREDICTED, SECOND, THIRD, TRUTH, Curve, plot

_COLOURS = {"nominal": THIRD, "identified": SECOND, "hybrid": PREDICTED}


def write_identification(run: Path, result: Identified, picture: Sample) -> Path:
    """Write the page of an identification, atomically.

    Args:
        run: Run directory.
        result: The figures that `identify.identify` returns.
        picture: Its sample.
    """
    path = run / "report.html"
    write_text(path, render_identification(result, picture))
    return path


def render_identification(result: Identified, picture: Sample) -> str:
    """Return the page as HTML."""
    intervals = "Intervals hold for the model's own parameters, before networks are added."
    body = [
        f"<header><h1>{'Hybrid' if result.weights else 'Identified'} dynamics</h1></header>",
        paragraph(lead(result)),
        _headline(result),
        *(paragraph(f"Warning: {text}") for text in result.warnings),
        section("Parameters", parameters(result).html(), lead=intervals),
        section("Logs", by_log(result).html()) if by_log(result).rows else "",
        section("Errors on held-out windows", *tables(errors(result)), lead=errors_lead(result)),
        _window(picture),
        _sight(result),
        _facts(result),
    ]
    return page(f"{result.robot}: identified", body)


def lead(result: Identified) -> str:
    """Return what was identified from what, in a sentence."""
    networks = f", and networks of {result.weights:,} weights" if result.weights else ""
    return (
        f"{result.robot}: {len(result.parameters)} parameters{networks}, from {result.windows} windows of "
        f"{result.horizon_s:g} s out of {result.logs} logs."
    )


def _headline(result: Identified) -> str:
    last = "hybrid" if "hybrid" in result.errors else "identified"
    entries = []
    for mark, entry in result.errors[last].items():
        before, now = result.errors["nominal"][mark].errors.q_mean, entry.errors.q_mean
        if now is not None and before:
            remark = f"nominal {before:.3g}; {now / before:.2f} of it"
            entries.append((f"{now:.3g}", f"mean position error at {mark} s", remark))
    return cards(entries) if entries else ""


def parameters(result: Identified) -> Table:
    """Return the free quantities with their intervals."""
    networks = any(entry.with_networks is not UNSET for entry in result.parameters)
    rows = []
    for entry in result.parameters:
        interval = entry.interval
        seen = "not identified" if interval is None else f"{interval[0]:.4g} – {interval[1]:.4g}"
        row = [entry.name, f"{entry.value:.4g}", seen, f"{entry.nominal:.4g}"]
        rows.append([*row, f"{entry.with_networks:.4g}"] if networks else row)
    head = ["Parameter", "Identified", "95 % interval", "Nominal", *(["With networks"] if networks else [])]
    return Table("Parameters (SI units)", head, rows, strong=1)


def by_log(result: Identified) -> Table:
    """Return the quantities that differ from log to log, with the standard deviation of each value."""
    entries = [(entry.name, entry.by_log) for entry in result.parameters if entry.by_log is not UNSET]
    logs = list(entries[0][1]) if entries else []
    rows = [[log, *(f"{found[log].value:.4g} ± {found[log].deviation:.2g}" for _, found in entries)] for log in logs]
    return Table("Quantities of each log (SI units)", ["Log", *(name for name, _ in entries)], rows)


def errors(result: Identified) -> list[Table]:
    """Return errors on held-out windows by model, positions and velocities, beside the noise floor."""
    titles: dict[str, Callable[[Errors], float | None]] = {
        "Positions [rad or m]": lambda found: found.q_mean,
        "Velocities [rad/s or m/s]": lambda found: found.qd_mean,
    }
    marks, found = list(result.noise_floor), {**result.errors, "sensors' noise alone": result.noise_floor}
    return [
        Table(
            title,
            ["Model", *(f"{mark} s" for mark in marks)],
            [
                [name, *(f"{_number(mean(by[mark].errors))} ({_number(mean(by[mark].moving))})" for mark in marks)]
                for name, by in found.items()
            ],
        )
        for title, mean in titles.items()
    ]


def errors_lead(result: Identified) -> str:
    """Return what the errors are means over."""
    held = result.held_out
    return (
        f"Open-loop forecasts of {held.starts:,} windows of the {held.split} split, from states as {held.start}; mean "
        f"absolute error at the horizon (in brackets over the {held.moving_starts:,} windows whose mean joint speed is "
        f"above {held.moving_above:g})."
    )


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3g}"


def _window(picture: Sample) -> str:
    figures = []
    for row, name in enumerate(picture.names):
        logged = picture.logged[row]
        time = [picture.dt * frame for frame in range(len(logged))]
        curves = [Curve("logged", time, logged, TRUTH, "-", 2.2)]
        for model, path in picture.paths.items():
            curves.append(Curve(model, time, path[row], _COLOURS.get(model, THIRD), "--", 1.3))
        caption = f"Position of {name}, logged and forecast"
        figures.append(figure(plot(f"window-{row}", curves, x_label="time [s]", unit="", description=caption), caption))
    return section("A held-out window", grid(figures))


def _sight(result: Identified) -> str:
    values = result.singular_values
    curve = Curve(None, list(range(1, len(values) + 1)), values, PREDICTED, "-", 1.5)
    caption = f"Singular values of the scaled Jacobian; condition number {result.condition:.3g}"
    svg = plot("singular", [curve], x_label="number", unit="", log=True, bars=True, description=caption)
    rows = [[entry.direction, f"{entry.deviation:.3g}"] for entry in result.insensitive]
    head = ["Direction that the logs do not see", "Standard deviation [sizes]"]
    words = (
        "Columns are scaled by the sizes of the parameters, residuals by their standard deviations, and starting "
        "states are eliminated. 1 / s is how well a direction is known, as a share of the parameters' sizes."
    )
    return section("What the logs see", figure(svg, caption), Table(caption, head, rows).html(), lead=words)


def _facts(result: Identified) -> str:
    entries = [
        ("Noise", ", ".join(f"{name} {value:.2g}" for name, value in result.noise.items())),
        ("Residuals", ", ".join(f"{name} {value:.2g}" for name, value in result.scale.items())),
        ("Wall time", f"{result.seconds:.0f} s"),
        ("Seed", str(result.seed)),
    ]
    return section("How", facts(entries))
