# SPDX-License-Identifier: Apache-2.0
"""One vocabulary of verdicts: the worst counts, all of them are reported, each with a next step."""

import pytest

from neurodyn.core import verdict
from neurodyn.core.verdict import Finding, Verdict, combine_verdicts, doubts, grade_of, worst_grade

CASES = [
    (verdict.of_steps(40), "warning: only 40 steps fitted into the budget"),
    (verdict.of_steps(100), "ok"),
    (verdict.of_best_step(0, 50, adapted=True), "warning: step 0 was best: none of 50 steps improved on the model"),
    (verdict.of_best_step(0, 50, adapted=False), "warning: step 0 was best: none of 50 steps improved on the first"),
    (verdict.of_best_step(10, 50, adapted=False), "ok"),
    (verdict.of_skipped(3, 50, " (here)"), "fails: 3 of 50 steps were left out"),
    (verdict.of_skipped(0, 50, ""), "ok"),
    (verdict.of_data(2, 500), "warning: the data hold little: 500 transitions in 2 training episodes"),
    (verdict.of_data(5, 1000), "ok"),
    (verdict.of_persistence(0.2, 0.1, "joint error"), "fails: the model is worse than persistence: joint error 0.2"),
    (verdict.of_persistence(0.1, 0.2, "joint error"), "ok"),
    (verdict.of_persistence(None, 0.2, ""), "fails: no roll-out is finite"),
    (verdict.of_returns(100.0, 20.0, "analytic"), "fails: analytic contradicts the imagined return: 20 instead of 100"),
    (verdict.of_returns(20.0, 100.0, "analytic"), "ok"),
    (verdict.of_returns(100.0, 96.0, "analytic"), "ok"),
    (verdict.of_returns(5.0, -100.0, "analytic"), "fails: analytic contradicts"),
    (verdict.of_faults("world 3", 1, 100), "warning: world 3"),
    (verdict.of_faults("world 3", 50, 100), "fails: world 3"),
    (verdict.of_bounds("driven", 0.99, 10_000, "world 1"), "warning: 1.00% of driven roll-outs leave bounds"),
    (verdict.of_bounds("driven", 1.0, 10_000, ""), "ok"),
]


@pytest.mark.parametrize(("found", "words"), CASES)
def test_each_cause_has_its_words_and_says_what_to_do(found, words):
    assert str(found).startswith(words)
    assert grade_of(str(found)) == found.grade
    assert bool(found.advice) == (found.grade != "ok")


def test_several_are_one_with_the_worst_first():
    found = combine_verdicts([Verdict(), Verdict("warning", "a", "b"), Verdict("fails", "c", "d")])
    assert str(found) == "fails: c; d; warning: a; b"
    assert str(combine_verdicts([Verdict("ok", "said")])) == "ok"
    assert worst_grade([]) == "ok"


def test_a_verdict_fits_on_a_screen():
    findings = [Finding(f"f{k}", "warning", f"what {k}", f"do {k}") for k in range(5)] + [Finding("fine")]
    findings.append(Finding("bad", "fails", "broken", "mend it"))
    verdict = combine_verdicts(findings)
    assert str(verdict) == "fails: broken; mend it; warning: what 0; do 0; warning: what 1; do 1; and 3 more"
    assert [one.name for one in doubts(findings)] == ["bad", "f0", "f1", "f2", "f3", "f4"]
    assert findings[0].plain() == {"name": "f0", "grade": "warning", "what": "what 0", "advice": "do 0"}
