# SPDX-License-Identifier: Apache-2.0
"""`neurodyn robots` lists them all."""

import json

from neurodyn.cli.robots import robots
from neurodyn.robots import names


def test_every_robot_is_listed_and_written(tmp_path, capsys):
    robots(tmp_path / "robots.json")
    printed = capsys.readouterr().out
    found = {robot["name"]: robot for robot in json.loads((tmp_path / "robots.json").read_text())["robots"]}
    assert sorted(found) == names()
    assert all(name in printed for name in found)
    assert found["cartpole"]["controls"] == ["slider"]
    assert found["cartpole"]["teacher"] == "featherstone"
