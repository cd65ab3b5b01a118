# SPDX-License-Identifier: Apache-2.0
"""Sweeps: refused before any work where something is wrong, run folders like any other, resumed, survivors of kills."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import yaml

import neurodyn
from neurodyn.cli.main import run
from neurodyn.cluster import Cluster, sweep
from neurodyn.cluster.sweeps import sweep as sweep_module
from neurodyn.cluster.sweeps.spec import Grid, Optuna, RandomSearch, Range, corners
from neurodyn.cluster.sweeps.trials import TrialQueue, run_trial
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
        ({"train": {"robt": "cartpole"}}, r"unknown argument of train 'robt' \(did you mean 'robot'\?\)"),
        ({"space": {}}, r"space is empty; valid: at least one NAME: \[VALUE"),
        ({"space": {"net.width": []}}, "space: net.width has no values"),
        ({"space": {"net.widht": [8]}}, r"unknown setting 'net.widht' \(did you mean 'net.width'\?\)"),
        ({"settings": {"validation": 3}}, r"unknown setting 'validation' \(did you mean 'validations'\?\)"),
        ({"space": {"net.width": [8, -1]}}, r"with net.width -1: net: width is -1; valid: a whole number"),
        ({"space": {"net.width": [8, "wide"]}}, r"with net.width wide.*net.width is 'wide'; valid: a whole number"),
        ({"space": {"seed": [0, 1]}}, r"seeds are not of the space; valid: seeds: \[0, 1, 2\]"),
        ({"space": {"net.width": {"lower": 8, "upper": 64}}}, "search grid takes values, and net.width is a range"),
        ({"search": "gird"}, r"unknown search 'gird' \(did you mean 'grid'\?\)"),
        ({"search": "random"}, "search random needs a number of samples"),
        ({"seeds": [0, 0]}, r"seeds is \[0, 0\]; valid: one or several different numbers"),
        ({"train": {"robot": "cartpole", "data": "none.h5"}}, "none.h5: no such file"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_before_any_work(changes: dict, said: str, place: Path, capsys):
    spec = write(place, **changes)
    assert run(["sweep", str(spec), "--out", "out"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("neurodyn: ")
    with pytest.raises(InputError, match=said):
        sweep(spec, "out")
    assert not (place / "out").exists()


def test_a_quantity_that_is_not_there_is_refused_before_any_work(place: Path):
    pytest.importorskip("newton")
    asked = {"robot": "cartpole", "data": "plant.h5", "parameters": ["pole.mass"]}
    spec = write(place, train=None, space={"horizon": [0.2, 0.4]}, identify=asked)
    with pytest.raises(InputError, match=r"parameter .pole\.mass. matches no quantity"):
        sweep(spec, "out")
    assert not (place / "out").exists()


def test_settings_come_from_a_grid_from_chance_or_from_what_was_good_before():
    space = {"a": (1, 2, 3), "b": Range(lower=1e-4, upper=1e-2, log=True), "c": Range(lower=2, upper=5, whole=True)}
    grid = Grid({"a": (1, 2), "b": ("x", "y", "z")}, None, 0)
    assert grid.count == 6
    assert grid.choose(4) == {"a": 2, "b": "y"}
    one, again, other = RandomSearch(space, 50, 7), RandomSearch(space, 60, 7), RandomSearch(space, 50, 8)
    drawn = [one.choose(k) for k in range(50)]
    assert drawn == [again.choose(k) for k in range(50)] != [other.choose(k) for k in range(50)]
    assert {values["c"] for values in drawn} == {2, 3, 4, 5}
    assert all(1e-4 <= values["b"] <= 1e-2 for values in drawn)
    assert sum(values["b"] < 1e-3 for values in drawn) > 10
    seen = corners(space)
    assert {values["a"] for values in seen} == {1, 2, 3}
    assert {values["c"] for values in seen} == {2, 5}


def test_optuna_learns_where_the_good_settings_are_and_goes_on_where_it_was():
    pytest.importorskip("optuna")
    space = {"x": Range(lower=-4, upper=4), "kind": ("bad", "good")}

    def cost(values: dict) -> float:
        return (values["x"] - 1) ** 2 + (values["kind"] == "bad")

    first, chosen = Optuna(space, 60, 3), []
    for k in range(60):
        chosen.append(first.choose(k))
        first.record_score(k, cost(chosen[k]))
    assert min(map(cost, chosen[30:])) < 0.05
    assert sum(values["kind"] == "good" for values in chosen[30:]) > 20
    resumed = Optuna(space, 60, 3)
    for k, values in enumerate(chosen[:50]):
        resumed.restore(k, values)
        resumed.record_score(k, cost(values) if k else None)
    later = []
    for k in range(50, 60):
        later.append(resumed.choose(k))
        resumed.record_score(k, cost(later[-1]))
    assert sum(map(cost, later)) < 0.5 * sum(map(cost, chosen[:10]))


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
    best = Path(found["best"]["run"])
    scores = {}
    for name, trial in found["trials"].items():
        scores.setdefault(trial["values"]["net.width"], []).append(trial["figure"]["value"])
        held_out = [line["rollout_score"] for line in read_metrics(Path(name)) if "rollout_score" in line]
        assert trial["figure"]["value"] == min(held_out)
    means = {width: sum(values) / 2 for width, values in scores.items()}
    assert found["best"]["values"]["net.width"] == min(means, key=lambda width: means[width])
    assert found["best"]["mean"] == pytest.approx(min(means.values()))
    page = (place / "out/comparison.html").read_text()
    assert "net.width" in page
    weights = {trial["values"]["net.width"]: trial["weights"] for trial in found["trials"].values()}
    for width, run_folder in ((trial["values"]["net.width"], name) for name, trial in found["trials"].items()):
        assert weights[width] == sum(p.numel() for p in neurodyn.load(run_folder).parameters())
    assert weights[16] > weights[8] > 0
    assert f"{weights[16]:,}" in page
    assert run(["reproduce", str(best), "--out", "again"]) == 0
    assert "reproduced: the same bits" in capfd.readouterr().out
    assert run(["sweep", str(spec), "--out", "out"]) == 2
    assert "already holds a sweep; add --resume" in capfd.readouterr().err
    assert run(["sweep", str(write(place, seeds=[5])), "--out", "out", "--resume"]) == 2
    assert "and space, seeds differ" in capfd.readouterr().err


def test_a_sweep_goes_on_where_it_was_and_a_killed_worker_loses_nothing(cluster: Cluster, place: Path):
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
    (Path("out/trials/0001-seed-0") / "trial.json").unlink()
    before = {path: path.stat().st_mtime_ns for path in Path("out/trials").glob("*/model/model.safetensors")}
    told: list[int] = []
    resumed = sweep(spec, "out", resume=True, told=lambda done, total, outcome: told.append(outcome.number))
    assert told == [1]
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
                     {}, {"rate": [1e-3, 1e-4]}),
}  # fmt: skip


def run_here(queue: TrialQueue, address: str, **options) -> None:
    """Run trials in this process: what Ray adds is tested above."""
    while (trial := queue.pop()) is not None:
        queue.end(trial, run_trial(trial, queue.folder_of(trial)))


@pytest.mark.parametrize("what", SWEPT)
def test_every_training_is_swept_and_goes_on(
    what: str, place: Path, trained_run: Path, capfd, monkeypatch: pytest.MonkeyPatch
):
    verb, arguments, settings, space = SWEPT[what]
    if verb not in {"train", "finetune"}:
        pytest.importorskip("newton")
    if verb == "policy train":
        pytest.importorskip("rsl_rl")
    monkeypatch.setattr(sweep_module, "run_trials", run_here)
    for name, plain in FEW_STEPS.items():
        (place / name).write_text(yaml.safe_dump(plain))
    arguments = {name: str(trained_run) if value == "RUN" else value for name, value in arguments.items()}
    spec = write(place, **{"train": None, verb: arguments, "settings": settings, "space": space})
    assert run(["sweep", str(spec), "--out", "out"]) == 0, capfd.readouterr().err
    assert next(iter(space)) in capfd.readouterr().out
    trials = json.loads((place / "out/sweep.json").read_text())["trials"]
    assert [trial["failed"] for trial in trials.values()] == ["", ""]
    assert len({trial["figure"]["value"] for trial in trials.values()}) == 2
    assert next(iter(space)) in (place / "out/comparison.html").read_text()
    (place / "out/trials/0001-seed-0/trial.json").unlink()
    assert run(["sweep", str(spec), "--out", "out", "--resume"]) == 0, capfd.readouterr().err
    again = json.loads((place / "out/sweep.json").read_text())["trials"]
    assert [trial["figure"] for trial in again.values()] == [trial["figure"] for trial in trials.values()]
