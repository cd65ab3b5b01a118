# SPDX-License-Identifier: Apache-2.0
"""When joints follow their targets: what a servo's delay and damping together tell."""

import numpy as np
import pytest

from neurodyn.data.readers.following import delay_of, measure_following, targets
from neurodyn.data.readers.raw import RawRun

from .conftest import SPEC

TIME = 0.005 * np.arange(6001)
HOLD = 0.0025
"""How late a target is on average for being held from row to row [s]."""


def log(late: float, noise: float = 0.0) -> list[RawRun]:
    """A log of joints that are where their targets were `late` seconds before, with an offset; targets are held."""
    path = lambda t: np.stack([np.sin(1.3 * t) + 0.3 * np.sin(3.1 * t), np.cos(0.9 * t + 0.2)], 1)  # noqa: E731
    rng = np.random.default_rng(0)
    q = path(TIME - late) + 0.05 + noise * rng.normal(size=(len(TIME), 2))
    return [RawRun("r", "", None, TIME, q, np.gradient(q, TIME, axis=0), path(TIME + HOLD))]


@pytest.mark.parametrize("late", [0.0, 0.043, 0.21])
def test_the_time_to_follow_is_found_between_frames(late: float):
    runs = log(late, noise=0.01)
    assert targets(runs, SPEC) == ["lift", "turn"]
    found = measure_following(runs, SPEC, ["lift", "turn"], averaged=False)
    assert found is not None
    assert found.time == pytest.approx(late, abs=max(4.0 * found.deviation, 1e-3))
    assert found.deviation < 2e-3


def test_a_short_log_tells_nothing_and_gains_turn_the_time_into_a_delay():
    short = [RawRun("r", "", None, TIME[:300], *(x[:300] for x in (log(0.1)[0].q, log(0.1)[0].q, log(0.1)[0].control)))]
    assert measure_following(short, SPEC, ["lift"], averaged=False) is None
    found = measure_following(log(0.1), SPEC, ["lift", "turn"], averaged=False)
    assert found is not None
    delay, deviation = delay_of(found, expected=0.08)
    assert abs(delay - 0.02) < 2e-3 < deviation
    assert delay_of(found, None)[0] == pytest.approx(0.05, abs=1e-3)
