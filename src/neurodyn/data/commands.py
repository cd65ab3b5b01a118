# SPDX-License-Identifier: Apache-2.0
"""What commands are: declared drives and limits, and whether they are targets that joints follow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from neurodyn.core.description.drive import Drive
from neurodyn.data.held_points import Places

_ALIKE, _LEAST_RATIO = 0.9, 0.5
"""Correlation of a command with the position, and least ratio of their deviations, from which on it is a target."""


Loads = Callable[[str, tuple[float, float, float], float, np.ndarray], Mapping[str, np.ndarray]]
"""From a joint, place [m] and radius of gyration [m] of a payload on its link, and masses [kg], shape [N], to the
quantities of the link with each, shape [N], by name."""


@dataclass(frozen=True)
class DeclaredCommands:
    """What a robot's declaration says about its commands, and about bodies that it carries.

    Attributes:
        drives: Drives that follow them, by joint.
        limits: Least and greatest command, by joint.
        places: Places of the points that pivots hold; None if the robot has none.
        loads: Quantities of links that carry a payload; None if the log has none.
    """

    drives: Mapping[str, Drive] = field(default_factory=dict)
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    places: Places | None = None
    loads: Loads | None = None


def targets_among(pairs: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> list[str]:
    """Return the joints whose commands are like their positions, from both, shape [rows] each; see `targets`."""
    alike = []
    for name, (q, u) in pairs.items():
        spread, other = float(q.std()), float(u.std())
        if min(spread, other) < 1e-6 or not _LEAST_RATIO < spread / other < 1.0 / _LEAST_RATIO:
            continue
        if float(np.corrcoef(q, u)[0, 1]) > _ALIKE:
            alike.append(name)
    return alike if 2 * len(alike) > len(pairs) else []


def servo_time(drives: Mapping[str, Drive], joints: list[str]) -> float | None:
    """Return the time after which declared servos follow a slow command, mean of kd / kp over joints [s]."""
    gains = [drives[name].pd_gains() for name in joints if name in drives]
    ratios = [pair[1] / pair[0] for pair in gains if pair is not None and pair[0] > 0.0]
    return float(np.mean(ratios)) if ratios else None
