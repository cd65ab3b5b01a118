# SPDX-License-Identifier: Apache-2.0
"""The table of commanded and achieved values, of policies and planners alike."""

from collections.abc import Sequence

from msgspec import UNSET

from neurodyn.control.returns import Returns
from neurodyn.report.page import Table


def commands_table(results: Sequence[Returns]) -> Table:
    """Return commanded and achieved values by dynamics; no rows for tasks without commands."""
    rows = [
        [
            row.dynamics,
            name,
            *(f"{x:.3g}" for x in (one.commanded, one.achieved, one.moved)),
            "" if one.error is UNSET else f"{one.error:.2g}",
        ]
        for row in results
        for name, one in ({} if row.commands is UNSET else row.commands).items()
    ]
    head = ["Dynamics", "Command", "Commanded", "Achieved", "Moved in any direction", "Error"]
    return Table("Commanded and achieved", head, rows, strong=3)
