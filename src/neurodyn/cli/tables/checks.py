# SPDX-License-Identifier: Apache-2.0
"""The checks of a robot on a terminal of 80 columns."""

from rich.table import Table
from rich.text import Text

from neurodyn.cli.console import terminal
from neurodyn.cli.tables.results import LOOK
from neurodyn.evaluate.checks.records import RobotCheck
from neurodyn.report.checks import advice, lead, row

_COLOURS = {"ok": "green", "warning": "yellow", "fails": "bold red"}


def print_check(result: RobotCheck) -> None:
    """Print a row for each finding, and below them what to change."""
    console = terminal(80)
    console.print(lead(result), soft_wrap=True)
    table = Table("Check", "Measured", "Bound", "Verdict", **LOOK)
    for finding in result.findings:
        what, measured, bound, verdict = row(finding)
        table.add_row(what, measured, bound, Text(verdict, style=_COLOURS[verdict]))
    console.print(table)
    for line in advice(result):
        console.print(line, soft_wrap=True)
