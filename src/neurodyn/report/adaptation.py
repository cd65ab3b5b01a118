# SPDX-License-Identifier: Apache-2.0
"""Tables of an adaptation: quantities, held-out errors, what is unexplained, logs; and the page of conditions."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import UNSET

from neurodyn.core.artifacts import write_text
from neurodyn.identify.conditions import ConditionFigures
from neurodyn.identify.ladder.structures import SPRINGS
from neurodyn.identify.result import IdentificationFigures, IdentifiedParameter, LogCheck, UnexplainedCoordinate
from neurodyn.report.numbers import MISSING, capital, share, title_of
from neurodyn.report.page import Table, facts, header, page, paragraph, section, verdict_box
from neurodyn.report.sentences import held_out_errors

_SHOWN, _REASONS = 8, 3
_NOTHING = 1e-9
"""Share of an interval's other end below which an end is zero."""


def write_conditions(run: Path, result: ConditionFigures) -> Path:
    """Write the page of a network conditioned from logs to its run, atomically, and return its path."""
    body = [
        header(f"{result.robot}: conditions of a network, found in logs"),
        paragraph(conditions_lead(result)),
        verdict_box(result.verdict),
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
        f"Fitted to {result.windows} windows of {result.seconds:.2g} s by gradients through the network, with fixed "
        f"weights: the error on {result.held_out} held-out windows is {result.share:.2f} of the one before."
    )


def condition_errors(result: ConditionFigures) -> Table:
    """Return errors before and after the conditions were found."""
    rows = [
        [name, f"{before:.3g}", f"{after:.3g}"]
        for name, before, after in zip(result.names, result.before, result.after, strict=True)
    ]
    title = f"Mean error of positions after {result.seconds:.2g} s [rad or m]"
    return Table(title, ["Coordinate", "Own values", "Found"], rows)


def errors(result: IdentificationFigures) -> list[Table]:
    """Return the errors of all models on held-out episodes by horizon, one table per group; none without a ladder."""
    if not result.rungs:
        return []
    head = ["Model", *(f"{s:.3g} s" for s in result.horizons)]
    where = "test" if result.rungs[0].test else "validation"
    found = []
    for group in held_out_errors(result.rungs[0]):
        rows = [[title_of(rung.name), *map(_number, held_out_errors(rung)[group])] for rung in result.rungs]
        rows += [
            [title_of(name), *map(_number, groups[group])]
            for name, groups in reference_errors(result).items()
            if group in groups
        ]
        found.append(Table(f"Mean error of {group}, {where} episodes", head, rows))
    if motions := result.rungs[0].motion:
        rows = [
            [title_of(rung.name), *(f"{one.speed:.2f}, {one.spectrum:.1f} dB" for one in rung.motion.values())]
            for rung in result.rungs
        ]
        title = "Motion under the logged commands: speed over the robot's, distance of spectra"
        found.append(Table(title, ["Model", *motions], rows))
    return found


def steps(result: IdentificationFigures) -> Table:
    """Return why each step from the declaration up is kept or not, judged on validation episodes."""
    rows = [
        [title_of(rung.name), "yes" if rung.kept else "no", rung.reason, share(rung.finite_fraction)]
        for rung in result.rungs
    ]
    return Table("Steps, each judged on episodes for validation", ["Model", "Kept", "Why", "Stay finite"], rows)


def reference_errors(result: IdentificationFigures) -> dict[str, dict[str, list[float | None]]]:
    """Return the held-out errors of models beside the ladder, by name and group, at its horizons."""
    return {one.name: held_out_errors(one) for one in result.references}


def tried_structures(result: IdentificationFigures) -> Table:
    """Return the structures that were tried because the fit asked for them: what was expected of them, and what came.

    Expected is the share of the fit's squared errors, by a linear step, that held-out windows then judge.
    """
    rows = [
        [one.name, "yes" if one.kept else "no", share(one.expected) if one.expected > 0.0 else MISSING, one.reason,
         _first_few(one.asked_by) or MISSING]
        for one in result.tried
    ]  # fmt: skip
    head = ["Structure", "Kept", "Expected to save (squared errors)", "On held-out windows", "Asked for by"]
    return Table("What the declaration may lack, tried", head, rows)


