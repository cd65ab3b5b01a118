# SPDX-License-Identifier: Apache-2.0
"""Smoothing of a log's columns by a symmetric window, which delays nothing."""

import numpy as np

_SMOOTHED, _WIDEST = 0.09, 31
"""Length of the window [s], and its most frames."""


def smoothing_window(dt: float, fewest: int) -> np.ndarray:
    """Return the weights of a window of an odd number of frames, at least `fewest`, with sum 1; `dt` is a frame [s]."""
    width = min(max(round(_SMOOTHED / dt), fewest), _WIDEST) | 1
    window = np.hanning(width + 2)[1:-1]
    return window / window.sum()


def smooth(columns: np.ndarray, window: np.ndarray) -> np.ndarray:
    """Return columns smoothed by the weights of a window, shape [frames, columns]."""
    from scipy.ndimage import convolve1d  # slow to import, and logs are opened where none is smoothed

    return convolve1d(columns, window, axis=0, mode="nearest")
