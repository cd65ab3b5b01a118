# SPDX-License-Identifier: Apache-2.0
"""Small robots for tests of the simulator's room."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from neurodyn import robots
from neurodyn.robots import Robot

if find_spec("newton") is None:  # the extra `sim` is not installed
    collect_ignore_glob = ["test_*.py"]

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
