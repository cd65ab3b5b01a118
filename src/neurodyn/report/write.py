# SPDX-License-Identifier: Apache-2.0
"""RUN/report.html: one self-contained page on a model, from an evaluation."""

from functools import singledispatch
from pathlib import Path

from neurodyn.core.artifacts import write_text
from neurodyn.evaluate.records import Evaluation, Forecast, Logged, Simulated, Tossed
from neurodyn.report import accuracy, forecast, log, overview, samples
from neurodyn.report.calibration import member_section
from neurodyn.report.gather import Material, gather
from neurodyn.report.page import page, section, tables
from neurodyn.report.reproduce import reproduce
from neurodyn.report.training import training
from neurodyn.report.whole_runs import whole_runs
from neurodyn.report.words import member_parts, tossed_parts


def write_report(
    run: Path, result: Evaluation, *, path: Path | None = None, moving: bool = True, data: str | None = None
) -> Path:
    """Write the report page of a model, atomically.

    Args:
        run: Run directory.
        result: What `evaluate.evaluate` returned.
        path: File to write; None for the page of an evaluation with all defaults, see `report_path`.
        moving: Whether the page gets a moving picture, which takes some seconds to render.
        data: Log that the evaluation was given.

    Returns:
        The file.

    Raises:
        InputError: There is no such run, or the file cannot be written.
    """
    material = gather(Path(run), result, moving=moving, data=data)
    path = report_path(Path(run)) if path is None else path
    write_text(path, render_report(material))
    return path


def report_path(run: Path, flags: tuple[str, ...] = ()) -> Path:
    """Return where the page of an evaluation goes: RUN/report.html, or RUN/report-FLAGS.html.

    Only an evaluation with all defaults owns report.html (of a run that was identified, whose identification does,
    evaluation.html): others would replace it by less.

    Args:
        run: Run directory.
        flags: What the evaluation was asked for beyond the defaults, as "horizon-50".
    """
    stem = "evaluation" if (run / "identification.json").is_file() else "report"
    name = "".join(c if c.isalnum() or c in ".-_" else "-" for c in "-".join([stem, *flags]))
    return run / f"{name}.html"


def render_report(material: Material) -> str:
    """Return the report as HTML."""
    body = [
        overview.header(material),
        overview.headline(material),
        samples.moving(material),
        overview.about(material),
        *_measured(material.result, material),
        reproduce(material),
        _footer(),
    ]
    about = material.result.about
    return page(f"{about.robot}: {about.kind} dynamics", body)


@singledispatch
def _measured(result: Simulated, material: Material) -> list[str]:
    """Return what was measured, and how the training went."""
    return accuracy.simulated_sections(result, samples.trajectories(material), training(material))


@_measured.register
def _(result: Tossed, material: Material) -> list[str]:
    parts, dt = tossed_parts(result), result.about.dt
    stride = "each one" if result.stride == 1 else f"one in {result.stride}"
    lead = (
        "Open loop: the model gets one recorded state, nothing before it and nothing after it. A roll-out begins at "
        f"every recorded state ({stride}) that has enough frames behind it; first states are those of episodes. "
    )
    return [
        section("Errors on recorded trajectories", *tables(accuracy.by_horizon(parts, dt)), lead=lead + accuracy.LEAD),
        accuracy.over_time(parts, dt),
        member_section(member_parts(result)),
        samples.trajectories(material),
        log.recordings(result.notes),
        training(material),
    ]


@_measured.register
def _(result: Logged, material: Material) -> list[str]:
    whole = whole_runs(material.whole, material.robot.spec, result.about.horizon) if material.robot else ""
    return log.logged_sections(result, samples.trajectories(material) + whole, training(material))


@_measured.register
def _(result: Forecast, material: Material) -> list[str]:
    return forecast.forecast_sections(result, material.bands, training(material))


def _footer() -> str:
    from importlib.metadata import version

    words = "Every figure on this page comes from the run and its evaluation."
    return f"<footer>neurodyn {version('neurodyn')}. {words}</footer>"
