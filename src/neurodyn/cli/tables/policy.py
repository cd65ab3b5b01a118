# SPDX-License-Identifier: Apache-2.0
"""What `neurodyn policy evaluate` prints."""

from typing import Any

from rich.table import Table

from neurodyn.cli.console import terminal


def print_policy(result: dict[str, Any]) -> None:
    """Print the returns of a policy by dynamics, and the errors between them."""
    console = terminal()
    found = result["results"]
    table = Table(title=f"{result['task']}: {result['policy']}, {result['episodes']} episodes")
    for name in ("dynamics", "return", "std", "length", "failed", "success"):
        table.add_column(name, justify="left" if name == "dynamics" else "right")
    for row in found:
        success = f"{row['success']:.0%}" if "success" in row else "-"
        table.add_row(
            row["dynamics"], f"{row['return']:.5g}", f"{row['return_std']:.3g}", f"{row['length']:.4g}",
            f"{row['failed']:.0%}", success,
        )  # fmt: skip
    console.print(table)
    for pair in result["reward_error"]:
        console.print(
            f"reward error, {pair['a']} to {pair['b']}: {pair['difference']:+.4g} ({pair['relative']:.2%})",
            soft_wrap=True,
        )
