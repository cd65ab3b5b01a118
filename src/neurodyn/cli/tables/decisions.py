# SPDX-License-Identifier: Apache-2.0
"""What was decided about a robot, as a table on the terminal."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from neurodyn.cli.tables.fit import print_table
from neurodyn.cli.terminal.console import terminal

if TYPE_CHECKING:
    from neurodyn.sim.declaration.declare import Decision


def print_decisions(decisions: "Iterable[Decision]") -> None:
    """Print each decision and its reason."""
    rows = [(decision.what, decision.value, decision.why) for decision in decisions]
    print_table(terminal(120), ("", "decided", "why"), rows)
