# SPDX-License-Identifier: Apache-2.0
"""Results on the terminal: sentences, the tables of their pages, a robot's checks, and the next step."""

from collections.abc import Iterable
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET
from rich.text import Text

from neurodyn.cli.terminal.console import shell_word, terminal
from neurodyn.cli.terminal.tables import print_table
from neurodyn.core.glossary import explanations
from neurodyn.evaluate.checks.findings import RobotCheck
from neurodyn.evaluate.records import Evaluation, ForecastEvaluation, Logged, Simulated, Tossed
from neurodyn.report import accuracy, forecast, log
from neurodyn.report.checks import advice, lead, row
from neurodyn.report.numbers import member_parts, simulated_parts, tossed_parts
from neurodyn.report.overview import evaluation_sentences, in_a_sentence
from neurodyn.report.page import Table

if TYPE_CHECKING:
    from neurodyn.identify.conditions import ConditionFigures
    from neurodyn.identify.drives import DriveNetworkResult
    from neurodyn.identify.result import IdentificationFigures
    from neurodyn.policy.episodes.evaluation import PolicyEvaluation


_MOST_ROWS = 24  # per table by group
_PAGES_ONLY = ("p10 – p90",)


def print_evaluation(result: Evaluation) -> None:
    """Print an `evaluate.evaluate` result."""
    print_tables("\n".join([*evaluation_sentences(result), in_a_sentence(result)]), evaluation_tables(result))


def print_drive_network(result: "DriveNetworkResult") -> None:
    """Print the torque errors of an actuator network and of the best parametric drive."""
    rows = []
    for name, joint in result.joints.items():
        errors = f"{joint.network:.3g}", f"{joint.drive:.3g}", f"{joint.network / joint.drive:.2f}"
        rows.append([name, *errors, f"{joint.torque:.3g}"])
    title = f"Torque error on {result.split} runs, root mean square [N m or N]"
    head = ("joint", "network", "parametric drive", "ratio", "no torque")
    lead = f"actuator network of {result.robot}: {result.rows:,} rows"
    numbers = [
        f"{name}: " + ", ".join(f"{what} {value:.3g}" for what, value in joint.numbers.items())
        for name, joint in result.joints.items()
    ]
    print_tables(lead, [Table(title, head, rows)], "numbers of the parametric drives:", *numbers)


def print_identification(result: "IdentificationFigures") -> None:
    """Print sentences and the errors of a ladder's models; of a search alone its tables."""
    from neurodyn.report import identification
    from neurodyn.report.sentences import sentences

    if result.rungs:
        print_adaptation(result)
        return
    tables = [identification.parameters(result), identification.by_log(result), identification.torques(result)]
    tables += [identification.ends(result), identification.runs(result)]
    tables += [*identification.errors(result), identification.sensors(result)]
    warnings = [f"warning: {text}" for text in result.warnings]
    remarks = identification.convergence(result), identification.errors_lead(result)
    print_tables("\n".join([*sentences(result), identification.source(result)]), tables, *remarks, *warnings)


def print_adaptation(result: "IdentificationFigures") -> None:
    """Print what was found in sentences, and held-out errors of each model; the page has the rest."""
    from neurodyn.report import adaptation, identification
    from neurodyn.report.sentences import sentences

    console = terminal()
    for line in sentences(result):
        console.print(line)
    console.print(identification.source(result))
    for text in [*(result.log.warnings if result.log else ()), *result.warnings]:
        console.print(f"warning: {text}")
    console.print()
    shown = adaptation.errors(result)
    for table in shown:
        print_table(console, table.head, table.rows, table.title)
    words = explanations(row[0] for table in shown for row in table.rows)
    console.print("; ".join(f"{name}: {meaning}" for name, meaning in words), style="dim")


def print_next(result: "IdentificationFigures", out: Path) -> None:
    """Print the next step, unless the result is not to be used."""
    from neurodyn.report.sentences import usable

    if not usable(result):
        return
    if result.next is not UNSET and result.next.file:
        told = f", which {result.next.tells[0]}" if result.next.tells else ""
        text = f"to learn more, log this motion: {out / result.next.file} ({result.next.seconds:g} s){told}"
        terminal().print(text)
    elif result.next is not UNSET and result.next.why_not:
        terminal().print(f"{result.next.why_not}; other limits: neurodyn next-motion {shell_word(out)} --limits FILE")
    target = "" if result.network else " --to mjcf"  # a mechanism for simulators, a network as ONNX
    print(f"next: neurodyn export {shell_word(out)}{target}")
    seen = " --observe sensors" if result.sensed else ""  # a robot that logs no base has none for a policy either
    print(f"or: neurodyn policy train TASK{seen} --dynamics {shell_word(out)}")
    terminal().print("TASK: reach@ROBOT for arms, velocity@ROBOT for legs, or your own", style="dim")


