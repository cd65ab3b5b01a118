# SPDX-License-Identifier: Apache-2.0
"""Manifests, and trainings that are run once more: the same bits from the same input, and no other input."""

import json
import shutil
import warnings
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
import yaml

from neurodyn.cli.main import run as neurodyn
from neurodyn.core import artifacts
from neurodyn.core.errors import InputError, Notice
from neurodyn.core.provenance import file_checksum
from neurodyn.data.store import Store
from neurodyn.learn.manifest import MANIFEST, Manifest, read_manifest
from neurodyn.learn.reproduction import reproduce
from neurodyn.learn.training import finetune, train
from neurodyn.robots import Robot
from tests.plant import make_store, repository


@pytest.fixture
def data(plant_store: Store, tmp_path: Path) -> Path:
    """A file that a test may move."""
    plant_store.write(tmp_path / "plant.h5")
    return tmp_path / "plant.h5"


@pytest.fixture
def made(data: Path, tmp_path: Path) -> Path:
    """A run of four steps."""
    train("cartpole", data, tmp_path / "run", net="mlp", steps=4, seed=3)
    return tmp_path / "run"


def change(run: Path, **values: object) -> None:
    """Change the manifest of a run."""
    found = msgspec.structs.replace(read_manifest(run), **values)
    artifacts.write_checksummed(run / MANIFEST, msgspec.to_builtins(found))


def test_a_manifest_says_what_a_run_was_made_from(made: Path, data: Path):
    found = read_manifest(made)
    assert isinstance(found, Manifest)
    assert (found.training, found.seed, found.device, found.threads) == ("train", 3, "cpu", 1)
    assert found.files == {str(data): file_checksum(data)}
    assert found.packages["torch"] == version("torch")
    assert {"python", "neurodyn", "numpy", "newton"} <= found.packages.keys()
    assert found.command
    assert not found.models


def test_a_run_that_is_gone_on_with_keeps_its_manifest(made: Path, data: Path):
    before = (made / MANIFEST).read_bytes()
    train("cartpole", data, made, net="mlp", steps=6, seed=3, resume=True)
    assert (made / MANIFEST).read_bytes() == before


def test_a_manifest_names_the_files_that_its_run_was_trained_on(made: Path, data: Path, tmp_path: Path):
    before, moved, other = read_manifest(made), tmp_path / "moved.h5", tmp_path / "other.h5"
    data.rename(moved)
    train("cartpole", moved, made, net="mlp", steps=6, seed=3, resume=True)
    assert read_manifest(made) == msgspec.structs.replace(before, files={str(moved): file_checksum(moved)})
    make_store(seed=1).write(other)
    shutil.rmtree(made / "state")  # as of a training that was killed before its first save: it begins anew
    train("cartpole", other, made, net="mlp", steps=6, seed=3, resume=True)
    assert read_manifest(made).files == {str(other): file_checksum(other)}


