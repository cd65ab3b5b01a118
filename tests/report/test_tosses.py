# SPDX-License-Identifier: Apache-2.0
"""The page of an evaluation on recorded tosses shows the figures of its report."""

from pathlib import Path
from typing import Any

from neurodyn.evaluate.tosses import evaluate_floating

from neurodyn.data.store import Split
from neurodyn.report import tosses
from neurodyn.report.gather import Material
from neurodyn.report.numbers import quantity
from tests.evaluate.test_tosses import CUBE, Coasting, coasting_store


def material() -> Material:
    def drift(found):
        found.q[..., 0] += 0.0123
        return found

    report = evaluate_floating(Coasting(drift), CUBE, coasting_store(), split=Split.TEST, horizon=10)
    model: Any = None
    return Material(Path("run"), "run", report, model, robot=CUBE)


def test_the_headline_names_both_errors():
    found = tosses.headline(material().report)
    assert [what.split(":")[0] for _, what, _ in found] == ["Base position", "Base orientation"]
    assert found[0][0] == quantity(0.0123, "m")


def test_tables_and_curves_are_of_all_starts_and_of_first_states():
    page = tosses.by_horizon(material()) + tosses.over_time(material())
    for words in ("all starts (51)", "first states (4 episodes)", "10 frames", "each one"):
        assert words in page
    assert page.count("<svg") == 4


def test_the_page_counts_as_one_of_a_log():
    assert material().of_tosses
    assert material().of_log
