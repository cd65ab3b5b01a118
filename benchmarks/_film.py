# SPDX-License-Identifier: Apache-2.0
"""Calibration of IBM's film: offsets of its markers from the joint axes.

Marker distances are not constant: the first link's changes with its own angle, by .1, .3 % (the pivot's marker is off
the axis), the second's with the angle between the links, by .4 %, and with its own (the elbow's marker is off its axis,
and the links move in two planes at different distances from the camera). Four millimetres and more of a pixel
correspond to up to four milliradians. The offsets follow from the distances alone, by least squares, without a motion
model.
"""

from pathlib import Path

import numpy as np

_LINK = 589.0
"""Length of the upper link at the film's usual zoom [1/5 pixel]."""


def calibrated(log: Path, out: Path) -> np.ndarray:
    """Write a copy of IBM's packed log with angles about the axes of the joints.

    Args:
        log: The packed log.
        out: The copy.

    Returns:
        Offset of the pivot's marker (fixed), of the elbow's (fixed in the world, then in the upper link) [1/5 pixel].
    """
    data = dict(np.load(log))
    markers, offsets, angles = data["markers_px5"].astype(float), data["offsets"], data["theta"].astype(float)
    runs = [slice(offsets[k], offsets[k + 1]) for k in range(len(offsets) - 1)]
    zoom = data["link_px5"][:, 0] / _LINK
    train = [k for k in range(len(runs)) if data["split"][k] == 0]
    found = np.mean([_offsets(markers[runs[k]], angles[runs[k]]) / zoom[k] for k in train], axis=0)
    for k, rows in enumerate(runs):
        angles[rows] += _change(markers[rows], angles[rows], found * zoom[k])
    np.savez(out, **{**data, "theta": angles})
    return found


def _offsets(markers: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Return the offsets that make a run's marker distances vary, shape [6]."""
    upper, lower = angles.T
    between = lower - upper
    pivot, elbow, tip = markers[:, :2], markers[:, 2:4], markers[:, 4:]
    one = np.ones_like(upper)
    first = np.stack([one, np.cos(upper), np.sin(upper)], 1)
    second = np.stack([one, np.cos(lower), np.sin(lower), np.cos(between), np.sin(between)], 1)
    parts = []
    for columns, distance in ((first, elbow - pivot), (second, tip - elbow)):
        parts.append(np.linalg.lstsq(columns, np.hypot(*distance.T), rcond=None)[0][1:])
    return np.concatenate(parts)


def _change(markers: np.ndarray, angles: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the difference between angles about the axes and angles of the markers, shape [T, 2]."""
    pivot, elbow, tip = markers[:, :2], markers[:, 2:4], markers[:, 4:]
    first = elbow - pivot - offsets[:2]
    upper = np.arctan2(first[:, 1], first[:, 0])
    c, s, (x, y) = np.cos(upper), np.sin(upper), offsets[4:]
    second = tip - elbow - offsets[2:4] - np.stack([c * x - s * y, s * x + c * y], 1)
    turned = np.stack([upper, np.arctan2(second[:, 1], second[:, 0])], 1) - angles
    return np.remainder(turned + np.pi, 2 * np.pi) - np.pi
