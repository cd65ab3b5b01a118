# SPDX-License-Identifier: Apache-2.0
"""Robots as built are kept by their content: equal to what is built anew, and built anew where they are damaged."""

from pathlib import Path

import msgspec
import pytest

pytest.importorskip("newton")

from scripts.built_robots import shipped_robots

from neurodyn.core.errors import notice
from neurodyn.robots import Robot, load
from neurodyn.sim.articulations import SHIPPED, Articulation, built_name, encoded_robot, kept_articulation
from neurodyn.sim.newton.articulation import newton_articulation


class Builder:
    """Builds robots, and counts how often."""

    def __init__(self, text: str = "") -> None:
        self.count, self.text = 0, text

    def __call__(self, robot: Robot) -> Articulation:
        self.count += 1
        if self.text:
            notice(self.text)
        return newton_articulation(None, robot)


@pytest.fixture
def robot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Robot:
    """A robot that does not ship, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return msgspec.structs.replace(load("cartpole"), mass_scale=1.25)


def test_a_robot_is_built_once(robot: Robot, tmp_path: Path) -> None:
    build = Builder()
    first = encoded_robot(kept_articulation(build, robot))
    assert build.count == 2  # links, then constraints
    assert encoded_robot(kept_articulation(build, robot)) == first == encoded_robot(newton_articulation(None, robot))
    assert build.count == 2
    other = kept_articulation(build, msgspec.structs.replace(robot, mass_scale=1.5))
    assert build.count == 3
    assert other.mass > kept_articulation(build, robot).mass


def test_a_damaged_file_is_built_again_and_a_place_that_cannot_be_written_costs_nothing(robot, tmp_path, monkeypatch):
    build = Builder()
    expected = encoded_robot(kept_articulation(build, robot))
    (file,) = (tmp_path / "cache/neurodyn/robots").glob("*.json")
    file.write_bytes(file.read_bytes()[:100])
    assert encoded_robot(kept_articulation(build, robot)) == expected
    assert build.count == 4
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert kept_articulation(build, robot).mass > 0
    assert build.count == 5


def test_what_gives_a_notice_is_built_every_time_so_that_it_is_given_again(robot: Robot, tmp_path: Path) -> None:
    build = Builder("left out")
    with pytest.warns(match="left out"):
        kept_articulation(build, robot)
    kept_articulation(build, robot)
    assert build.count == 2
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("name", ["cartpole", pytest.param("ant", marks=pytest.mark.slow)])
def test_what_ships_is_what_is_built(name: str) -> None:
    robot = load(name)
    kept = (SHIPPED / built_name(robot)).read_bytes().strip()
    assert kept == encoded_robot(newton_articulation(None, robot)), "run scripts/built_robots.py"


def test_all_robots_ship_as_built() -> None:
    wanted = {robot.name: built_name(robot) for robot in shipped_robots()}
    missing = {name: file for name, file in wanted.items() if not (SHIPPED / file).is_file()}
    assert not missing, "run scripts/built_robots.py"
