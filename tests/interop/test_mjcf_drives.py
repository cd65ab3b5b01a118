# SPDX-License-Identifier: Apache-2.0
"""Numbers of MJCF actuators: delays that MuJoCo lacks keep their mean, servos that trail lose damping."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neurodyn.core.description.drive import Drive
from neurodyn.interop.mjcf_drives import acts_after, affine_of, split_delay

STEP = 0.002


def mean_age(delay: float, lag: float) -> float:
    """Return the mean age of the commands that act behind a delay and an exact filter of the commands by step [s]."""
    decay = math.exp(-STEP / lag) if lag else 0.0
    return delay + sum(k * STEP * (1.0 - decay) * decay**k for k in range(5000))


@given(st.floats(0.0, 0.05), st.sampled_from([0.0, 0.003, 0.03]), st.booleans())
def test_delays_and_filters_in_their_place_have_the_same_mean(delay: float, lag: float, delays: bool):
    held, filtered = split_delay(delay, lag, STEP, delays)
    assert held == 0.0 or (delays and held >= STEP)
    assert mean_age(held, filtered) == pytest.approx(mean_age(delay, lag), abs=1e-6)


@pytest.mark.parametrize(
    ("drive", "frame", "after"),
    [
        (Drive(kind="pd", kp=1.0, kd=0.1), 0.01, 0.0),
        (Drive(kind="pd", kp=1.0, kd=0.1, delay=0.003), 0.01, 0.003 + 0.5 * STEP),
        (Drive(kind="pd", kp=1.0, kd=0.1, delay=0.003, updates=1), None, 0.003 + 0.5 * STEP),
        # Of the periods of 10 ms, the command of 4 ms ago acts in the one after it.
        (Drive(kind="pd", kp=1.0, kd=0.1, delay=0.003, updates=1), 0.01, 0.01),
        (Drive(kind="pd", kp=1.0, kd=0.1, delay=0.013, updates=1), 0.01, 0.02),
    ],
)
def test_a_command_acts_after_its_delay_and_half_a_step_or_whole_periods(drive: Drive, frame: float, after: float):
    assert acts_after(drive, STEP, frame) == pytest.approx(after)


def test_a_servo_that_trails_its_state_loses_damping_to_first_order():
    law = affine_of(Drive(kind="pd", kp=20.0, kd=0.5), late=0.004)
    assert law is not None
    assert law.gain == (20.0, 0.0, 0.0)
    assert law.bias == pytest.approx((0.0, -20.0, 20.0 * 0.004 - 0.5))
