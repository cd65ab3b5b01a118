# SPDX-License-Identifier: Apache-2.0
"""From an asset to a trained model: robots of other people, at tiny sizes."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import neurodyn
from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.robots.asset import package_folder
from neurodyn.sim.contact_points import contact_point_layout
from neurodyn.sim.declare.contact import BUDGET
from neurodyn.sim.declare.declare import declare

GYMNASIUM = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
ASSETS = {
    "a1": "a1_description/urdf/a1.urdf",
    "ur5": "ur_description/urdf/ur5_robot.urdf",
    "hopper": GYMNASIUM / "hopper.xml",
}


@pytest.fixture(scope="module", params=list(ASSETS))
def declared(request, tmp_path_factory):
    installed = package_folder("example-robot-data")
    assert installed is not None
    return declare(installed / ASSETS[request.param], tmp_path_factory.mktemp(request.param) / request.param)


@pytest.mark.slow
def test_an_asset_leads_to_a_model_in_three_calls(declared, tmp_path):
    robot = declared.robot
    data, run = tmp_path / "data.h5", tmp_path / "run"
    summary = neurodyn.sim.generate(robot, transitions=1000, out=data, worlds=10)
    assert summary.transitions > 900  # hardly a trajectory ends early
    end = neurodyn.learn.train(declared.path.parent, data, run, steps=6, seed=0)
    assert end.skipped < end.step
    with Store.open(data) as store:
        assert store.header.spec == robot.spec
    model = neurodyn.load(run)
    state = neurodyn.State(q=torch.tensor([_at(robot)]), qd=torch.zeros(1, robot.spec.nv))
    path = model.rollout(state, torch.zeros(1, 3, robot.spec.nu))
    assert path.q.isfinite().all()


def _at(robot) -> list[float]:
    """Return a plausible position of all coordinates."""
    q = []
    for joint in robot.joints:
        q += [robot.nominal.get(joint.name, 0.0)] if joint.scalar else [0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0]
    return q


def test_declarations_are_complete_and_short(declared):
    robot, text = declared.robot, declared.path.read_text()
    assert declared.trial.passed
    assert len(text.splitlines()) < 70
    assert all(len(line) < 400 for line in text.splitlines())
    assert set(robot.range.qd) == set(robot.spec.qd_names)
    assert robot.actuated
    for name, effort in robot.actuated.items():
        assert effort > 0, name
    decided = {decision.what for decision in declared.decisions}
    assert decided >= {"fixed_base", "joints", "armature", "simulator", "range"}
    if robot.contact_points is not None:
        points = contact_point_layout(neurodyn.sim.build(robot), robot).contact_points
        assert 0 < len(points) <= BUDGET


def test_an_existing_folder_is_left_alone(declared):
    with pytest.raises(InputError, match="exists already; valid: another --out, or --force"):
        declare(declared.path.parent / declared.robot.asset, declared.path.parent)


def test_a_quadruped_stands(declared):
    robot = declared.robot
    if robot.fixed_base:
        assert robot.gains is None
        return
    why = next(decision.why for decision in declared.decisions if decision.what == "gains")
    assert why.startswith("hold the nominal pose for 2 s")
    assert robot.reset.height is not None
    assert 0.2 < robot.reset.height[0] < 0.5
    calves = [value for name, value in robot.nominal.items() if name.endswith("calf_joint")]
    np.testing.assert_allclose(calves, calves[0])
    assert calves[0] < -0.9
