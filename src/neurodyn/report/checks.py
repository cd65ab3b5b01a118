# SPDX-License-Identifier: Apache-2.0
"""Report of a check: verdicts, advice, and measurements."""

from pathlib import Path

from neurodyn.core.artifacts import write_text
from neurodyn.evaluate.checks.findings import CheckFinding, RobotCheck
from neurodyn.evaluate.checks.joint_limits import JointLimits
from neurodyn.evaluate.checks.motion import AtRest, StepConvergence
from neurodyn.evaluate.metrics import shown_metrics
from neurodyn.report.numbers import MISSING, capital, digits, quantity, share, span
from neurodyn.report.page import Table, render_page

_VERDICTS = {"ok": "can be learned from", "warning": "can be learned from, with warnings", "fails": "cannot be trusted"}


def write_check(path: Path, result: RobotCheck) -> Path:
    """Write the page of a check (`evaluate.check`), atomically, and return its path."""
    rows = [[*row(finding), finding.note, finding.advice] for finding in result.findings]
    head = ["Check", "Measured", "Bound", "Verdict", "Of", "What to change"]
    html = render_page(
        f"{result.robot}: check", "check.html", robot=result.robot, lead=lead(result), rest=_rest(result),
        verdicts=Table("Verdicts", head, rows, strong=3), convergence=_convergence(result), limits=_limits(result),
    )  # fmt: skip
    write_text(Path(path), html)
    return Path(path)


def lead(result: RobotCheck) -> str:
    """Return a sentence with the verdict."""
    options = result.simulator
    ground = "in free space" if result.ground is None else f"on {result.ground}"
    return (
        f"{result.robot} {ground}: the reference simulator ({options['solver']}, {options['substeps']} substeps in a "
        f"frame of {span(result.dt)}) {_VERDICTS[result.verdict]}."
    )


def row(finding: CheckFinding) -> tuple[str, str, str, str]:
    """Return the measured quantity, its value, its bound and the verdict."""
    value = "not finite" if finding.value is None and finding.unit else _value(finding, finding.value)
    return finding.what, value, _value(finding, finding.bound), finding.verdict


def advice(result: RobotCheck) -> list[str]:
    """Return what to change: one line per row that is not ok."""
    lines = []
    for finding in result.findings:
        if finding.verdict != "ok":
            of = f" ({finding.note})" if finding.note else ""
            lines.append(f"{finding.verdict}: {finding.what}{of}: {finding.advice}".removesuffix(": "))
    return lines


def _value(finding: CheckFinding, value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:,.0f}" if not finding.unit else quantity(value, finding.unit)


def _convergence(result: RobotCheck) -> list[Table]:
    figures = result.checks["convergence"].figures if "convergence" in result.checks else None
    if not isinstance(figures, StepConvergence):
        return []
    tables = []
    for words, errors in (("random control", figures.driven), ("from resets", figures.settling)):
        rows = [
            [f"{metric.title}, {horizon} frames",
             *(quantity(table[horizon].median(name), metric.unit)
               for table in (errors.declared, errors.half, errors.motion))]
            for horizon, summary in errors.declared.items()
            for name, metric in shown_metrics(summary).items()
        ]  # fmt: skip
        tables.append(Table(capital(words), ["Error", "Declared step", "Half the step", "Motion"], rows))
    return tables


def _limits(result: RobotCheck) -> list[Table]:
    figures = result.checks["joint_limits"].figures if "joint_limits" in result.checks else None
    if not isinstance(figures, JointLimits):
        return []
    rows = [
        [
            f"{test.joint}, {test.side}", digits(test.effort), quantity(test.overshoot, ""),
            share(None if test.overshoot is None else test.overshoot / test.range),
            MISSING if test.settled_s is None else span(test.settled_s), quantity(test.swing, ""),
        ]
        for test in figures.tests
    ]  # fmt: skip
    head = ["Joint", "Effort", "Overshoot [rad or m]", "of its range", "Settled after", "Swing at the end"]
    return [Table("Limits", head, rows)]


def _rest(result: RobotCheck) -> list[Table]:
    figures = result.checks["rest"].figures if "rest" in result.checks else None
    if not isinstance(figures, AtRest):
        return []
    rows = [
        [name, quantity(rest.depth, "m"), quantity(rest.jitter, ""), rest.coordinate, quantity(rest.speed, "")]
        for name, rest in figures.grounds.items()
    ]
    return [Table("Grounds", ["Ground", "Depth", "Jitter [rad/s or m/s]", "of", "Greatest mean speed"], rows)]
