# SPDX-License-Identifier: Apache-2.0
"""When a point of the robot is held, such as a stance foot: found from its motion, where no column of the log says so.

Speeds of a held and of a moving point are far apart. The threshold between them is that of Otsu ("A threshold selection
method from gray-level histograms", 1979) on their logarithms, over all points and runs.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from neurodyn.core.errors import InputError

Places = Callable[[np.ndarray], Mapping[str, np.ndarray]]
"""Returns the places of points [m], shape [rows, 3], by the control that holds each, from positions [rows, nq]."""

_SPAN = 0.04
"""Time over which a speed is measured [s]: differences between single rows are mostly noise of encoders."""
_SHORTEST = 0.05
"""Least time that a point is held [s]; a swinging one also rests for a moment where it turns."""
_APART = 4.0
"""Least ratio between mean speeds of moving and held points."""
_SLOWEST = 1e-5
"""Speeds below this are none [m/s]."""
_LEVELS = 200


@dataclass(frozen=True)
class HeldPoints:
    """Finds from when to when points are held.

    Attributes:
        places: Places of the points.
        threshold: Speed below which a point is held [m/s].
    """

    places: Places
    threshold: float

    @classmethod
    def fit(cls, places: Places, runs: Iterable[tuple[np.ndarray, np.ndarray]]) -> "HeldPoints":
        """Choose the threshold by the times [s] and positions of runs, shapes [rows] and [rows, nq].

        Raises:
            InputError: Points are held all the time or never, so that nothing tells the two apart.
        """
        speeds = [_speeds(place, time) for time, q in runs for place in places(q).values()]
        threshold = _between(np.concatenate([np.zeros(0), *speeds]))
        if threshold is None:
            raise InputError(
                "control: found: the points of the pivots do not rest at some times and move at others; valid: columns "
                "that are 1 where they hold, or `point` of each pivot where the robot touches"
            )
        return cls(places, threshold)

    def __call__(self, time: np.ndarray, q: np.ndarray) -> dict[str, np.ndarray]:
        """Return 1 for each row from which to the next one a point is held, else 0, shape [rows], by control."""
        return {name: self._held(time, place) for name, place in self.places(q).items()}

    def _held(self, time: np.ndarray, place: np.ndarray) -> np.ndarray:
        held = _speeds(place, time) < self.threshold
        for first, end in intervals(held):
            held[first:end] = time[end] - time[first] >= _SHORTEST
        for first, end in intervals(held.copy()):
            _widen(held, place, first, end)
        return np.append(held, held[-1:]).astype(float)


def _widen(held: np.ndarray, place: np.ndarray, first: int, end: int) -> None:
    """Extend an interval to the frames beside it in which the point stays where it is held: speeds blur its ends."""
    inner = place[first : end + 1]
    middle = np.median(inner, 0)
    slack = 3.0 * float(np.sqrt(np.mean(np.square(inner - middle).sum(1))))
    near = np.linalg.norm(place - middle, axis=1) <= slack
    while first > 0 and near[first - 1]:
        first -= 1
    while end < len(held) and near[end + 1]:
        end += 1
    held[first:end] = True


def _speeds(place: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Return the speed of a point from each row to the next, over `_SPAN` around it [m/s], shape [rows - 1]."""
    rows, reach = np.arange(len(place) - 1), max(0, round(0.5 * (_SPAN / float(np.median(np.diff(time))) - 1.0)))
    first, last = np.maximum(rows - reach, 0), np.minimum(rows + 1 + reach, len(place) - 1)
    return np.linalg.norm(place[last] - place[first], axis=1) / (time[last] - time[first])


def _between(speeds: np.ndarray) -> float | None:
    """Return the speed between those of held and of moving points; None if they are not apart."""
    logs = np.log(np.maximum(speeds, _SLOWEST))
    levels = np.linspace(logs.min(initial=0.0), logs.max(initial=0.0), _LEVELS + 2)[1:-1]
    best, threshold = 0.0, None
    for level in levels:
        slow, fast = logs[logs < level], logs[logs >= level]
        if not len(slow) or not len(fast):
            continue
        apart = float(fast.mean() - slow.mean())
        between = len(slow) * len(fast) * apart**2
        if between > best and apart > np.log(_APART):
            best, threshold = between, float(np.exp(level))
    return threshold


def intervals(held: np.ndarray) -> list[tuple[int, int]]:
    """Return first and end of each interval in which a point is held."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], held, [False]]).astype(int)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