def test_a_budget_in_steps_gives_the_same_bits(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code = neurodyn(["reproduce", str(made), "--out", str(tmp_path / "again"), "--json", str(tmp_path / "found.json")])
    assert code == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("verdict: ok: reproduced: the same bits in all")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["same"] is True
    assert found["tensors"] > 4
    assert found["score_before"] == found["score_now"] is not None
    assert read_manifest(tmp_path / "again").files == read_manifest(made).files


def test_every_training_that_a_module_registers_is_imported_by_the_command():
    source = repository() / "src"
    imported = (source / "neurodyn/cli/train.py").read_text(encoding="utf-8").split()
    registering = {
        ".".join(path.relative_to(source).with_suffix("").parts)
        for path in (source / "neurodyn").rglob("*.py")
        if "@REPETITIONS.register(" in path.read_text(encoding="utf-8") and path.stem != "reproduction"
    }
    assert len(registering) > 4
    assert registering <= set(imported)


def test_the_run_may_be_named_by_its_model(made: Path, tmp_path: Path):
    assert reproduce(made / "model", tmp_path / "again").same


@pytest.mark.parametrize("kind", ["finetune", "world-model"])
def test_other_trainings_give_the_same_bits(made: Path, data: Path, tmp_path: Path, kind: str):
    run = tmp_path / "other"
    if kind == "finetune":
        finetune(made, data, run, steps=3, seed=1)
        assert list(read_manifest(run).models) == [str(made)]
    else:
        train("cartpole", data, run, kind=kind, steps=3, members=2)
    assert reproduce(run, tmp_path / "again").same


def test_another_result_is_called_so(made: Path, tmp_path: Path):
    config = yaml.safe_load((made / "config.yaml").read_text())
    config["settings"]["seed"] = 4
    (made / "config.yaml").write_text(yaml.safe_dump(config))
    found = reproduce(made, tmp_path / "again")
    assert not found.same
    assert found.greatest is not None
    assert found.greatest > 0.0
    assert found.verdict.startswith("fails: ")
    assert neurodyn(["reproduce", str(made), "--out", str(tmp_path / "more")]) == 2


@pytest.mark.parametrize(
    ("versions", "minutes", "words"),
    [(True, False, "compare where nothing differs; here: torch is"), (False, True, "only a budget in steps, on a CPU")],
)
def test_results_that_need_not_be_the_same_are_a_warning_with_both_scores(
    made: Path, tmp_path: Path, versions: bool, minutes: bool, words: str
):
    config = yaml.safe_load((made / "config.yaml").read_text())
    config["settings"] |= {"seed": 4} | ({"minutes": 0.002, "steps": None} if minutes else {})
    (made / "config.yaml").write_text(yaml.safe_dump(config))
    if versions:
        change(made, packages=read_manifest(made).packages | {"torch": "0.1"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Notice)
        found = reproduce(made, tmp_path / "again")
    assert found.score_before is not None
    assert found.score_now is not None
    assert found.verdict.startswith("warning: ")
    assert f"held-out score {found.score_before:.4g} before, {found.score_now:.4g} now" in found.verdict
    assert words in found.verdict


def test_other_versions_are_named_in_one_line(made: Path, tmp_path: Path):
    change(made, packages=read_manifest(made).packages | {"torch": "0.1"}, processor="abacus", commit="0ff1ce")
    said = r"torch is \S+ instead of 0\.1; commit is .* instead of 0ff1ce; processor is .* instead of abacus"
    with pytest.warns(Notice, match=said):
        found = reproduce(made, tmp_path / "again")
    assert found.same  # they differ in the manifest alone
    assert len(found.changed) == 3


def test_other_data_are_refused(made: Path, data: Path, tmp_path: Path):
    moved = data.rename(tmp_path / "moved.h5")
    with pytest.raises(InputError, match=r"plant\.h5: is not there"):
        reproduce(made, tmp_path / "again")
    changed = tmp_path / "changed.h5"
    changed.write_bytes(moved.read_bytes() + b"\0")
    with pytest.raises(InputError, match=r"changed\.h5: is not what .* was made from \(sha256"):
        reproduce(made, tmp_path / "again", data=(str(changed),))
    with pytest.raises(InputError, match=r"--data names 2 files"):
        reproduce(made, tmp_path / "again", data=(str(moved), str(moved)))
    assert not (tmp_path / "again").exists()
    assert reproduce(made, tmp_path / "again", data=(str(moved),)).same


def test_a_missing_file_is_one_line(made: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    data.unlink()
    capsys.readouterr()
    assert neurodyn(["reproduce", str(made), "--out", str(tmp_path / "again")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"neurodyn: {data}: is not there")
    assert said.count("\n") == 1


def test_another_base_is_refused(made: Path, data: Path, tmp_path: Path):
    finetune(made, data, tmp_path / "tuned", steps=1)
    train("cartpole", data, made, net="mlp", steps=6, seed=3, resume=True)
    weights = artifacts.read_tensors(made / "model/model.safetensors")
    artifacts.write_tensors(made / "model/model.safetensors", {name: 2 * x for name, x in weights.items()})
    with pytest.raises(InputError, match=r"run: is not what .*tuned was made from"):
        reproduce(tmp_path / "tuned", tmp_path / "again")


def test_what_cannot_be_reproduced_is_refused(made: Path, cartpole: Robot, plant_store: Store, tmp_path: Path):
    train(cartpole, plant_store, tmp_path / "memory", steps=1)
    with pytest.raises(InputError, match="data in memory"):
        reproduce(tmp_path / "memory", tmp_path / "again")
    with pytest.raises(InputError, match="already holds a run"):
        reproduce(made, made)
    (made / MANIFEST).write_text((made / MANIFEST).read_text().replace('"cpu"', '"gpu"'))
    with pytest.raises(InputError, match="its checksum differs"):
        reproduce(made, tmp_path / "again")
    (made / MANIFEST).unlink()
    with pytest.raises(InputError, match=r"holds no manifest\.json; valid: a run directory that a training wrote"):
        reproduce(made, tmp_path / "again")
    assert not (tmp_path / "again").exists()
