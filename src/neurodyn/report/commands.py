# SPDX-License-Identifier: Apache-2.0
"""The table of commanded and achieved values, of policies and planners alike."""

from collections.abc import Sequence

from msgspec import UNSET

from neurodyn.control.returns import Returns
from neurodyn.report.page import Table


def commands_table(results: Sequence[Returns]) -> Table:
    """Return commanded and achieved values by dynamics; no rows for tasks without commands."""
    rows = [
        [row.dynamics, name, f"{one.commanded:.3g}", f"{one.achieved:.3g}", f"{one.moved:.3g}"]
        for row in results
        for name, one in ({} if row.commands is UNSET else row.commands).items()
    ]
    head = ["Dynamics", "Command", "Commanded", "Achieved", "Moved in any direction"]
    return Table("Commanded and achieved", head, rows, strong=3)
