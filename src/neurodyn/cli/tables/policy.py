# SPDX-License-Identifier: Apache-2.0
"""What `neurodyn policy evaluate` prints."""

from msgspec import UNSET
from rich.table import Table

from neurodyn.cli.console import terminal
from neurodyn.policy.evaluate import PolicyEvaluation


def print_policy(result: PolicyEvaluation) -> None:
    """Print the returns of a policy by dynamics, and the errors between them."""
    console = terminal()
    table = Table(title=f"{result.task}: {result.policy}, {result.episodes} episodes")
    for name in ("dynamics", "return", "std", "length", "failed", "success"):
        table.add_column(name, justify="left" if name == "dynamics" else "right")
    for row in result.results:
        success = "-" if row.success is UNSET else f"{row.success:.0%}"
        figures = f"{row.mean:.5g}", f"{row.std:.3g}", f"{row.length:.4g}", f"{row.failed:.0%}"
        table.add_row(row.dynamics, *figures, success)
    console.print(table)
    for pair in result.reward_error:
        text = f"reward error, {pair.a} to {pair.b}: {pair.difference:+.4g} ({pair.relative:.2%})"
        console.print(text, soft_wrap=True)
