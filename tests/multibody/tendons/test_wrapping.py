# SPDX-License-Identifier: Apache-2.0
"""A string around a sphere or a cylinder: the lengths and points of plane geometry."""

import math

import numpy as np
import pytest

from neurodyn.multibody.tendons.wrapping import wrap_path

START, END = np.array([-2.0, 0.1, 0.0]), np.array([2.0, 0.1, 0.0])
FAR = math.hypot(2.0, 0.1)
ABOVE = math.pi - 2 * math.atan2(0.1, 2.0) - 2 * math.acos(1.0 / FAR)
"""Angle of the arc on a circle of radius 1."""


@pytest.mark.parametrize(
    ("side", "arc", "up"), [(None, ABOVE, 1.0), ((0.0, 1.0, 0.0), ABOVE, 1.0), ((0.0, -1.0, 0.0), None, -1.0)]
)
@pytest.mark.parametrize("frame", [None, np.eye(3)])
def test_a_string_follows_the_arc_between_its_tangents(side, arc, up, frame):
    path = wrap_path(START, END, 1.0, None if side is None else np.array(side), frame)
    assert path.wraps == 1.0
    assert path.length == pytest.approx(ABOVE + 4 * math.atan2(0.1, 2.0) if arc is None else arc)
    for point, end in ((path.first, START), (path.last, END)):
        assert float(point @ point) == pytest.approx(1.0)
        assert float(point @ (end - point)) == pytest.approx(0.0, abs=1e-12)  # a tangent
        assert point[1] * up > 0


def test_a_string_runs_up_a_cylinder_at_one_pitch():
    end = np.array([2.0, 0.1, 1.5])
    path = wrap_path(START, end, 1.0, None, np.eye(3))
    straight = math.sqrt(FAR**2 - 1.0)
    pitch = 1.5 / (2 * straight + ABOVE)
    assert path.first[2] == pytest.approx(pitch * straight)
    assert path.length == pytest.approx(ABOVE * math.sqrt(1 + pitch**2))


@pytest.mark.parametrize("lift", [(0.0, 1.0, 0.0), (0.0, -1.2, 0.0)])
def test_a_string_that_misses_the_obstacle_is_straight(lift):
    assert wrap_path(START + np.array(lift), END + np.array(lift), 1.0, None, np.eye(3)).wraps == 0.0
