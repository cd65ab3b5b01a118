# SPDX-License-Identifier: Apache-2.0
"""The table of an evaluation on recorded tosses."""

import io

from neurodyn.cli.toss_tables import print_tosses
from rich.console import Console

SUMMARY = {
    "base_position_m": 0.0123,
    "base_position_m_percentiles": {"10": 0.0, "50": 0.01, "90": 0.1},
    "base_orientation_rad": 0.234,
    "base_orientation_rad_percentiles": {"10": 0.0, "50": 0.01, "90": 0.1},
}
EMPTY = dict.fromkeys(("base_position_m", "base_orientation_rad"))


def part(rollouts, summary):
    baselines = {name: {"80": SUMMARY} for name in ("hold_last", "constant_velocity")}
    return {**SUMMARY, "rollouts": rollouts, "by_horizon": {"80": summary}, "baselines": baselines}


def shown(summary):
    report = part(1499, summary) | {"robot": "cube", "network": "mlp", "parameters": 1234, "kind": "neural"}
    report |= {"episodes": 60, "split": "test", "horizon": 80, "finite_fraction": 0.5, "releases": part(60, SUMMARY)}
    console = Console(file=io.StringIO(), width=120, markup=False)
    print_tosses(console, report)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_shows_errors_from_all_starts_and_from_the_first_states():
    text = shown(SUMMARY)
    assert "60 recorded episodes (test): 1,499 sub-trajectories of 80 frames" in text
    assert "all (1,499)" in text
    assert "first state (60)" in text
    assert "0.0123" in text
    assert "0.234" in text
    assert "finite 50.0%" in text


def test_errors_that_are_not_finite_are_a_dash():
    assert "│ -" in shown(EMPTY)
