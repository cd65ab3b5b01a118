# SPDX-License-Identifier: Apache-2.0
"""The blueprints of examples and docs read, and fit the robots that they are for."""

import re
from pathlib import Path

import pytest
import torch
import yaml

from neurodyn import robots
from neurodyn.core.config import read_config
from neurodyn.core.description.blueprint import Blueprint

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


def test_links_of_the_swimmer_share_one_law_of_drag():
    """One network's weights act on five links, and each link that moves feels them."""
    pytest.importorskip("newton")
    from neurodyn.dynamics import HybridDynamics, State, declared_hybrid
    from neurodyn.multibody.engine import EngineConfig

    rigid = declared_hybrid("swimmer")
    blueprint = read_config(Path(robots.load("swimmer").folder) / "blueprint.yaml", Blueprint)
    model = HybridDynamics(rigid.spec, rigid.mechanism, EngineConfig(substeps=1, blueprint=blueprint))
    assert model.weights.numel() == blueprint.augmentations[0].weights
    state = State(torch.zeros(2, 7, dtype=torch.float64), torch.eye(7, dtype=torch.float64)[[0, 6]])
    after = {}
    for name, weights in (("none", torch.zeros_like(model.weights)), ("some", torch.full_like(model.weights, 0.1))):
        after[name] = model.simulate(state, torch.zeros(2, 1, 4).double(), model.physical(), weights).qd[:, 1]
    assert ((after["some"] - after["none"]).abs() > 1e-6).any(1).all()


def test_the_blueprint_of_the_page_is_that_of_the_example():
    page = (ROOT / "docs/blueprint.md").read_text()
    (text,) = re.findall(r"^```yaml blueprint\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert yaml.safe_load(text) == yaml.safe_load((ROOT / "examples/blueprints/arm.yaml").read_text())
