# SPDX-License-Identifier: Apache-2.0
"""The verbs from end to end, on data of a few seconds."""

import json
from pathlib import Path

import numpy as np
import pytest

from neurodyn.cli.main import run
from neurodyn.data.store import Store
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.learn.neural.train import read_run_config
from tests import plant
from tests.cli.calls import call

SETTINGS = """
net: {kind: mlp, width: 16, depth: 1}
steps: 30
phases: [{share: 1, rate: 1.0e-2, batch: 32, forecast: 2}]
validations: 2
validation_rollouts: 8
validation_frames: 10
"""


def strict(path: Path) -> dict:
    return json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} in {path}"))


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("settings") / "tiny.yaml"
    path.write_text(SETTINGS)
    return path


@pytest.fixture(scope="module")
def log_run(plant_file: Path, settings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("log") / "run"
    call("train", "cartpole", "--data", plant_file, "--out", out, "--size", settings, "--seed", 4)
    return out


@pytest.fixture(scope="module")
def simulator_run(simulator_file: Path, settings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("teacher") / "run"
    call("train", "cartpole", "--data", simulator_file, "--out", out, "--size", settings)
    return out


def test_robots_lists_what_ships(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    call("robots", "--json", tmp_path / "robots.json")
    listed = {robot["name"]: robot for robot in strict(tmp_path / "robots.json")["robots"]}
    assert {"cartpole", "dfki-c1", "franka"} <= set(listed)
    assert listed["cartpole"]["joints"] == ["slider", "hinge"]
    assert "cartpole" in capsys.readouterr().out


def test_generate_writes_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("newton")
    for name in ("a.h5", "b.h5"):
        call("generate", "cartpole", "--transitions", 500, "--out", tmp_path / name, "--worlds", 4, "--seed", 2)
    store, again = Store.open(tmp_path / "a.h5"), Store.open(tmp_path / "b.h5")
    assert store.transitions == 500
    assert store.header.seed == 2
    assert store.header.fingerprint is not None
    assert np.array_equal(store.frames, again.frames)
    assert "500 transitions in 5 trajectories" in capsys.readouterr().out


def test_inspect_shows_and_draws(plant_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    call("inspect", plant_file, "--plot", tmp_path / "a.png", "--json", tmp_path / "a.json")
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert strict(tmp_path / "a.json")
    out = capsys.readouterr().out
    assert "slider" in out
    assert "hinge" in out


def test_train_writes_a_run_that_says_what_it_is(log_run: Path, plant_file: Path):
    config = read_run_config(log_run)
    assert (config.robot, config.data, config.settings.seed, config.settings.steps) == (
        "cartpole", str(plant_file), 4, 30,
    )  # fmt: skip
    assert NEURAL.load(log_run).spec.robot == "cartpole"
    for name in ("model/model.safetensors", "model/config.json", "model/spec.json", "metrics.jsonl", "config.yaml"):
        assert (log_run / name).is_file()


def test_train_into_a_run_that_exists_is_refused(
    log_run: Path, plant_file: Path, settings: Path, capsys: pytest.CaptureFixture[str]
):
    again = ["train", "cartpole", "--data", plant_file, "--out", log_run, "--size", settings, "--seed", 4]
    assert run([str(word) for word in again]) == 2
    assert "add --resume" in capsys.readouterr().err
    call(*again, "--resume")


def test_data_of_another_robot_are_refused(
    plant_file: Path, settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["train", "dfki-c1", "--data", plant_file, "--out", tmp_path / "run", "--size", settings]
    assert run([str(word) for word in words]) == 2
    error = capsys.readouterr().err
    assert "cartpole" in error
    assert "dfki-c1" in error
    assert not (tmp_path / "run").exists()


def test_finetune_writes_a_run_of_its_own(log_run: Path, settings: Path, tmp_path: Path):
    plant.make_store(seed=5, gravity=5.0).write(tmp_path / "other.h5")
    before = {path: path.read_bytes() for path in log_run.rglob("*") if path.is_file()}
    call("finetune", log_run, "--data", tmp_path / "other.h5", "--out", tmp_path / "run", "--size", settings)
    config = read_run_config(tmp_path / "run")
    assert config.base == str(log_run)
    assert config.settings.net == read_run_config(log_run).settings.net
    assert NEURAL.load(tmp_path / "run").spec.robot == "cartpole"
    assert {path: path.read_bytes() for path in log_run.rglob("*") if path.is_file()} == before


def test_evaluate_beside_the_log_that_it_was_trained_on(log_run: Path, tmp_path: Path):
    call("evaluate", log_run, "--horizon", 12, "--json", tmp_path / "a.json", "--report", tmp_path / "a.html")
    found = strict(tmp_path / "a.json")
    assert (found["robot"], found["horizon"], found["split"], found["teacher"]) == ("cartpole", 12, "test", None)
    assert found["joint_rad"] > 0
    assert (tmp_path / "a.html").stat().st_size > 1000


@pytest.mark.parametrize(("flag", "episodes"), [("all", 60), ("validation", 6)])
def test_evaluate_takes_a_log_and_a_split(flag: str, episodes: int, log_run: Path, plant_file: Path, tmp_path: Path):
    call(
        "evaluate", log_run, "--data", plant_file, "--split", flag, "--horizon", 5, "--rollouts", 80,
        "--json", tmp_path / "a.json", "--report", tmp_path / "a.html",
    )  # fmt: skip
    assert strict(tmp_path / "a.json")["episodes"] == episodes


def test_evaluate_beside_the_simulator(simulator_run: Path, tmp_path: Path):
    call(
        "evaluate", simulator_run, "--horizon", 20, "--rollouts", 4, "--seed", 7,
        "--json", tmp_path / "a.json", "--report", tmp_path / "a.html",
    )  # fmt: skip
    found = strict(tmp_path / "a.json")
    assert (found["horizon"], found["rollouts"], found["seed"], found["finite_fraction"]) == (20, 4, 7, 1.0)
    assert list(found["by_horizon"]) == ["10", "20"]
    assert found["teacher"]["solver"] == "featherstone"


def test_import_makes_a_store_of_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    files = sorted((plant.repository() / "../shared/data").glob("dfki_double_pendulum/*.npz"))
    if not files:
        pytest.skip("the recordings of the double pendulum are not beside the repository")
    call("import", files[0], "--reader", "dfki-c1", "--out", tmp_path / "log.h5")
    store = Store.open(tmp_path / "log.h5")
    assert store.header.robot == "dfki-c1"
    assert store.header.source == "log"
    assert store.transitions > 1000
