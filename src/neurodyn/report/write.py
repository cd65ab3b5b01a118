# SPDX-License-Identifier: Apache-2.0
"""RUN/report.html: one self-contained page on a model, from the plain data of an evaluation."""

from pathlib import Path
from typing import Any

from neurodyn.core.artifacts import write_text
from neurodyn.report import errors, log, overview, samples, tosses
from neurodyn.report.gather import Material, gather
from neurodyn.report.page import page
from neurodyn.report.reproduce import reproduce
from neurodyn.report.training import training


def write_report(run: Path, report: dict[str, Any], *, path: Path | None = None, moving: bool = True) -> Path:
    """Write the report page of a model, atomically.

    Args:
        run: Run directory.
        report: What `fit.evaluate.evaluate` or `fit.evaluate_log.evaluate_log` returned.
        path: File to write; None for RUN/report.html, of a hybrid model, whose identification wrote that, for
            RUN/evaluation.html.
        moving: Whether the page gets a moving picture, which takes some seconds to render.

    Returns:
        The file.

    Raises:
        InputError: There is no such run, or the file cannot be written.
    """
    material = gather(Path(run), report, moving=moving)
    name = "report.html" if material.model is not None else "evaluation.html"
    path = Path(run) / name if path is None else path
    write_text(path, render_report(material))
    return path


def render_report(material: Material) -> str:
    """Return the report as HTML."""
    body = [
        overview.header(material),
        overview.headline(material),
        samples.moving(material),
        overview.about(material),
        *_measured(material),
        log.data(material) if material.of_log else "",
        training(material),
        "" if material.of_log else errors.speed(material),
        reproduce(material),
        _footer(),
    ]
    return page(f"{material.report['robot']}: {material.report['kind']} dynamics", body)


def _measured(material: Material) -> list[str]:
    """Return the sections on errors."""
    if material.of_tosses:
        return [tosses.by_horizon(material), tosses.over_time(material), samples.trajectories(material)]
    if material.of_log:
        return [
            log.at_horizons(material), samples.trajectories(material), log.by_group(material), log.by_joint(material)
        ]  # fmt: skip
    return [
        errors.by_horizon(material),
        errors.grounds(material),
        errors.floors(material),
        errors.over_time(material),
        errors.limits(material),
        samples.trajectories(material),
        errors.energy(material),
        errors.stability(material),
    ]


def _footer() -> str:
    from importlib.metadata import version

    words = "Every figure on this page comes from the run and its evaluation."
    return f"<footer>neurodyn {version('neurodyn')}. {words}</footer>"
