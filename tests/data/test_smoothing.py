# SPDX-License-Identifier: Apache-2.0
"""Smoothing delays nothing, and integrals of columns between rows are exact."""

import numpy as np
import pytest

from neurodyn.data.smoothing import linear_integral, smooth, smoothing_window


@pytest.mark.parametrize(("dt", "fewest", "width"), [(0.01, 3, 9), (0.03, 5, 5), (1e-4, 3, 31), (1.0, 2, 3)])
def test_windows_are_odd_symmetric_and_of_sum_one(dt: float, fewest: int, width: int):
    window = smoothing_window(dt, fewest)
    assert len(window) == width
    assert window.sum() == pytest.approx(1.0)
    assert np.allclose(window, window[::-1])


def test_a_ramp_is_neither_delayed_nor_changed():
    ramp = np.stack([np.arange(50.0), 3.0 - 2.0 * np.arange(50.0)], 1)
    assert np.allclose(smooth(ramp, smoothing_window(0.01, 3))[5:-5], ramp[5:-5])


def test_integrals_between_rows_are_those_of_the_interpolation():
    time, value = np.array([0.0, 1.0, 3.0]), np.array([[0.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    # The first column rises to 2 and falls to 0: half of its first triangle, all of it, and a quarter of the second.
    areas = linear_integral(time, value, np.array([0.0, 0.5, 1.0, 2.0, 3.0]))
    assert np.allclose(areas[:, 0], [0.0, 0.25, 1.0, 2.5, 3.0])
    assert np.allclose(areas[:, 1], [0.0, 0.5, 1.0, 2.0, 3.0])
