# SPDX-License-Identifier: Apache-2.0
"""Residuals over whole runs of a log."""

from functools import partial

import pytest

from neurodyn.data.header import Split, Status, StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter
from neurodyn.dynamics.batch import RecordedEnvironments
from neurodyn.identify.ladder.held_out import hybrid_forecast, own_motion, run_errors, whole_runs
from tests.identify.pendulum import SPEC, dynamics, true_noise, windows

FRAMES, PAST, NOISE = 20, 5, (1e-4, 1e-3)


@pytest.fixture
def model():
    return dynamics()


def store(path, model, lengths) -> Store:
    """A log of the model's own motion with noise, with one run of each length."""
    with StoreWriter(path, StoreHeader(source="log", spec=SPEC, runs=("long", "short"))) as writer:
        for run, length in enumerate(lengths):
            motion = windows(model, {}, count=1, frames=length, seed=run, noise=NOISE)
            writer.append(
                motion.q.numpy(),
                motion.qd.numpy(),
                motion.control.numpy(),
                status=[Status.LOG],
                run=[run],
                split=[Split.TEST],
            )
    return Store.open(path)


def test_runs_too_short_for_a_roll_out_are_left_out(tmp_path, model):
    log = store(tmp_path / "log.h5", model, (60, 8))
    environments, noise = RecordedEnvironments(log), true_noise(NOISE)
    forecast = hybrid_forecast(model, "past", PAST, noise, environments)
    measured = partial(own_motion, model, noise=noise, environments=environments, seed=0)
    found = whole_runs(
        {"identified": forecast}, log, Split.TEST, frames=FRAMES, past=PAST, perfect=(forecast, measured)
    )
    assert [fit.run for fit in found] == ["long"]
    (errors,) = run_errors(found)
    assert errors.q["identified"] < 0.01
    assert 0 < errors.floor < 0.01
