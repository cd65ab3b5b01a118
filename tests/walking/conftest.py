# SPDX-License-Identifier: Apache-2.0
"""An A1 on flat ground in the hybrid engine; compiled once."""

import pytest

from neurodyn.robots import is_installed, load
from neurodyn.walking.plant import WalkingPlant, walking_plant


@pytest.fixture(scope="session")
def a1() -> WalkingPlant:
    pytest.importorskip("newton")
    robot = load("a1")
    if not is_installed(robot):
        pytest.skip("example-robot-data is not installed")
    return walking_plant(robot, "hybrid")
