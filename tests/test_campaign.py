# SPDX-License-Identifier: Apache-2.0
"""The campaign in its short form: no failure of any kind (docs/reliability.md)."""

import json
import os
import subprocess
import sys

import pytest

from tests.plant import repository


@pytest.mark.slow
def test_the_short_campaign_has_no_failures(tmp_path):
    pytest.importorskip("newton")
    script, out = repository() / "benchmarks" / "campaign.py", tmp_path / "campaign.json"
    done = subprocess.run(
        [sys.executable, str(script), "--short", "--json", str(out)], capture_output=True, text=True, check=False,
        timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(out.read_text())["figures"]
    assert {name: value for name, value in figures.items() if name.endswith("_failed") and value} == {}
    assert (figures["robots_runs"], figures["logs_runs"]) == (27, 32)  # some that once failed
    assert figures["poisoned_runs"] == 15  # each of five models by each of three values


def line(turn: int, **changed: object) -> dict[str, object]:
    sound = {"process": 1, "elapsed": 60.0, "cpu": 20.0, "resident": 800.0 + turn % 3, "peak": 700.0, "files": 14}
    return {"turn": turn, "threads": 5, "failures": [], **sound, **changed}


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ([line(i) for i in range(40)], []),
        ([line(i, resident=500.0 + 30.0 * i if i < 10 else 801.0) for i in range(40)], []),  # caches that fill
        ([line(i, resident=800.0 + i) for i in range(40)], ["resident grew by 3.6% over 30 turns; at most 2%"]),
        ([line(i, files=14 + i // 4) for i in range(40)], ["files grew by"]),
        ([line(i, failures=["lost"] if i == 2 else []) for i in range(4)], ["turn 2: lost"]),
    ],
)
def test_a_soak_is_judged_by_growth_after_warm_up_and_failures(turns, words, monkeypatch):
    pytest.importorskip("newton")
    monkeypatch.syspath_prepend(str(repository() / "benchmarks"))
    from soak import judged  # pyright: ignore[reportMissingImports]

    figures, wrong = judged(turns)
    assert (figures["turns"], figures["hours"]) == (len(turns), pytest.approx(len(turns) / 60))
    assert len(wrong) == len(words)
    assert all(found.startswith(wanted) for found, wanted in zip(wrong, words, strict=True))