def _first_few(reasons: Sequence[str]) -> str:
    """Return the first reasons, and how many more there are."""
    shown = list(reasons) if len(reasons) <= _REASONS + 1 else [*reasons[:_REASONS], f"{len(reasons) - _REASONS} more"]
    return ", ".join(shown)


def differences(result: IdentificationFigures) -> Table:
    """Return the quantities that differ between logs."""
    rows = [
        [one.name, *(f"{log}: {value:.4g}" for log, value in zip(one.logs, one.values, strict=True)),
         f"{one.errors:.1f}", f"{one.deviation:.2g}", one.unit or MISSING]
        for one in result.differences
    ]  # fmt: skip
    head = ["Quantity", "One log", "Another", "Standard errors apart", "Standard deviation between logs", "Unit"]
    return Table("Quantities in which logs differ most certainly", head, rows)


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3g}"


def quantities(parameters: Sequence[IdentifiedParameter]) -> Table:
    """Return the differences: declared, found, and the interval, or that the logs do not determine it."""
    rows = [
        [one.name, f"{one.nominal:.4g}", _value(one), _interval(one), one.unit or MISSING, _remark(one)]
        for one in parameters
    ]
    head = ["Quantity", "Declared", "Found", "90 % interval", "Unit", "Remark"]
    return Table("Declared and found", head, rows, strong=2)


def _value(one: IdentifiedParameter) -> str:
    return f"{one.value:.4g}" if one.determined else MISSING


def _interval(one: IdentifiedParameter) -> str:
    if not one.determined or one.interval is None:
        return MISSING
    low, high = (0.0 if abs(end) < _NOTHING * max(map(abs, one.interval)) else end for end in one.interval)
    return f"{low:.4g} – {high:.4g}"


def _remark(one: IdentifiedParameter) -> str:
    if not one.determined:
        return "as declared: the logs do not determine it"
    return f"at its bound {one.value:.3g}" if one.bound else ""


def unexplained_tables(result: IdentificationFigures) -> list[Table]:
    """Return what the model leaves unexplained, with and without springs and networks."""
    chosen = "" if result.chosen is UNSET else title_of(result.chosen)
    found = [_unexplained_table(f"Unexplained by the {chosen} model [rad or m]", result.unexplained)]
    if result.unexplained_before:
        without = "with rigid links" if SPRINGS in result.structure else "without networks"
        found.append(_unexplained_table(f"Unexplained {without} [rad or m]", result.unexplained_before))
    return found


LEFT = (
    "Errors of three-frame roll-outs and the part that the sensors' noise explains, least explained first, in the air "
    "and in contact, with the signals that correlate with them. An error far above its noise means that the model "
    "lacks a part: friction correlates with the sign of a speed, a spring with a position."
)


def _unexplained_table(title: str, entries: Sequence[UnexplainedCoordinate]) -> Table:
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


def limits(result: IdentificationFigures) -> Table:
    """Return the limits of each joint that the proposed motion keeps."""
    by_joint = {} if result.next is UNSET else result.next.limits
    kinds = list(dict.fromkeys(kind for bounds in by_joint.values() for kind in bounds))
    rows = [
        [name, *(f"{bounds[kind]:.3g}" if kind in bounds else MISSING for kind in kinds)]
        for name, bounds in by_joint.items()
    ]
    return Table("Limits that the motion keeps (SI units)", ["Joint", *map(capital, kinds)], rows)


def next_lead(result: IdentificationFigures) -> str:
    """Describe the proposed motion."""
    if result.next is UNSET:
        return "None was asked for."
    motion = result.next
    if motion.why_not:
        return f"{capital(motion.why_not)}."
    told = f" It {motion.tells[0]}." if motion.tells else ""
    sources = "; ".join(f"{kind}: {source}" for kind, source in motion.sources.items())
    kept = f" {capital(sources)}." if sources else ""
    beyond = "".join(f" {capital(one)}." for one in motion.beyond)
    return f"{motion.file}: {motion.seconds:g} s, from rest to rest in {motion.pose}.{told}{beyond}{kept}"
