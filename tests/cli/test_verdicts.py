# SPDX-License-Identifier: Apache-2.0
"""A training that cannot be used ends with exit code 2 and the cause; others end with their verdict."""

import json
from pathlib import Path

import pytest

from neurodyn.cli.terminal.console import report_training
from neurodyn.core.errors import InputError
from neurodyn.learn.loop import TrainState


def test_what_fails_is_an_error_and_nothing_is_said_to_come_next(capsys):
    with pytest.raises(InputError, match="run: verdict: fails: it diverged; do that"):
        report_training(Path("run"), TrainState(step=7, verdict="fails: it diverged; do that"))
    assert "next:" not in capsys.readouterr().out


def test_the_verdict_is_the_last_line(capsys):
    report_training(Path("run"), TrainState(step=7, verdict="warning: only 7 steps; give more"))
    assert capsys.readouterr().out.splitlines()[-1] == "verdict: warning: only 7 steps; give more"


@pytest.mark.parametrize(
    ("settings", "device", "cpu", "said"),
    [
        ("minutes: 1, clock: wall", "cpu", 20.0, True),
        ("minutes: 1, clock: wall", "cpu", 50.0, False),
        ("minutes: 1, clock: cpu", "cpu", 20.0, False),
        ("steps: 9, clock: wall", "cpu", 20.0, False),
        ("minutes: 1, clock: wall", "cuda:0 (some GPU)", 20.0, False),
    ],
)
def test_a_training_that_others_left_no_core_says_so(
    settings: str, device: str, cpu: float, said: bool, tmp_path: Path, capsys
):
    (tmp_path / "config.yaml").write_text(f"settings: {{{settings}}}")
    (tmp_path / "manifest.json").write_text(json.dumps({"device": device}))
    report_training(tmp_path, TrainState(step=7, seconds=60.0, cpu_seconds=cpu, verdict="ok"))
    assert ("20 of 60 s were left for the training" in capsys.readouterr().out) == said
