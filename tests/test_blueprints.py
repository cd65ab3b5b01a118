# SPDX-License-Identifier: Apache-2.0
"""The blueprints of examples and docs read, and fit the robots that they are for."""

import re
from pathlib import Path

import pytest
import yaml

from neurodyn import robots
from neurodyn.core.blueprint import Blueprint
from neurodyn.core.config import read_config

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "examples/blueprints").glob("*.yaml"))
ROBOTS = {"arm": "examples/own_robot"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_blueprint_fits_its_robot(path: Path):
    pytest.importorskip("newton")
    from neurodyn.dynamics.hybrid.declared import declared_mechanism
    from neurodyn.dynamics.hybrid.model import HybridDynamics
    from neurodyn.multibody.engine import EngineConfig

    robot = robots.load(str(ROOT / ROBOTS[path.stem]) if path.stem in ROBOTS else path.stem)
    config = EngineConfig(substeps=1, blueprint=read_config(path, Blueprint))
    model = HybridDynamics(robot.spec, declared_mechanism(robot, None)[0], config)
    assert model.weights.numel() == config.blueprint.weights > 0


def test_the_blueprint_of_the_page_is_that_of_the_example():
    page = (ROOT / "docs/blueprint.md").read_text()
    (text,) = re.findall(r"^```yaml blueprint\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert yaml.safe_load(text) == yaml.safe_load((ROOT / "examples/blueprints/arm.yaml").read_text())
