# SPDX-License-Identifier: Apache-2.0
"""Whole walks of the compass gait from its steps: one log of both legs over all impacts."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

LENGTH = 0.2778
"""Leg [m]."""
STEP = 0.005
_NEAR = 9
"""Rows of a step beside an impact that say how the legs move there."""


def whole_walks(log: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Join the steps of walks: columns of both legs, the hip's place, and which foot is held.

    The source leaves out seven rows before and after each impact. They are filled by parabolas along the rows beside
    them, which meet halfway, where both feet are on the ground within .5 mm.

    Args:
        log: Arrays of compass_gait.npz.

    Returns:
        `time`, `place` [rows, 2] (x, z of the hip) [m], `outer_leg` and `hip` (the inner leg from it) [rad], `torque`
        [N m], `held` [rows, 2] (outer, inner), `offsets`, and `walk` with one number a walk.
    """
    rows, offsets, walks = list[np.ndarray](), [0], []
    for walk in dict.fromkeys(log["walk"].tolist()):
        parts = [_step(log, k) for k in np.flatnonzero(log["walk"] == walk).tolist()]
        joined = [parts[0]]
        for before, after in pairwise(parts):
            joined += [_gap(before, after), after]
        rows.append(_placed(np.concatenate(joined)))
        offsets.append(offsets[-1] + len(rows[-1]))
        walks.append(walk)
    time, outer, inner, torque, held, x, z = np.concatenate(rows).T
    return {
        "time": time, "place": np.stack([x, z], 1), "outer_leg": outer, "hip": inner - outer, "torque": torque,
        "held": np.stack([held, 1.0 - held], 1), "offsets": np.array(offsets), "walk": np.array(walks),
    }  # fmt: skip


def _step(log: Mapping[str, np.ndarray], k: int) -> np.ndarray:
    """Return time, angles of outer and inner leg, hip torque and whether the outer foot is held, shape [rows, 5]."""
    rows, outer = slice(*log["offsets"][k : k + 2]), bool(log["side"][k])
    stance, swing = log["q"][rows, 0], log["q"][rows].sum(1)
    legs = (stance, swing) if outer else (swing, stance)
    torque = log["torque"][rows] * (1.0 if outer else -1.0)
    return np.stack([log["time"][rows], *legs, torque, np.full(len(stance), float(outer))], 1)


def _gap(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the rows between two steps, with the impact in the middle."""
    count = round((after[0, 0] - before[-1, 0]) / STEP) - 1
    time = before[-1, 0] + STEP * np.arange(1, count + 1)
    middle = 0.5 * (before[-1, 0] + after[0, 0])
    early = time < middle
    columns = []
    for column in (1, 2):
        first, second = (
            np.polynomial.Polynomial.fit(part[:, 0], part[:, column], 2) for part in (before[-_NEAR:], after[:_NEAR])
        )
        apart = second(middle) - first(middle)
        share = np.where(early, time - before[-1, 0], after[0, 0] - time) / (middle - before[-1, 0])
        columns.append(np.where(early, first(time) + 0.5 * apart * share, second(time) - 0.5 * apart * share))
    torque = np.interp(time, [before[-1, 0], after[0, 0]], [before[-1, 3], after[0, 3]])
    return np.stack([time, *columns, torque, np.where(early, before[-1, 4], after[0, 4])], 1)


def _placed(rows: np.ndarray) -> np.ndarray:
    """Return rows with the place of the hip, which each stance foot continues."""
    stance = np.where(rows[:, 4] > 0.5, rows[:, 1], rows[:, 2])
    ahead, foot = LENGTH * np.sin(stance), np.zeros(len(rows))
    for switch in (np.flatnonzero(np.diff(rows[:, 4])) + 1).tolist():
        swing = np.where(rows[switch, 4] > 0.5, rows[switch, 2], rows[switch, 1])
        foot[switch:] = foot[switch - 1] + LENGTH * (np.sin(swing) - np.sin(stance[switch]))
    return np.column_stack([rows, foot + ahead, LENGTH * np.cos(stance)])
