# SPDX-License-Identifier: Apache-2.0
"""`neurodyn robots` lists them all."""

import json

import pytest

from neurodyn.cli.robots import robots
from neurodyn.core.errors import InputError
from neurodyn.robots import names


def test_every_robot_is_listed_and_written(tmp_path, capsys):
    robots(json=tmp_path / "robots.json")
    printed = capsys.readouterr().out
    listed = json.loads((tmp_path / "robots.json").read_text())
    found = {robot["name"]: robot for robot in listed["robots"]}
    assert "pretrained-policy:ant-run" in listed["policies"]
    assert "pretrained-policy:cartpole: cartpole-swingup, trained in pretrained:cartpole" in printed
    assert "pretrained:ant (compiled contacts, network silent): " in printed
    assert (
        "pretrained-policy:ant-run: ant-run, trained in pretrained:ant (compiled contacts, network silent)" in printed
    )
    assert found["ant"]["caveats"] == {"pretrained:ant": "compiled contacts, network silent"}
    assert found["cartpole"]["caveats"] == {}
    assert sorted(found) == names()
    assert all(name in printed for name in found)
    assert found["cartpole"]["controls"] == ["slider"]
    assert found["cartpole"]["teacher"] == "featherstone"


def test_one_robot_shows_its_quantities(tmp_path, capsys):
    robots("cartpole", json=tmp_path / "cartpole.json")
    printed = capsys.readouterr().out
    found = {q["name"]: q for q in json.loads((tmp_path / "cartpole.json").read_text())["quantities"]}
    assert "slider.mass = 50" in printed
    assert found["hinge.com.z"] == {"name": "hinge.com.z", "role": "parameter", "value": 0.5}
    assert found["torque.hinge"]["role"] == "computed"
    assert found["velocity.hinge.x"]["role"] == "seen"


def test_an_unknown_robot_is_bad_input():
    with pytest.raises(InputError, match="valid"):
        robots("cartpoles")
