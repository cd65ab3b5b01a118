# SPDX-License-Identifier: Apache-2.0
"""The table of an evaluation on recorded tosses."""

import io

import torch
from rich.console import Console

from neurodyn.cli.tables.logged import print_tossed
from neurodyn.data.store import Split
from neurodyn.evaluate import beside_log
from neurodyn.evaluate.records import Tossed
from tests.evaluate.test_tosses import CUBE, Coasting, coasting_store


def shown(bad: int) -> str:
    """The table where predictions are off by 12.3 mm, and the first `bad` roll-outs leave the finite."""

    def spoil(found):
        found.q[..., 0] += 0.0123
        found.q[:bad, -1] = torch.nan
        return found

    result = beside_log(Coasting(spoil), CUBE, coasting_store(), split=Split.TEST, horizon=10)  # type: ignore[arg-type]
    assert isinstance(result, Tossed)
    console = Console(file=io.StringIO(), width=120, markup=False)
    print_tossed(console, result)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_shows_errors_from_all_starts_and_from_the_first_states():
    text = shown(0)
    assert "4 recorded episodes (test): 51 sub-trajectories of 10 frames" in text
    assert "all (51)" in text
    assert "first state (4)" in text
    assert "0.0123" in text
    assert "finite 100.0%" in text


def test_errors_that_are_not_finite_are_a_dash():
    assert "│ -" in shown(51)
    assert "finite 0.0%" in shown(51)
