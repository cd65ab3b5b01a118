# SPDX-License-Identifier: Apache-2.0
"""Manifests: what a run was made from, and the same bits from the same input."""

import shutil
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest

from neurodyn.core.errors import InputError
from neurodyn.core.provenance import file_checksum
from neurodyn.data.store import Store
from neurodyn.learn.manifest import MANIFEST, Manifest, read_manifest
from neurodyn.learn.training import finetune, train
from tests.plant import make_store


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


@pytest.mark.parametrize("kind", ["neural", "finetune", "world-model"])
def test_a_budget_in_steps_gives_the_same_bits(made: Path, data: Path, tmp_path: Path, kind: str):
    runs = [tmp_path / "one", tmp_path / "other"]
    for run in runs:
        if kind == "finetune":
            finetune(made, data, run, steps=3, seed=1)
            assert list(read_manifest(run).models) == [str(made)]
        else:
            train("cartpole", data, run, kind=kind, steps=3)
    first, again = ((run / "model/model.safetensors").read_bytes() for run in runs)
    assert first == again


def test_a_damaged_or_missing_manifest_is_refused(made: Path):
    (made / MANIFEST).write_text((made / MANIFEST).read_text().replace('"cpu"', '"gpu"'))
    with pytest.raises(InputError, match="its checksum differs"):
        read_manifest(made)
    (made / MANIFEST).unlink()
    with pytest.raises(InputError, match=r"holds no manifest\.json; valid: a run directory that a training wrote"):
        read_manifest(made)
