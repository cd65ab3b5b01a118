# SPDX-License-Identifier: Apache-2.0
"""Calibration of world models of few runs: bands widen by how much runs differ."""

import dataclasses

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.data.header import Split
from neurodyn.data.store import Store
from neurodyn.learn.neural.validation import NOMINAL, SIGMAS, widening
from neurodyn.learn.world_model.trainer import WorldValidation
from tests import worlds
from tests.learn.world_model.test_train import QUICK

SETTINGS = msgspec.structs.replace(QUICK, validation_frames=10)


@pytest.mark.parametrize("held_out", [1, 2, 5])
def test_bands_of_few_runs_cover_other_runs(held_out):
    rng, spread = np.random.default_rng(0), 0.6
    log_scales = spread * rng.standard_normal((20_000, held_out))
    by_run = torch.from_numpy(np.exp(spread * rng.standard_normal((2_000, 1))))
    factor = float(widening(by_run, held_out))
    # The band of the held-out runs together: that of a normal distribution with their mean variance.
    band = SIGMAS * np.sqrt(np.exp(2.0 * log_scales).mean(1))
    errors = np.exp(spread * rng.standard_normal(20_000)) * rng.standard_normal(20_000)
    assert (np.abs(errors) <= factor * band).mean() == pytest.approx(NOMINAL, abs=0.03)
    if held_out == 1:
        assert (np.abs(errors) <= band).mean() < 0.85


def test_runs_that_are_alike_widen_nothing():
    torch.testing.assert_close(widening(torch.full((5, 3), 0.7), 1), torch.ones(3), atol=1e-6, rtol=0)
    assert widening(torch.full((1, 3), 0.7), 1).tolist() == [1.0, 1.0, 1.0]


def runs(training: list[float], validation: list[float]) -> Store:
    """Runs of which each has its own noise; the last ones are for validation."""
    noises = (*validation, *training)
    parts = [worlds.make_store(9, failures=False, seed=k, noise=noise) for k, noise in enumerate(noises)]
    length = int(parts[0].table["length"][0]) + 1
    frames = np.concatenate([np.array(part.frames[:length]) for part in parts])
    table = np.concatenate([part.table[:1] for part in parts])
    table["start"] = np.arange(len(parts)) * length
    table["split"] = [Split.VALIDATION] * len(validation) + [Split.TRAIN] * len(training)
    return dataclasses.replace(parts[0], frames=frames, table=table)


def test_bands_are_wider_where_training_runs_differ():
    scales = []
    for training in ([0.02] * 4, [0.005, 0.01, 0.04, 0.08]):
        model = worlds.exact_model()
        WorldValidation(runs(training, [0.02]), SETTINGS, torch.device("cpu")).calibrate(model)
        scales.append(model.calibration_scales[2])
    assert bool((scales[1] > 1.5 * scales[0]).all()), scales
