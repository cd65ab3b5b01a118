# SPDX-License-Identifier: Apache-2.0
"""World models from end to end on the command line, and what is refused in one line."""

import json
from pathlib import Path

import pytest

from neurodyn.cli.main import run
from tests import plant
from tests.cli.calls import call

SETTINGS = """
net: {kind: gru, members: 2, width: 8, depth: 1, head: 8}
steps: 12
context: 4
phases: [{share: 1, rate: 1.0e-2, batch: 8, context: 4, forecast: 3, teach: 1.0}]
validations: 2
validation_rollouts: 8
validation_frames: 10
"""


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert run([str(argument) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("settings") / "tiny.yaml"
    path.write_text(SETTINGS)
    return path


@pytest.fixture(scope="module")
def trained(plant_file: Path, settings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("world") / "run"
    call("train", "cartpole", "--kind", "world-model", "--data", plant_file, "--out", out, "--size", settings)
    return out


def test_a_world_model_is_trained_evaluated_and_reported(trained: Path, tmp_path: Path):
    call("evaluate", trained, "--horizon", 12, "--beside", trained, "--json", tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["kind"] == "world-model"
    assert found["horizon"] == 12
    assert str(trained) in found["at_horizon"]["12"]
    page = (trained / f"report-horizon-12-beside-{trained.name}.html").read_text()
    for words in ("Forecasts with bands", "Calibration", "Errors by horizon", "Training"):
        assert words in page
    assert "<svg" in page
    assert "nan" not in page.lower().replace("nano", "")


def test_refusals_are_one_line(
    trained: Path, plant_file: Path, settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    train = ("train", "cartpole", "--kind", "world-model", "--data", plant_file, "--size", settings)
    assert "already holds a run" in refused(capsys, *train, "--out", trained)
    assert "--net is for" in refused(capsys, *train, "--out", tmp_path / "a", "--net", "gru")
    assert "unknown size" in refused(capsys, *train[:-1], "huge", "--out", tmp_path / "a")
    assert "window of 500 frames" in refused(capsys, "evaluate", trained, "--horizon", 496)
    assert "--ground" in refused(capsys, "evaluate", trained, "--ground", "flat")
    assert "data do not fit robot" in refused(
        capsys, "train", "dfki-c1", "--kind", "world-model", "--data", plant_file, "--out", tmp_path / "a"
    )
    assert not (tmp_path / "a").exists()


def test_data_of_another_rate_are_refused(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    import dataclasses

    import msgspec

    store = plant.make_store(episodes=20)
    spec = msgspec.structs.replace(store.header.spec, dt=0.05)
    slow = dataclasses.replace(store, header=msgspec.structs.replace(store.header, spec=spec))
    slow.write(tmp_path / "slow.h5")
    assert "dt is 0.05 s instead of 0.0166667 s" in refused(
        capsys, "evaluate", trained, "--data", tmp_path / "slow.h5", "--horizon", 10
    )


def test_a_world_model_is_no_simulator(trained: Path, capsys):
    assert "world model" in refused(capsys, "view", trained)
