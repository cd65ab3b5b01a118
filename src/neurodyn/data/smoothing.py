# SPDX-License-Identifier: Apache-2.0
"""Smoothing of a log's columns by a symmetric window, which delays nothing, and their integrals."""

import numpy as np

_SMOOTHED, _WIDEST = 0.09, 31
"""Length of the window [s], and its most frames."""


def smoothing_window(dt: float, fewest: int) -> np.ndarray:
    """Return the weights of a window of an odd number of frames, at least `fewest`, with sum 1; `dt` is a frame [s]."""
    width = min(max(round(_SMOOTHED / dt), fewest), _WIDEST) | 1
    window = np.hanning(width + 2)[1:-1]
    return window / window.sum()


def linear_integral(time: np.ndarray, value: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Integrate the linear interpolation between rows from time[0] to each of `at`, shape [at, columns]."""
    pieces = 0.5 * (value[1:] + value[:-1]) * np.diff(time)[:, None]
    area = np.concatenate((np.zeros((1, value.shape[1])), np.cumsum(pieces, axis=0)))
    row = np.clip(np.searchsorted(time, at, side="right") - 1, 0, len(time) - 2)
    s = (at - time[row])[:, None]
    rate = (value[row + 1] - value[row]) / (time[row + 1] - time[row])[:, None]
    return area[row] + s * value[row] + 0.5 * s**2 * rate


def smooth(columns: np.ndarray, window: np.ndarray) -> np.ndarray:
    """Return columns smoothed by the weights of a window, shape [frames, columns]."""
    from scipy.ndimage import convolve1d  # slow to import, and logs are opened where none is smoothed

    return convolve1d(columns, window, axis=0, mode="nearest")
