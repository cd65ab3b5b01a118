# SPDX-License-Identifier: Apache-2.0
"""Models beside an evaluated one: runs, a network fitted to its log, and `mujoco.sysid`."""

from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec import structs

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.interface import State
from neurodyn.evaluate import evaluate, references
from neurodyn.evaluate.records import Logged
from neurodyn.evaluate.rivals import RivalModel
from neurodyn.report.log import beside_others
from neurodyn.report.overview import evaluation_sentences
from neurodyn.robots import Robot, load
from neurodyn.sim.mujoco.sysid import LogSegments, import_sysid, mujoco_peer
from tests import plant

ARM = """<mujoco><compiler angle="radian"/><worldbody><body>
  <joint name="shoulder" axis="0 1 0" damping=".05"/><geom type="capsule" fromto="0 0 0 0 0 -.4" size=".03" mass="1"/>
  <body pos="0 0 -.4"><joint name="elbow" axis="0 1 0" damping=".02" armature=".01"/>
    <geom type="capsule" fromto="0 0 0 .1 0 -.3" size=".03" mass=".6"/></body>
</body></worldbody></mujoco>"""
DECLARATION = """name: arm
asset: arm.xml
joints: [{name: shoulder, kind: revolute, continuous: true}, {name: elbow, kind: revolute, continuous: true}]
actuated: {elbow: 4.0}
dt: 0.01
simulator: {solver: mujoco-c, substeps: 5, integrator: implicitfast}
sampling: {q: {'*': [-1, 1]}, qd: {'*': [-1, 1]}}
"""


@pytest.fixture
def arm(tmp_path: Path) -> Robot:
    (tmp_path / "arm.xml").write_text(ARM)
    (tmp_path / "robot.yaml").write_text(DECLARATION)
    return load(str(tmp_path))


def test_a_run_and_a_network_start_where_the_model_does(trained_run: Path, plant_file: Path, monkeypatch):
    monkeypatch.setattr(references, "GRU_MINUTES", 0.02)
    found = evaluate(trained_run, data=str(plant_file), horizon=10, beside=(str(trained_run), "gru"))
    assert isinstance(found, Logged)
    assert isinstance(found.beside, dict)
    assert found.beside[str(trained_run)] == found.by_horizon  # the same model from the same starts
    assert 0.0 < found.beside["gru"]["10"].means["joint_rad"] != found.by_horizon["10"].means["joint_rad"]
    assert found.context_frames == 16  # what the network reads before a start
    (table,) = beside_others(found)
    assert table.head[1:] == [
        "Model",
        "Persistence",
        "Constant velocity",
        "Declared simulator",
        str(trained_run),
        "gru",
        "Better",
    ]
    assert [row[0].split(",")[0] for row in table.rows[-4:]] == ["Base position"] * 2 + ["Joint angle"] * 2
    assert [row[0].split()[2] for row in table.rows[-4:]] == ["up", "at"] * 2
    assert ", of gru " in evaluation_sentences(found)[-1]


def test_a_better_model_beside_it_is_a_warning(plant_store):
    from neurodyn.evaluate.doubts import judge
    from neurodyn.evaluate.logged import beside_log

    robot, poor = plant.robot(), plant.PlantDynamics(lambda q, qd: (q + 0.1, qd))
    rivals = {"the plant": RivalModel(plant.PlantDynamics(), robot, plant_store)}
    found = beside_log(poor, robot, plant_store, split=Split.TEST, horizon=20, rivals=rivals)
    assert any("the plant" in str(one) and one.grade == "warning" for one in judge(found, []))


@pytest.mark.parametrize("all_count", [True, False])
def test_along_a_log_another_model_is_better_where_any_of_its_errors_is_smaller(all_count: bool):
    from neurodyn.evaluate.doubts import Rivals

    mine = {"base position": [0.1, 0.1], "base orientation": [0.1, 0.3]}
    theirs = {"base position": [0.4, 0.4], "base orientation": [0.2, 0.2]}
    found = list(Rivals([0.1, 0.5], mine, {"the plant": theirs}, all_count).findings())
    told = "the plant is better 0.5 s ahead: base orientation 0.2 instead of 0.3 at 0.5 s"
    assert [one.what for one in found] == [told if all_count else ""]


def test_what_cannot_stand_beside_is_refused(trained_run: Path, plant_store, tmp_path: Path):
    with pytest.raises(InputError, match=r"--beside nothing: .*also valid: a run of cartpole, gru, mujoco[.]sysid"):
        evaluate(trained_run, beside=("nothing",), data=_written(plant_store, tmp_path / "log.h5"))
    training = plant_store.select(np.flatnonzero(plant_store.split == Split.TEST))
    with pytest.raises(InputError, match="--beside gru: is fitted to the training episodes"):
        references.open_rivals(("gru",), plant.robot(), plant_store, lambda: training, _no_run)


def _written(store, path: Path) -> str:
    store.write(path)
    return str(path)


def _no_run(name: str):
    raise AssertionError(name)


def test_the_peer_in_mujoco_is_the_declared_robot(arm: Robot):
    rng = np.random.default_rng(0)
    q, qd = rng.uniform(-1, 1, (2, 3, 2))
    torque = rng.normal(0, 2.0, (3, 40, 1))
    rows = np.zeros((3, 41, 2))
    peer = mujoco_peer(arm, targets=False)
    theirs, rates = peer.rollout(LogSegments(rows + q[:, None], rows + qd[:, None], torque, 0))
    path = declared_hybrid(arm).rollout(State(torch.from_numpy(q), torch.from_numpy(qd)), torch.from_numpy(torque))
    assert theirs == pytest.approx(path.q.numpy(), abs=1e-9)
    assert rates == pytest.approx(path.qd.numpy(), abs=1e-8)


def test_a_free_robot_has_no_peer():
    with pytest.raises(InputError, match="robots on a fixed base, and ant has a free joint"):
        mujoco_peer(load("ant"), targets=False)


def test_the_peer_is_fitted_where_sysid_is_installed(arm: Robot, tmp_path: Path):
    try:
        import_sysid()
    except InputError as error:
        pytest.skip(str(error))
    from neurodyn.data import Store, StoreHeader, StoreWriter

    truth = mujoco_peer(replace_damping(arm, 0.3), targets=False)
    rng = np.random.default_rng(0)
    start, torque = rng.uniform(-1, 1, (2, 6, 1, 2)), rng.normal(0, 1.0, (6, 60, 1))
    rows = np.zeros((6, 61, 2))
    q, qd = truth.rollout(LogSegments(rows + start[0], rows + start[1], torque, 0))
    with StoreWriter(tmp_path / "log.h5", StoreHeader(spec=arm.spec, source="log")) as writer:
        split = np.array([0, 0, 0, 0, 1, 2], np.int8)
        writer.append(*(x.astype(np.float32) for x in (q, qd, torque)), lengths=np.full(6, 60), split=split)
    store = Store.open(tmp_path / "log.h5")
    fitted = references.fit_mujoco(arm, store, store)
    share = fitted.values["shoulder.damping"] / fitted.values["actuator.elbow.gain"]  # a common scale is not known
    assert share == pytest.approx(0.3, rel=1e-3)


def replace_damping(robot: Robot, value: float) -> Robot:
    shoulder, elbow = robot.joints
    return structs.replace(robot, joints=(structs.replace(shoulder, damping=value), elbow))
