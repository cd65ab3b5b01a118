# SPDX-License-Identifier: Apache-2.0
"""RUN/report.html of an adaptation: differences, errors of each rung, unexplained parts, what to log next."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import UNSET

from neurodyn.core.artifacts import write_text
from neurodyn.identify.conditions import ConditionFigures
from neurodyn.identify.result import IdentificationFigures, IdentifiedParameter, LogCheck, UnexplainedCoordinate
from neurodyn.identify.structures import SPRINGS
from neurodyn.report.numbers import MISSING
from neurodyn.report.page import Table, cards, facts, header, page, paragraph, section

_NAMES = {"declared": "declared", "identified": "identified", "networks": "identified + networks"}
_SHOWN = 8


def ladder_sections(result: IdentificationFigures) -> list[str]:
    """Return the parts of a page on models compared on held-out episodes: errors, differences, what is unexplained."""
    assert result.log is not UNSET
    return [
        paragraph(lead(result)),
        paragraph(f"Verdict: {result.verdict}"),
        _headline(result),
        *(paragraph(f"Warning: {text}") for text in result.log.warnings),
        section("Open-loop error on held-out episodes", *(table.html() for table in errors(result)), lead=_ERRORS),
        section("What differs from the declaration", quantities(result.parameters).html(), lead=_differs(result)),
        section("What remains unexplained", *(table.html() for table in left(result)), lead=_LEFT),
        section("The logs", log(result.log).html(), lead=log_lead(result.log)),
        section("What to log next", following(result).html(), lead=next_lead(result)),
    ]


def write_conditions(run: Path, result: ConditionFigures) -> Path:
    """Write the page of a network conditioned from logs to its run, atomically, and return its path."""
    body = [
        header(f"{result.robot}: conditions of a network, found in logs"),
        paragraph(conditions_lead(result)),
        paragraph(f"Verdict: {result.verdict}"),
        section("Conditions", quantities(result.quantities).html()),
        section("Open-loop error on held-out episodes", condition_errors(result).html()),
        facts([("CPU time", f"{result.cpu_seconds:.0f} s")]),
    ]
    path = run / "report.html"
    write_text(path, page(f"{result.robot}: conditions", body))
    return path


def conditions_lead(result: ConditionFigures) -> str:
    """Return how the conditions were found, in a sentence."""
    return (
        f"Fitted to {result.windows} windows of {result.seconds:.2g} s by gradients through the network, whose weights "
        f"stay: the error on {result.held_out} held-out windows is {result.share:.2f} of that before."
    )


def condition_errors(result: ConditionFigures) -> Table:
    """Return errors before and after the conditions were found."""
    rows = [
        [name, f"{before:.3g}", f"{after:.3g}"]
        for name, before, after in zip(result.names, result.before, result.after, strict=True)
    ]
    title = f"Mean error of positions after {result.seconds:.2g} s [rad or m]"
    return Table(title, ["Coordinate", "Own values", "Found"], rows)


_ERRORS = (
    "Roll-outs from logged states of validation episodes, on which each step was judged, and of test episodes, on "
    "which nothing was chosen. The truth is the log."
)
_LEFT = (
    "Errors of roll-outs of three frames beside what the sensors' noise explains of them, the least explained first, "
    "in the air and in contact, and the signals that they go with (correlation)."
)


def lead(result: IdentificationFigures) -> str:
    """Describe the model in a sentence."""
    assert result.log is not UNSET
    determined = sum(one.determined for one in result.parameters)
    form = f" It has {result.structure}." if result.structure else ""
    return (
        f"The model is {_chosen(result)}: {determined} of {len(result.parameters)} quantities are told by "
        f"{result.log.minutes:.1f} minutes of logs.{form}"
    )


def _chosen(result: IdentificationFigures) -> str:
    assert result.chosen is not UNSET
    return _NAMES[result.chosen]


def _headline(result: IdentificationFigures) -> str:
    declared = result.rungs[0]
    chosen = next(rung for rung in result.rungs if rung.name == result.chosen)
    last = -1
    return cards(
        [
            (_number(now[last]), f"{group} after {result.horizons[last]:.2g} s",
             f"declared {_number(declared.errors[group][last])}")
            for group, now in chosen.errors.items()
        ]
    )  # fmt: skip


def errors(result: IdentificationFigures) -> list[Table]:
    """Return the errors of all rungs, one table per group."""
    head = ["Model", *(f"{s:.2g} s" for s in result.horizons), "Kept"]
    found = []
    for group in result.rungs[0].errors:
        rows = []
        for rung in result.rungs:
            kept = rung.reason if rung.kept else f"no: {rung.reason}"
            rows.append([_NAMES[rung.name], *map(_number, rung.errors[group]), kept])
            if rung.test:
                rows.append([f"{_NAMES[rung.name]}, test", *map(_number, rung.test[group]), ""])
        found.append(Table(f"Mean error of {group}", head, rows))
    return found


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3g}"


def quantities(parameters: Sequence[IdentifiedParameter]) -> Table:
    """Return the differences: declared, found, and the interval, or that the logs do not determine it."""
    rows = [[one.name, f"{one.nominal:.4g}", _found(one), _interval(one), one.unit or MISSING] for one in parameters]
    return Table("Quantities", ["Quantity", "Declared", "Found", "90 % interval", "Unit"], rows, strong=2)


def _found(one: IdentifiedParameter) -> str:
    return f"{one.value:.4g}" if one.determined else "the logs do not say"


def _interval(one: IdentifiedParameter) -> str:
    if not one.determined or one.interval is None:
        return MISSING
    return f"at its bound {one.value:.3g}" if one.bound else f"{one.interval[0]:.4g} – {one.interval[1]:.4g}"


def _differs(result: IdentificationFigures) -> str:
    silent = sum(not one.determined for one in result.parameters)
    return f"{silent} quantities keep their declared values: the logs do not say." if silent else ""


def left(result: IdentificationFigures) -> list[Table]:
    """Return what the model leaves unexplained, with and without springs and networks."""
    found = [_unexplained(f"Unexplained by the {_chosen(result)} model", result.unexplained)]
    if result.unexplained_before:
        without = "with rigid links" if SPRINGS in result.structure else "without networks"
        found.append(_unexplained(f"Unexplained {without}", result.unexplained_before))
    return found


def _unexplained(title: str, entries: Sequence[UnexplainedCoordinate]) -> Table:
    rows = [
        [
            one.name, _unexplained_error(one), f"{one.noise:.2g}", _or_missing(one.touching), _or_missing(one.air),
            ", ".join(f"{name} {r:+.2f}" for name, r in one.with_signals.items()) or MISSING,
        ]
        for one in entries[:_SHOWN]
    ]  # fmt: skip
    return Table(title, ["Coordinate", "Error", "Noise", "In contact", "In the air", "Goes with"], rows)


def _unexplained_error(one: UnexplainedCoordinate) -> str:
    size = _or_missing(one.error)
    return f"{size}, {one.diverged} diverged" if one.diverged else size


def _or_missing(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2g}"


def log(found: LogCheck) -> Table:
    """Return a table of what the logs contain for each joint."""
    rows = [
        [one.name, f"{one.span:.3g}", f"{one.speed:.3g}", f"{one.noise:.2g}", f"{one.saturated:.0%}",
         MISSING if one.slope is None else f"{one.slope:.2f}"]
        for one in found.joints
    ]  # fmt: skip
    return Table(
        "Joints",
        ["Joint", "Range", "Speed (rms)", "Noise", "At its largest command", "Differences over velocity"],
        rows,
    )


def log_lead(found: LogCheck) -> str:
    """Return rate, length and episodes of the logs."""
    train, validation, test = found.episodes
    return (
        f"{found.minutes:.1f} minutes at {found.rate:.0f} Hz, commands are {found.control}s; episodes: {train} for "
        f"training, {validation} for validation, {test} for test."
    )


def following(result: IdentificationFigures) -> Table:
    """Return what the proposed motion would identify."""
    deviations = {} if result.next is UNSET else result.next.deviations
    rows = [[name, f"{now:.2f}", f"{then:.2f}"] for name, (now, then) in deviations.items()]
    head = ["Quantity", "Now", "With its log"]
    return Table("Standard deviations, of what was known beforehand", head, rows)


def next_lead(result: IdentificationFigures) -> str:
    """Describe the proposed motion."""
    if result.next is UNSET:
        return "No motion that was tried stays within the robot's limits."
    motion = result.next
    return (
        f"{motion.file}: {motion.seconds:g} s of commands, up to {motion.amplitude:.0%} of the largest, whose log "
        "would tell most of what is still uncertain."
    )
