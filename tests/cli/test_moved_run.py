# SPDX-License-Identifier: Apache-2.0
"""A run of a robot of one's own, moved to where neither the robot's folder nor its first place exists."""

import json
import shutil
from pathlib import Path

import pytest

from neurodyn.dynamics.artifact import load, robot_of
from neurodyn.report.recording import record_run
from tests.cli.calls import call
from tests.robots.own_robots import write_arm

pytestmark = pytest.mark.slow

pytest.importorskip("newton")


BOTH = pytest.mark.parametrize("moved", ["urdf", "mjcf"], indirect=True)
ONE = pytest.mark.parametrize("moved", ["urdf"], indirect=True)


@pytest.fixture(scope="module")
def moved(request, tmp_path_factory) -> tuple[Path, Path]:
    """A run and its data after the folder of the robot was deleted and the run moved."""
    folder = tmp_path_factory.mktemp(request.param)
    home = write_arm(folder / "made", request.param)
    data, run = folder / "arm.h5", folder / "made" / "run"
    call("generate", home, "--transitions", 400, "--worlds", 20, "--out", data)
    call("train", home, "--data", data, "--out", run, "--net", "mlp", "--steps", 5)
    call("train", home, "--data", data, "--out", folder / "made" / "world", "--kind", "world-model", "--steps", 2)
    shutil.move(run, folder / "elsewhere")
    shutil.move(folder / "made" / "world", folder / "elsewhere-world")
    shutil.rmtree(folder / "made")
    return folder / "elsewhere", data


@BOTH
def test_the_run_carries_its_robot(moved):
    run, _ = moved
    assert robot_of(run) == str(run.resolve() / "robot")
    model = load(run)
    assert model.robot is not None
    assert model.robot.name == "my-arm"
    assert "made" not in (run / "model" / "spec.json").read_text()


@ONE
def test_a_moved_run_is_evaluated_beside_its_simulator(moved, tmp_path):
    call("evaluate", moved[0], "--rollouts", 4, "--horizon", 5, "--json", tmp_path / "errors.json")
    found = json.loads((tmp_path / "errors.json").read_text())
    assert found["robot"] == "my-arm"
    assert found["finite_fraction"] == 1.0
    (page,) = moved[0].glob("report*.html")
    assert "elsewhere/robot" in page.read_text()  # the commands that repeat it


@BOTH
def test_a_moved_run_is_fine_tuned_and_the_new_run_moves_too(moved, tmp_path):
    run, data = moved
    call("finetune", run, "--data", data, "--out", tmp_path / "tuned", "--steps", 2)
    shutil.move(tmp_path / "tuned", tmp_path / "again")
    assert robot_of(tmp_path / "again") == str(tmp_path.resolve() / "again" / "robot")
    assert load(tmp_path / "again").robot is not None


@BOTH
def test_a_moved_run_is_recorded(moved):
    assert record_run(moved[0], seconds=0.1).robot.name == "my-arm"


@ONE
def test_a_moved_world_model_is_evaluated_and_exported(moved, tmp_path):
    run, data = moved
    world = run.with_name("elsewhere-world")
    call("evaluate", world, "--data", data, "--horizon", 3, "--rollouts", 4)
    pytest.importorskip("onnxruntime")
    call("export", world, "--out", tmp_path / "arm.onnx")
    assert (tmp_path / "arm.onnx").is_file()


@ONE
def test_data_are_trained_on_with_the_carried_robot(moved, tmp_path):
    run, data = moved
    call("train", run / "robot", "--data", data, "--out", tmp_path / "new", "--net", "mlp", "--steps", 2)
    assert load(tmp_path / "new").robot is not None
