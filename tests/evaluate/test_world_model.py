# SPDX-License-Identifier: Apache-2.0
"""Evaluation of world models: alignment by a known system, coverage, ranks, and reports."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.store import Store
from neurodyn.dynamics.ensemble import between_marks
from neurodyn.evaluate.calibration import chance_above, forecast_along, rank_correlation, ranks
from neurodyn.evaluate.rollouts import log_starts
from neurodyn.evaluate.world_model import forecast_log
from neurodyn.learn.neural.validation import calibrate, coverage, fit_scales
from tests import worlds


def score(model=None, store: Store | None = None, **options) -> dict:
    model, store = model or worlds.exact_model(), store or worlds.make_store()
    return forecast_log(model, store, **{"split": Split.TEST, "horizon": 20, **options}).plain()


@pytest.mark.parametrize("context", [0, 7])
def test_the_known_system_has_no_error(context: int):
    found = score(worlds.exact_model(context))
    for mark in ("1", "10", "20"):
        assert max(found["at_horizon"][mark]["model"]["columns"]) < 1e-4
        assert found["at_horizon"][mark]["hold_last"]["spreads"] > 0.01
    assert found["context_frames"] == context
    assert found["finite_fraction"] == 1.0


@pytest.mark.parametrize("frames", [-1, 1])
def test_a_control_that_is_off_by_one_frame_is_clearly_seen(frames: int):
    store = worlds.make_store()
    rows = store.frames.copy()
    rows[:, 4:6] = np.roll(rows[:, 4:6], frames, axis=0)
    found = score(store=dataclasses.replace(store, frames=rows))
    assert found["at_horizon"]["20"]["model"]["columns"][2] > 0.02


def test_the_first_prediction_is_of_the_frame_after_the_history():
    store = worlds.make_store()
    starts, _ = log_starts(store, Split.TEST, 4, 5)
    found = forecast_along(worlds.exact_model(), store, starts)
    np.testing.assert_allclose(
        -found.compared.baseline("hold_last").columns[..., 0], (starts.q[:, 1:] - starts.q[:, :1])[..., 0], atol=1e-6
    )
    assert found.error.abs().max() < 1e-4


def test_windows_never_cross_episodes():
    store = worlds.make_store(frames=30)
    assert (log_starts(store, None, 5, 20)[0].start + 25 <= 30).all()


def test_the_report_has_what_the_command_line_promises():
    model = worlds.make_model()
    found = score(model, beside={"other": worlds.make_model(1)})
    assert {"joint_rad", "coverage", "epistemic"} <= set(found)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert set(found["at_horizon"]["20"]) == {"seconds", "starts", "model", "hold_last", "other"}
    assert set(found["events"]) == {"pad", "termination"}
    assert found["noise"]["0"]["20"]["spreads"] == pytest.approx(found["at_horizon"]["20"]["model"]["spreads"], rel=0.2)
    assert found["by_frame"]["model"][19] == pytest.approx(found["at_horizon"]["20"]["model"]["spreads"])


def test_models_of_something_else_are_refused():
    import msgspec

    from neurodyn.dynamics.world_model.model import WorldModel

    other = WorldModel(msgspec.structs.replace(worlds.SPEC, dt=0.01), worlds.SMALL)
    with pytest.raises(InputError, match=r"dt is 0\.01 s"):
        score(worlds.make_model(), beside={"fine": other})


def test_scales_give_the_band_of_ninety_percent_its_share():
    torch.manual_seed(0)
    spread = torch.rand(20_000, 100, 2) + 0.5
    error = torch.randn(20_000, 100, 2) * spread * torch.tensor([0.5, 4.0])
    scales = fit_scales(error, spread)
    torch.testing.assert_close(scales[0], torch.tensor([0.5, 4.0]), rtol=0.05, atol=0)
    model = worlds.make_model()
    wide = torch.cat([spread, spread, spread[..., :1]], -1)
    calibrate(model, torch.cat([error, error, error[..., :1]], -1), wide)
    calibrated = wide * between_marks(model.calibration_scales, 100)
    within = coverage(torch.cat([error, error, error[..., :1]], -1), calibrated, 1.6449)
    assert ((within > 0.88) & (within < 0.92)).all()
    assert (coverage(error, spread, 2.0)[:, 1] < 0.5).all()


def test_ranks_share_the_mean_of_ties():
    assert ranks(torch.tensor([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1.0, 3.5, 2.0]


def test_rank_correlation_sees_order_and_nothing_else():
    x = torch.randn(500, generator=torch.Generator().manual_seed(0))
    assert rank_correlation(x, x.exp()) == pytest.approx(1.0)
    assert rank_correlation(x, -(x**3)) == pytest.approx(-1.0)
    assert rank_correlation(x, torch.zeros(500)) == 0.0
    assert abs(rank_correlation(x, torch.randn(500, generator=torch.Generator().manual_seed(1)))) < 0.15


def test_the_chance_to_be_above_counts_ties_half():
    assert chance_above(torch.tensor([2.0, 3.0]), torch.tensor([0.0, 1.0])) == 1.0
    assert chance_above(torch.tensor([1.0, 1.0]), torch.tensor([1.0])) == 0.5
    assert chance_above(torch.tensor([0.0]), torch.tensor([1.0, -1.0])) == 0.5
