# SPDX-License-Identifier: Apache-2.0
"""A training that cannot be used ends with exit code 2 and the cause; others end with their verdict."""

from pathlib import Path

import pytest

from neurodyn.cli.terminal.console import report_training
from neurodyn.core.errors import InputError
from neurodyn.learn.plan import TrainState


def test_what_fails_is_an_error_and_nothing_is_said_to_come_next(capsys):
    with pytest.raises(InputError, match="run: verdict: fails: it diverged; do that"):
        report_training(Path("run"), TrainState(step=7, verdict="fails: it diverged; do that"))
    assert "next:" not in capsys.readouterr().out


def test_the_verdict_is_the_last_line(capsys):
    report_training(Path("run"), TrainState(step=7, verdict="warning: only 7 steps; give more"))
    assert capsys.readouterr().out.splitlines()[-1] == "verdict: warning: only 7 steps; give more"


@pytest.mark.parametrize("starved", [True, False])
def test_a_training_that_others_left_no_core_says_so(starved: bool, capsys):
    report_training(Path("run"), TrainState(step=7, seconds=60.0, cpu_seconds=20.0, verdict="ok", starved=starved))
    assert ("20 of 60 s were left for the training" in capsys.readouterr().out) == starved
