# SPDX-License-Identifier: Apache-2.0
"""The page of an evaluation on recorded tosses shows the figures of its result."""

from pathlib import Path

from neurodyn.data.header import Split
from neurodyn.evaluate import beside_log
from neurodyn.report.gather import ReportMaterial
from neurodyn.report.numbers import quantity
from neurodyn.report.write import render_report
from tests.evaluate.test_tosses import CUBE, Coasting, coasting_store


def page() -> str:
    def drift(found):
        found.q[..., 0] += 0.0123
        return found

    result = beside_log(Coasting(drift), CUBE, coasting_store(), split=Split.TEST, horizon=10)  # type: ignore[arg-type]
    return render_report(ReportMaterial(Path("run"), "run", result, robot=CUBE))


def test_the_headline_names_both_errors():
    said = page().split('<div class="sentences">')[1].split("<h2>")[0]
    assert said.index("Base position: mean error") < said.index("Base orientation: mean error")
    assert quantity(0.0123, "m") in said


def test_tables_and_curves_are_of_all_starts_and_of_first_states():
    html = page()
    for words in ("from all starts (51 roll-outs)", "from first states (4 roll-outs)", "10 frames", "each one"):
        assert words in html
    assert html.count("<svg") == 4
