# SPDX-License-Identifier: Apache-2.0
"""Optional packages: ranges in pyproject.toml, and refusals that name the extra."""

import json
import re
import sys
import tomllib

import pytest

from neurodyn.core.errors import InputError
from neurodyn.core.extras import has_module, import_extra, require_extra
from tests import plant

PROJECT = tomllib.loads((plant.repository() / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def refusal(call, *arguments, **options) -> str:
    with pytest.raises(InputError) as error:
        call(*arguments, **options)
    return str(error.value)


def test_a_missing_package_is_named_with_what_needs_it_and_its_extra():
    said = refusal(import_extra, "nowhere.part", "a cluster", "cluster", package="nowhere", instead="wait")
    assert said == (
        "a cluster needs nowhere, which cannot be imported (No module named 'nowhere'); install it with: "
        "pip install 'neurodyn[cluster]', or wait"
    )
    said = refusal(require_extra, ("json", "nowhere", "nor_here"), "a sweep", "cluster")
    assert "a sweep needs nowhere and nor_here, which is not installed" in said


def test_what_is_there_is_returned_and_what_is_hidden_is_missing(monkeypatch):
    assert import_extra("json", "x", "y") is json
    require_extra(["json"], "x", "y")
    monkeypatch.setitem(sys.modules, "newton", None)
    assert not has_module("newton")


def test_every_extra_that_the_package_names_exists():
    named, call = set(), re.compile(r'(?:import|require|missing)_extra\([^\n]*?, "(\w+)"(?:, \w+=[^\n()]*)?\)')
    for file in (plant.repository() / "src").rglob("*.py"):
        text = file.read_text()
        named |= {*re.findall(r"neurodyn\[(\w+)\]", text), *call.findall(text)} - {"EXTRA"}
    assert named <= set(EXTRAS)
    assert {"cluster", "gymnasium", "mujoco", "newton", "policy", "usd", "wandb"} <= named


def test_ranges_stand_in_the_project_and_pins_in_the_constraints():
    """So that pip finds versions beside what users have, such as mjlab's MuJoCo and rsl_rl."""
    asked = [*PROJECT["dependencies"], *(line for name, lines in EXTRAS.items() if name != "dev" for line in lines)]
    assert [line for line in asked if "==" in line or "~=" in line] == []
    assert "newton" not in " ".join(EXTRAS["mujoco"])
    assert EXTRAS["sim"] == ["neurodyn[mujoco,newton]"]
