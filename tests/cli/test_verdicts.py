# SPDX-License-Identifier: Apache-2.0
"""A training that cannot be used ends with exit code 2 and the cause; others end with their verdict."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from neurodyn.cli.terminal.console import print_verdict, report_training
from neurodyn.cli.train import adapt
from neurodyn.core.errors import InputError
from neurodyn.core.verdict import Finding, combine_verdicts
from neurodyn.identify.result import IdentificationFigures
from neurodyn.learn.budget import TrainState


def test_what_fails_is_an_error_and_nothing_is_said_to_come_next(capsys):
    with pytest.raises(InputError, match="run: verdict: fails: it diverged; do that"):
        report_training(Path("run"), TrainState(step=7, verdict="fails: it diverged; do that"))
    assert "next:" not in capsys.readouterr().out


def test_the_verdict_is_the_last_line(capsys):
    report_training(Path("run"), TrainState(step=7, verdict="warning: only 7 steps; give more"))
    assert capsys.readouterr().out.splitlines()[-1] == "verdict: warning: only 7 steps; give more"


def test_each_finding_of_a_verdict_begins_a_line_and_fits_the_screen(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    findings = [Finding(name, "warning", f"{name} is {'very ' * 12}odd", "mend it; or not") for name in "abcde"]
    print_verdict(combine_verdicts(findings))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    begun = [line for line in lines if not line.startswith("    ")]
    assert [line[:20].strip() for line in begun] == [
        "verdict: warning: a",
        "warning: b is very",
        "warning: c is very",
        "and 2 more",
    ]


@pytest.mark.parametrize("starved", [True, False])
def test_a_training_that_others_left_no_core_says_so(starved: bool, capsys):
    report_training(Path("run"), TrainState(step=7, seconds=60.0, cpu_seconds=20.0, verdict="ok", starved=starved))
    assert ("20 of 60 s were left for the training" in capsys.readouterr().out) == starved


def test_an_adaptation_that_fails_writes_its_results_and_ends_with_an_error(tmp_path: Path, monkeypatch, capsys):
    figures = IdentificationFigures(robot="arm", parameters=[], chosen="declared", verdict="fails: a sign; mend it")
    found = SimpleNamespace(figures=figures, runs=[])
    monkeypatch.setattr("neurodyn.identify.run.adapt", lambda request: found)
    monkeypatch.setattr("neurodyn.report.identification.write_identification", lambda *parts: None)
    monkeypatch.setattr("neurodyn.cli.terminal.results.print_adaptation", lambda figures: None)
    monkeypatch.setattr("neurodyn.cli.terminal.results.print_next", lambda *parts: None)
    with pytest.raises(InputError, match="run: verdict: fails: a sign; mend it"):
        adapt(robot="ant", data=("log.h5",), out=tmp_path / "run", json=tmp_path / "told.json")
    assert '"verdict": "fails: a sign; mend it"' in (tmp_path / "told.json").read_text()
    assert "verdict" not in capsys.readouterr().out
