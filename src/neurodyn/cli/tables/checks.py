# SPDX-License-Identifier: Apache-2.0
"""The checks of a robot on a terminal of 80 columns."""

from rich.text import Text

from neurodyn.cli.tables.fit import print_table
from neurodyn.cli.terminal.console import terminal
from neurodyn.evaluate.checks.records import RobotCheck
from neurodyn.report.checks import advice, lead, row

_COLOURS = {"ok": "green", "warning": "yellow", "fails": "bold red"}


def print_check(result: RobotCheck) -> None:
    """Print a row for each finding, and below them what to change."""
    console = terminal(80)
    console.print(lead(result), soft_wrap=True)
    rows = [row(finding) for finding in result.findings]
    coloured = [[*cells, Text(verdict, style=_COLOURS[verdict])] for *cells, verdict in rows]
    print_table(console, ("Check", "Measured", "Bound", "Verdict"), coloured)
    for line in advice(result):
        console.print(line, soft_wrap=True)
