# SPDX-License-Identifier: Apache-2.0
"""What was decided about a robot, as a table on the terminal."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.table import Table

from neurodyn.cli.console import terminal

if TYPE_CHECKING:
    from neurodyn.sim.declare.declare import Decision


def print_decisions(decisions: "Iterable[Decision]") -> None:
    """Print each decision and its reason."""
    table = Table("", "decided", "why", box=None)
    for decision in decisions:
        table.add_row(decision.what, decision.value, decision.why)
    terminal(120).print(table)
