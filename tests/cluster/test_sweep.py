# SPDX-License-Identifier: Apache-2.0
"""Sweeps: refused before any work where something is wrong, run folders like any other, resumed, survivors of kills."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import msgspec
import pytest
import yaml

from neurodyn.cli.main import run
from neurodyn.cluster import Cluster, sweep
from neurodyn.cluster.sweeps import known_points, read_sweep
from neurodyn.cluster.trainings import SWEPT_TRAININGS
from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError
from neurodyn.learn.metrics import read_metrics

SETTINGS = """
net: {kind: mlp, width: 16, depth: 1}
phases: [{share: 1.0, rate: 1.0e-2, batch: 32}]
steps: 20
validations: 2
validation_rollouts: 8
validation_frames: 10
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant_file: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    (tmp_path / "plant.h5").symlink_to(plant_file)
    return tmp_path


def write(place: Path, name: str = "sweep.yaml", **changes) -> Path:
    plain = {
        "train": {"robot": "cartpole", "data": "plant.h5", "size": "settings.yaml"},
        "space": {"net.width": [8, 16], "phases.0.rate": [0.01, 0.001]},
        **changes,
    }
    path = place / name
    path.write_text(yaml.safe_dump({key: value for key, value in plain.items() if value is not None}))
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sede": 1}, r"unknown key 'sede' \(did you mean 'seed'\?\)"),
        ({"train": None}, "has no training; valid: one of"),
        ({"train": {"robt": "cartpole"}}, r"train: unknown key 'robt' \(did you mean 'robot'\?\)"),
        ({"space": {}}, "has 1 settings in 0 dimensions; valid: 1 to 10,000 by lists in space"),
        ({"space": {"net.width": []}}, "space: net.width: .*must be more than zero|space: net.width: .*one or more"),
        ({"space": {"net.widht": [8]}}, r"net: unknown key 'widht' \(did you mean 'width'\?\)"),
        ({"settings": {"validation": 3}}, r"unknown key 'validation' \(did you mean 'validations'\?\)"),
        ({"space": {"net.width": [8, -1]}}, r"with net.width -1: net: width is -1; valid: a whole number"),
        ({"space": {"net.width": [8, "wide"]}}, r"with net.width wide.*net.width is 'wide'; valid: a whole number"),
        ({"space": {"seed": [0, 1]}}, r"seeds is \[0\]; valid: different numbers, which are not in space"),
        ({"space": {"net.width": {"lower": 8, "upper": 64}}}, "search grid takes lists of values, and no net.width"),
        ({"search": "gird"}, r"search is 'gird' \(did you mean 'grid'\?\)"),
        ({"search": "random"}, "has 0 settings in 2 dimensions; valid: 1 to 10,000 .* or by samples"),
        ({"seeds": [0, 0]}, r"seeds is \[0, 0\]; valid: different numbers"),
        ({"train": {"robot": "cartpole", "data": "none.h5"}}, "none.h5: no such file"),
    ],
)
def test_what_is_wrong_is_one_line_before_any_work(changes: dict, said: str, place: Path, capsys):
    spec = write(place, **changes)
    assert run(["sweep", str(spec), "--out", "out"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("neurodyn: ")
    with pytest.raises(InputError, match=said):
        sweep(spec, "out")
    assert not (place / "out").exists()


def test_without_optuna_a_sweep_names_the_extra(place: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("neurodyn.core.extras.find_spec", lambda name: None if name == "optuna" else name)
    with pytest.raises(InputError, match=r"optuna.*pip install 'neurodyn\[cluster\]'"):
        sweep(write(place), "out")


def test_arguments_of_a_training_are_those_of_its_verb():
    training = SWEPT_TRAININGS["train"]
    given = from_dict({"robot": "cartpole", "data": "a.h5", "steps": "7"}, training.arguments())
    assert training.request_of(given).steps == 7
    settings = object()  # which already contain the budget
    request = training.request_of(given, Path("out"), resume=True, settings=settings)
    assert (request.steps, request.size, request.out, request.resume) == (None, settings, Path("out"), True)
    assert SWEPT_TRAININGS["policy train"].greater_is_better


def test_a_quantity_that_is_not_there_is_refused_before_any_work(place: Path):
    pytest.importorskip("newton")
    asked = {"robot": "cartpole", "data": "plant.h5", "parameters": ["pole.mass"]}
    spec = write(place, train=None, space={"horizon": [0.2, 0.4]}, identify=asked)
    with pytest.raises(InputError, match=r"parameter .pole\.mass. matches no quantity"):
        sweep(spec, "out")
    assert not (place / "out").exists()


def test_settings_come_from_a_grid_from_chance_or_from_what_was_good_before(place: Path):
    pytest.importorskip("optuna")
    space = {"net.width": {"lower": 8, "upper": 64, "log": True, "whole": True}, "phases.0.rate": [0.01, 0.001]}
    drawn = read_sweep(write(place, space=space, search="random", samples=20, seed=7))
    points, again = known_points(drawn, ""), known_points(msgspec.structs.replace(drawn, samples=30), "")
    assert points == again[:20] != known_points(msgspec.structs.replace(drawn, seed=8), "")
    assert all(8 <= point["net.width"] <= 64 and point["phases.0.rate"] in (0, 1) for point in points)
    grid = read_sweep(write(place))
    assert known_points(grid, "")[2] == {"net.width": 1, "phases.0.rate": 0}
    assert len(known_points(grid, "")) == 4
    assert known_points(msgspec.structs.replace(drawn, search="optuna"), "") == []


def test_optuna_chooses_settings_and_an_interrupted_one_comes_again(cluster: Cluster, place: Path, monkeypatch):
    space = {"phases.0.rate": {"lower": 1e-4, "upper": 1e-2, "log": True}, "net.width": [8, 12]}
    spec = write(place, space=space, search="optuna", samples=3, settings={"steps": 4})
    with monkeypatch.context() as patch:
        patch.setattr("neurodyn.cluster.sweeps.mean_of", lambda figures: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sweep(spec, "out", workers=1)
    first = next(Path("out/trials").iterdir()).name
    found = sweep(spec, "out", workers=1, resume=True)
    assert first in {Path(run).name for run in found.trials}
    assert len(found.trials) == 3
    assert {trial.values["net.width"] for trial in found.trials.values()} <= {8, 12}
    assert len({trial.values["phases.0.rate"] for trial in found.trials.values()}) == 3
    assert len(list(Path("out/trials").glob("*-seed-0"))) == 3


def test_trials_are_run_folders_and_the_best_is_that_of_the_validation(cluster: Cluster, place: Path, capfd):
    spec = write(place, seeds=[0, 1], space={"net.width": [8, 16]})
    assert run(["sweep", str(spec), "--out", "out", "--json", "found.json"]) == 0
    said = capfd.readouterr()
    assert all(line.startswith("sweep sweep.yaml: ") for line in said.err.splitlines())  # how far it is
    assert "ray" not in said.out.lower().replace("array", "")
    assert said.out.splitlines()[-1].startswith("best by held-out roll-out error")
    found = json.loads((place / "found.json").read_text())
    assert found == json.loads((place / "out/sweep.json").read_text())
    assert len(found["trials"]) == 4
    scores = {}
    for name, trial in found["trials"].items():
        scores.setdefault(trial["values"]["net.width"], []).append(trial["figure"]["value"])
        held_out = [line["rollout_score"] for line in read_metrics(Path(name)) if "rollout_score" in line]
        assert trial["figure"]["value"] == min(held_out)
    means = {width: sum(values) / 2 for width, values in scores.items()}
    assert found["best"]["values"]["net.width"] == min(means, key=lambda width: means[width])
    assert found["best"]["mean"] == pytest.approx(min(means.values()))
    assert run(["sweep", str(spec), "--out", "out"]) == 2
    assert "already holds a sweep; add --resume" in capfd.readouterr().err
    assert run(["sweep", str(write(place, seeds=[5])), "--out", "out", "--resume"]) == 2
    assert "that was begun, and space, seeds differ" in capfd.readouterr().err


def test_a_sweep_continues_where_it_was_and_a_killed_worker_loses_nothing(cluster: Cluster, place: Path):
    spec = write(place, seeds=[0], space={"net.width": [8, 16]}, settings={"steps": 100, "validations": 10})
    whole = sweep(spec, "whole")
    killed: list[int] = []

    def kill() -> None:
        """Kill the process of the first trial that has begun."""
        for _ in range(3000):
            for lock in Path("out/trials").glob(".*.lock") if Path("out/trials").is_dir() else ():
                run_folder = lock.with_name(lock.name[1:].removesuffix(".lock"))
                if (run_folder / "metrics.jsonl").exists():
                    owner = json.loads(lock.read_text() or "{}")
                    if owner.get("pid") not in (None, os.getpid()):
                        os.kill(owner["pid"], signal.SIGKILL)
                        killed.append(owner["pid"])
                        return
            time.sleep(0.02)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    found = sweep(spec, "out")
    killer.join()
    assert killed
    assert {t.figure.value for t in found.trials.values()} == {t.figure.value for t in whole.trials.values()}
    before = {path: path.stat().st_mtime_ns for path in Path("out/trials").glob("*/model/model.safetensors")}
    resumed = sweep(spec, "out", resume=True)
    assert {t.figure.value for t in resumed.trials.values()} == {t.figure.value for t in whole.trials.values()}
    assert {path: path.stat().st_mtime_ns for path in before} == before


FEW_STEPS = {
    "world.yaml": {
        "net": {"members": 2, "width": 8, "depth": 1, "head": 8}, "context": 4, "steps": 4, "validations": 2,
        "phases": [{"share": 1.0, "rate": 1e-2, "batch": 16, "context": 4, "forecast": 2}],
        "validation_rollouts": 4, "validation_frames": 5,
    },
    "search.yaml": {
        "hidden": [2], "horizon": 4, "windows": 16, "held_out": 16, "kappas": [0.1], "steps": 2, "refit": 2,
        "polish": 0,
    },
}  # fmt: skip
SWEPT = {
    "world model": ("train", {"robot": "cartpole", "data": "plant.h5", "kind": "world-model", "size": "world.yaml"},
                    {}, {"net.width": [8, 12]}),
    "finetune": ("finetune", {"run": "RUN", "data": "plant.h5", "steps": 4},
                 {"validations": 2, "validation_rollouts": 4, "validation_frames": 5}, {"phases.0.rate": [1e-5, 1e-6]}),
    "identify": ("identify", {"robot": "cartpole", "data": "plant.h5", "parameters": ["slider.damping=20:0:100"]},
                 {"windows": 8, "starts": 1, "profile": 0}, {"horizon": [0.1, 0.2]}),
    "discover": ("discover", {"robot": "cartpole", "data": "plant.h5", "settings": "search.yaml"},
                 {}, {"hidden": [[2], [3]]}),
    "policy train": ("policy train", {"task": "cartpole-swingup", "dynamics": "hybrid", "iterations": 2, "worlds": 4,
                                      "reference": "none"},
                     {"evaluations": 1, "evaluation_worlds": 4}, {"rate": [1e-3, 1e-4]}),
}  # fmt: skip


@pytest.mark.parametrize("what", SWEPT)
def test_every_training_is_swept_and_continues(what: str, cluster: Cluster, place: Path, trained_run: Path, capfd):
    verb, arguments, settings, space = SWEPT[what]
    if verb not in {"train", "finetune"}:
        pytest.importorskip("newton")
    if verb == "policy train":
        pytest.importorskip("rsl_rl")
    for name, plain in FEW_STEPS.items():
        (place / name).write_text(yaml.safe_dump(plain))
    arguments = {name: str(trained_run) if value == "RUN" else value for name, value in arguments.items()}
    spec = write(place, **{"train": None, verb: arguments, "settings": settings, "space": space})
    assert run(["sweep", str(spec), "--out", "out"]) == 0, capfd.readouterr().err
    assert next(iter(space)) in capfd.readouterr().out
    trials = json.loads((place / "out/sweep.json").read_text())["trials"]
    assert [trial["failed"] for trial in trials.values()] == ["", ""]
    assert len({trial["figure"]["value"] for trial in trials.values()}) == 2
    assert run(["sweep", str(spec), "--out", "out", "--resume"]) == 0, capfd.readouterr().err
    again = json.loads((place / "out/sweep.json").read_text())["trials"]
    assert [trial["figure"] for trial in again.values()] == [trial["figure"] for trial in trials.values()]