def print_conditions(result: "ConditionFigures") -> None:
    """Print the conditions found in logs, and errors before and after."""
    from neurodyn.report import adaptation

    tables = [adaptation.quantities(result.quantities), adaptation.condition_errors(result)]
    print_tables(adaptation.conditions_lead(result), tables)


def print_policy(result: "PolicyEvaluation") -> None:
    """Print the returns of a policy by dynamics, and the errors between them."""
    from neurodyn.policy.episodes.report import returns

    print_tables("", returns(result))


def print_promise(policy: Path, kept: int, updates: int) -> None:
    """Print what a training promises of its kept policy, by its judges, and commanded and achieved values."""
    from neurodyn.core.config import read_record
    from neurodyn.core.description.randomisation import is_run
    from neurodyn.learn.metrics import read_metrics
    from neurodyn.policy.trust.judges import read_promise
    from neurodyn.policy.trust.judging import kept_commands

    drawn = read_record(policy / "config.yaml", "settings")["settings"].get("randomise", ())
    runs = [text for text in drawn if is_run(text)]
    over = f"; trained over the posterior of {runs[0]} (--one-robot: in the identified robot alone)" if runs else ""
    print(f"The kept policy is of update {kept} of {updates}{over}.")
    promise = read_promise(policy)
    for text in [] if promise is None else promise.in_words():
        print(text)
    for name, figures in kept_commands(read_metrics(policy), kept).items():
        print(f"{figures.in_words(name)}.".capitalize())


def print_tables(title: str, tables: Iterable[Table], *remarks: str) -> None:
    """Print tables below their titles, except those without rows."""
    console = terminal(soft_wrap=True)
    console.print(title)
    for table in tables:
        if table.rows:
            kept = [i for i, name in enumerate(table.head) if name not in _PAGES_ONLY]
            rows = [[row[i] for i in kept] for row in table.rows]
            print_table(console, [table.head[i] for i in kept], rows, table.title)
    for remark in remarks:
        console.print(remark)


@singledispatch
def evaluation_tables(result: Simulated) -> list[Table]:
    """Return the tables of an evaluation that the terminal shows."""
    errors = accuracy.by_horizon(simulated_parts(result), result.about.dt, result.reference_errors)
    more = accuracy.grounds, accuracy.limits, accuracy.energy, accuracy.stability
    return [
        *errors,
        *(table for part in more for table in part(result)),
        *_conditions(result),
        *_members(result),
        accuracy.speed(result),
    ]


@evaluation_tables.register
def _(result: Tossed) -> list[Table]:
    errors = accuracy.by_horizon(tossed_parts(result), result.about.dt)
    return [*errors, *log.beside_others(result), *_conditions(result), *_members(result)]


@evaluation_tables.register
def _(result: Logged) -> list[Table]:
    groups = [table for table in log.by_group(result) if len(table.rows) <= _MOST_ROWS]
    return [*log.at_horizons(result), *log.beside_others(result), *groups, *_conditions(result), *_members(result)]


@evaluation_tables.register
def _(result: ForecastEvaluation) -> list[Table]:
    groups = [table for table in forecast.groups(result) if len(table.rows) <= _MOST_ROWS]
    events = forecast.events(result)
    return [forecast.errors(result), *groups, *forecast.calibration(result), events, *forecast.failures(result)]


def _conditions(result: Simulated | Logged | Tossed) -> list[Table]:
    return accuracy.by_condition(result.conditions, result.about.dt)


def _members(result: Simulated | Logged | Tossed) -> list[Table]:
    return accuracy.member_tables(member_parts(result))


_COLOURS = {"ok": "green", "warning": "yellow", "fails": "bold red"}


def print_check(result: RobotCheck) -> None:
    """Print a row per finding, and advice below them."""
    console = terminal(soft_wrap=True)
    console.print(lead(result))
    rows = [row(finding) for finding in result.findings]
    coloured = [[*cells, Text(verdict, style=_COLOURS[verdict])] for *cells, verdict in rows]
    print_table(console, ("Check", "Measured", "Bound", "Verdict"), coloured)
    for line in advice(result):
        console.print(line)
