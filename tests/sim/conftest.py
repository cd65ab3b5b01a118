# SPDX-License-Identifier: Apache-2.0
"""Small robots for tests of the simulator's room."""

from pathlib import Path

import pytest

from neurodyn import robots
from neurodyn.robots import Robot

pytest.importorskip("newton", reason="the extra `sim` is not installed")

ASSETS = Path(__file__).parent / "assets"


@pytest.fixture(scope="session")
def cartpole() -> Robot:
    return robots.load("cartpole")


@pytest.fixture(scope="session")
def pendulum() -> Robot:
    return robots.load("dfki-c1")


@pytest.fixture(scope="session")
def tilted() -> Robot:
    return robots.load(ASSETS / "tilted.yaml")


@pytest.fixture(scope="session")
def arm() -> Robot:
    return robots.load(ASSETS / "arm")
