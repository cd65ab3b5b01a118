# SPDX-License-Identifier: Apache-2.0
"""Results of an identification or adaptation on the terminal: sentences, errors of its models, files, next step."""

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET

from neurodyn.cli.terminal.console import shell_word, terminal
from neurodyn.cli.terminal.results import print_tables
from neurodyn.cli.terminal.tables import print_table
from neurodyn.core.glossary import explanations

if TYPE_CHECKING:
    from neurodyn.identify.conditions import ConditionFigures
    from neurodyn.identify.result import IdentificationFigures


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
    print(f"next: neurodyn export {shell_word(out)}")
    print(f"or: neurodyn policy train TASK --dynamics {shell_word(out)}")


def print_conditions(result: "ConditionFigures") -> None:
    """Print the conditions found in logs, and errors before and after."""
    from neurodyn.report import adaptation

    tables = [adaptation.quantities(result.quantities), adaptation.condition_errors(result)]
    print_tables(adaptation.conditions_lead(result), tables)
