# SPDX-License-Identifier: Apache-2.0
"""Feet that swing: where they are to be on the way from where they lifted to where they are to land."""

import numpy as np


def swing_motion(
    lifted: np.ndarray, landing: np.ndarray, progress: np.ndarray, duration: float, clearance: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places [m], velocities [m/s] and accelerations [m/s^2] of feet, shape [..., 3] each.

    They move over the ground with least jerk, up to `clearance` above the higher end, and down again.

    Args:
        lifted: Where they lifted [m], shape [..., 3].
        landing: Where they are to land [m], likewise.
        progress: How much of the swing is done, 0 to 1, shape [...].
        duration: Length of a swing [s].
        clearance: Height [m].
    """
    share, rate, curve = _least_jerk(progress)
    way = landing - lifted
    place = lifted + share[..., None] * way
    velocity, acceleration = rate[..., None] * way / duration, curve[..., None] * way / duration**2
    rising = progress < 0.5
    apex = np.maximum(lifted[..., 2], landing[..., 2]) + clearance
    begin = np.where(rising, lifted[..., 2], apex)
    end = np.where(rising, apex, landing[..., 2])
    share, rate, curve = _least_jerk(np.where(rising, 2.0 * progress, 2.0 * progress - 1.0))
    place[..., 2] = begin + share * (end - begin)
    velocity[..., 2] = rate * (end - begin) / (0.5 * duration)
    acceleration[..., 2] = curve * (end - begin) / (0.5 * duration) ** 2
    return place, velocity, acceleration


def _least_jerk(s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the polynomial from 0 to 1 that begins and ends at rest without acceleration, and its derivatives."""
    return s**3 * (10 - 15 * s + 6 * s * s), 30 * s * s * (1 - s) ** 2, 60 * s * (1 - s) * (1 - 2 * s)
