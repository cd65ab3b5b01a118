# SPDX-License-Identifier: Apache-2.0
"""Evaluations beside recorded trajectories of floating robots, as tables on the terminal."""

from typing import Any

from rich.console import Console
from rich.table import Table

_ERRORS = {"base_position_m": "m", "base_orientation_rad": "rad", "joint_rad": "joints rad", "joint_m": "joints m"}
_BASELINES = ("hold_last", "constant_velocity")


def print_tosses(console: Console, result: dict[str, Any]) -> None:
    """Print a report of `fit.evaluate_floating.evaluate_floating`."""
    network = f"{result['network']}, {result['parameters']:,} weights" if result["network"] else result["kind"]
    console.print(
        f"{result['robot']}: {network}, on {result['episodes']} recorded episodes ({result['split']}): "
        f"{result['rollouts']:,} sub-trajectories of {result['horizon']} frames, one starting state each",
        soft_wrap=True,
    )
    errors = {key: unit for key, unit in _ERRORS.items() if f"{key}_percentiles" in result}
    table = Table(
        "starts", "frames", *(f"model [{unit}]" for unit in errors.values()), "hold last", "constant velocity"
    )
    for name, part in (("all", result), ("first state", result["releases"])):
        for index, (horizon, entry) in enumerate(part["by_horizon"].items()):
            count = f"{name} ({part['rollouts']:,})" if index == 0 else ""
            beside = [", ".join(_short(part["baselines"][b][horizon][key]) for key in errors) for b in _BASELINES]
            table.add_row(count, horizon, *(_short(entry[key]) for key in errors), *beside)
        table.add_section()
    console.print(table)
    console.print(
        f"means over all frames up to a horizon, then over starts; finite {result['finite_fraction']:.1%}",
        soft_wrap=True,
    )


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
