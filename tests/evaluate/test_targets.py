# SPDX-License-Identifier: Apache-2.0
"""Logs of position targets play through models of every kind, with the log's drives in front or inside."""

import dataclasses
from pathlib import Path

import msgspec
import pytest
import torch

from neurodyn.core.description.drive import Drive
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.store import Store
from neurodyn.data.windows import all_windows
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.artifact import robot_of
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.behind_drives import DynamicsBehindDrives, put_behind_drives
from neurodyn.dynamics.hybrid.declared import declared_hybrid, write_declared_hybrid
from neurodyn.evaluate.run import evaluate
from neurodyn.learn.training import finetune, train
from neurodyn.robots import load
from neurodyn.robots.data import as_logged
from tests import stand_in


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "targets.h5"
    stand_in.log().write(path)
    return path


@pytest.fixture(scope="module")
def torques(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "torques.h5"
    stand_in.log(targets=False).write(path)
    return path


SMALL = """
net: {kind: mlp, width: 32, depth: 2}
steps: 100
validations: 4
validation_rollouts: 32
validation_frames: 20
phases:
  - {share: 0.4, rate: 1.0e-2, batch: 128, loss: absolute}
  - {share: 0.6, rate: 3.0e-3, batch: 128, forecast: 4, loss: absolute}
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings of a training of seconds."""
    path = tmp_path_factory.mktemp("settings") / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def trained(targets: Path, small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "targets"
    train("cartpole", targets, out, size=small, base="contact", seed=0)
    return out


def test_simulator_hybrid_and_model_in_front_agree_on_a_log_of_targets():
    """The drives act in every substep, in a mechanism and in a simulator; in front of a model, once a millisecond."""
    store = stand_in.log(8, 30)
    robot = as_logged(load("cartpole"), store.header)
    (windows,) = all_windows(store, 20, stride=7)
    start = State(windows.q[:, 0], windows.qd[:, 0])
    inside = put_behind_drives(declared_hybrid("cartpole"), robot.drives)
    paths = [
        dynamics.rollout(start, windows.control).q[:, -1].float()
        for dynamics in (
            inside, put_behind_drives(AnalyticDynamics(load("cartpole")), robot.drives), AnalyticDynamics(robot),
            DynamicsBehindDrives(declared_hybrid("cartpole"), robot.drives),
        )
    ]  # fmt: skip
    moved = (paths[0] - start.q).abs().mean()
    torch.testing.assert_close(paths[1], paths[2], rtol=0, atol=0)
    for other in paths[1:]:
        assert (other - paths[0]).abs().mean() < 0.02 * moved
    assert inside.spec.control_kind == "target"


def test_a_declared_hybrid_is_measured_along_a_log_of_targets(targets: Path, tmp_path: Path):
    write_declared_hybrid(tmp_path / "declared", "cartpole")
    found = evaluate(tmp_path / "declared", data=str(targets), horizon=20).plain()
    assert found["split"] == "test"
    better = found["at_horizon"]["all"]["20"]["better_than_baselines"]["q_mean"]
    assert better > 3.0
    assert "declared" not in found  # it is that


def test_a_network_learns_from_targets_and_beats_the_declared_simulator(trained: Path):
    assert load(robot_of(trained)).drives["slider"].kp == 800.0
    found = evaluate(trained, horizon=10).plain()
    assert found["data"].endswith("targets.h5")
    mine, declared = found["by_horizon"]["10"], found["declared"]["10"]
    assert mine["base_position_m"] < declared["base_position_m"]


def test_a_network_of_torques_is_adapted_to_a_log_of_targets(torques: Path, targets: Path, small: Path, tmp_path: Path):
    train("cartpole", torques, tmp_path / "torques", size=small, steps=30, seed=0)
    before = evaluate(tmp_path / "torques", data=str(targets), horizon=10).plain()
    finetune(tmp_path / "torques", targets, tmp_path / "both", size=small, seed=0)
    after = evaluate(tmp_path / "both", horizon=10).plain()
    assert after["data"].endswith("targets.h5")
    assert after["by_horizon"]["10"]["joint_rad"] < before["by_horizon"]["10"]["joint_rad"]


def test_targets_are_refused_if_their_gains_are_unknown():
    header = msgspec.structs.replace(stand_in.log(1, 5).header, drives={})
    with pytest.raises(InputError, match=r"'cartpole' hold position targets, and nothing says which gains follow"):
        as_logged(load("cartpole"), header)


def test_logs_of_different_drives_are_not_mixed(targets: Path, tmp_path: Path):
    store = Store.open(targets)
    other = msgspec.structs.replace(store.header, drives={"*": Drive(kind="pd", kp=1.0, kd=1.0)})
    changed = dataclasses.replace(store, header=other)
    with pytest.raises(InputError, match="the logs have different drives; valid: one, or a model for each"):
        train("cartpole", [store, changed], tmp_path / "mixed", steps=1)
    assert not (tmp_path / "mixed").exists()


def test_the_split_of_the_log_is_held_out(targets: Path):
    store = Store.open(targets)
    assert len(store.episodes(Split.TEST)) == 2


def test_a_model_of_several_logs_is_compared_with_all_of_them(targets: Path, small: Path, tmp_path: Path):
    other = tmp_path / "other.h5"
    stand_in.log(8, 40, seed=1).write(other)
    train("cartpole", [targets, other], tmp_path / "run", size=small, steps=10, seed=0)
    found = evaluate(tmp_path / "run", horizon=10).plain()
    assert found["data"] == f"{targets}, {other}"
    assert found["episodes"] == 3
    simulated = evaluate(tmp_path / "run", data="simulator", horizon=10, rollouts=16).plain()
    assert simulated["rollouts"] == 16
    assert "episodes" not in simulated
