# SPDX-License-Identifier: Apache-2.0
"""Files that outlive a process: whole or not at all, and never paired wrongly."""

import math
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError

TREE = {
    "step": 7,
    "rate": 1e-3,
    "name": "soap",
    "nothing": None,
    "optimiser": {
        "state": {0: {"step": 3, "moments": [torch.arange(3.0), None]}, 12: {"step": torch.tensor(4.0)}},
        "param_groups": [{"lr": 0.1, "params": [0, 1], "fused": None}],
    },
    "random": torch.tensor([1, 2, 255], dtype=torch.uint8),
    "empty": {},
}


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def test_a_failure_while_writing_keeps_the_old_file_and_leaves_nothing_else(tmp_path: Path):
    path = tmp_path / "a.txt"
    artifacts.write_text(path, "old")

    def write_half() -> None:
        with artifacts.atomic(path) as partial:
            partial.write_text("half")
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        write_half()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_missing_folders_are_made(tmp_path: Path):
    artifacts.write_json(tmp_path / "a" / "b" / "c.json", {"x": 1})
    assert artifacts.read_json(tmp_path / "a" / "b" / "c.json") == {"x": 1}


def test_a_file_in_the_place_of_a_folder_is_bad_input(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        artifacts.write_text(tmp_path / "file" / "a.txt", "x")


def test_a_folder_in_the_place_of_the_file_is_bad_input(tmp_path: Path):
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        artifacts.write_text(tmp_path / "a.txt", "x")
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_what_is_not_finite_never_reaches_a_json_file(tmp_path: Path):
    with pytest.raises(ValueError, match="JSON"):
        artifacts.write_json(tmp_path / "a.json", {"x": math.nan})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [None, "", "{", "\x00"])
def test_a_missing_or_malformed_json_file_is_bad_input(content: str | None, tmp_path: Path):
    if content is not None:
        (tmp_path / "a.json").write_text(content)
    with pytest.raises(InputError, match=r"a\.json"):
        artifacts.read_json(tmp_path / "a.json")


def test_tensors_come_back_bitwise_views_and_shared_memory_included(tmp_path: Path):
    base = torch.randn(4, 6)
    tensors = {"view": base.t()[::2], "same": base, "double": base.double(), "flag": torch.tensor(True)}
    artifacts.write_tensors(tmp_path / "a.safetensors", tensors)
    found = artifacts.read_tensors(tmp_path / "a.safetensors")
    assert set(found) == set(tensors)
    assert all(same(tensors[name], found[name]) for name in tensors)


@pytest.mark.parametrize("keep", [0, 4, 20, -1])
def test_a_truncated_tensor_file_is_bad_input(keep: int, tmp_path: Path):
    path = tmp_path / "a.safetensors"
    artifacts.write_tensors(path, {"x": torch.randn(100)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match="safetensors"):
        artifacts.read_tensors(path)


def test_a_full_disk_is_bad_input_and_keeps_the_old_file(tmp_path: Path):
    path = tmp_path / "a.safetensors"
    artifacts.write_tensors(path, {"x": torch.ones(2)})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(InputError, match="cannot be written"):
            artifacts.write_tensors(path, {"x": torch.randn(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert torch.equal(artifacts.read_tensors(path)["x"], torch.ones(2))
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_tree_of_optimiser_state_comes_back(tmp_path: Path):
    artifacts.write_tree(tmp_path, "state", TREE)
    assert same(TREE, artifacts.read_tree(tmp_path, "state"))


def test_only_the_last_generation_of_a_tree_stays(tmp_path: Path):
    for step in range(3):
        artifacts.write_tree(tmp_path, "state", {**TREE, "step": step})
    assert artifacts.read_tree(tmp_path, "state")["step"] == 2
    assert len(list(tmp_path.iterdir())) == 2


def test_a_kill_between_the_two_files_leaves_the_previous_generation(tmp_path: Path):
    script = f"""
import os, signal, torch
from pathlib import Path
from neurodyn.core import artifacts
folder = Path({str(tmp_path)!r})
artifacts.write_tree(folder, "state", {{"x": torch.zeros(3)}})
artifacts.write_json = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
artifacts.write_tree(folder, "state", {{"x": torch.ones(3)}})
"""
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "state-2.safetensors").exists()
    assert torch.equal(artifacts.read_tree(tmp_path, "state")["x"], torch.zeros(3))
    artifacts.write_tree(tmp_path, "state", {"x": torch.full((3,), 2.0)})
    assert torch.equal(artifacts.read_tree(tmp_path, "state")["x"], torch.full((3,), 2.0))


@pytest.mark.parametrize("content", ["[]", "{}", '{"generation": 1}', '{"generation": 1, "tree": {"__tensor__": "y"}}'])
def test_a_damaged_tree_is_bad_input(content: str, tmp_path: Path):
    artifacts.write_tree(tmp_path, "state", {"x": torch.zeros(3)})
    (tmp_path / "state.json").write_text(content)
    with pytest.raises(InputError, match=r"state\.json"):
        artifacts.read_tree(tmp_path, "state")


def test_a_run_is_a_folder_with_a_model(tmp_path: Path):
    artifacts.write_json(tmp_path / "run" / "model" / "spec.json", {})
    assert artifacts.resolve_run(tmp_path / "run") == tmp_path / "run"
    assert artifacts.resolve_run(str(tmp_path / "run")) == tmp_path / "run"


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("nowhere", "is no folder"),
        ("", "holds no model"),
        ("pretrained:nothing", "no pretrained model 'nothing'; valid:"),
        ("pretrained:../core", "no pretrained model"),
        ("pretrained:", "no pretrained model"),
    ],
)
def test_no_run_is_bad_input(run: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=words):
        artifacts.resolve_run(run)


def test_pretrained_models_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    artifacts.write_json(tmp_path / "b" / "model" / "spec.json", {})
    artifacts.write_json(tmp_path / "a" / "model" / "spec.json", {})
    (tmp_path / "notes").mkdir()
    monkeypatch.setattr(artifacts, "_PRETRAINED_ROOT", tmp_path)
    assert artifacts.pretrained_names() == ["a", "b"]
    assert artifacts.resolve_run("pretrained:b") == tmp_path / "b"


def test_nothing_is_read_with_pickle():
    source = Path(artifacts.__file__).resolve().parents[1]
    for path in source.rglob("*.py"):
        text = path.read_text()
        # What processes of one run say to each other is no file, and comes from nobody else.
        assert "import pickle" not in text or path.name == "workers.py", path
        assert text.count("torch.load(") == text.count("weights_only=True"), path  # tensors and numbers alone
        assert "allow_pickle=True" not in text, path


def test_tensors_of_a_tree_keep_their_order_in_memory(tmp_path: Path):
    """Eigenvectors come column by column; a product with the same numbers in another order rounds otherwise."""
    tree = {"q": torch.linalg.eigh(torch.eye(3) + 0.1).eigenvectors, "cube": torch.randn(2, 3, 4).permute(2, 0, 1)}
    artifacts.write_tree(tmp_path, "state", tree)
    found = artifacts.read_tree(tmp_path, "state")
    for name, tensor in tree.items():
        assert torch.equal(found[name], tensor)
        assert found[name].stride() == tensor.stride()
    assert tree["q"].stride() == (1, 3)


def test_what_cannot_be_written_is_told_before_any_work(tmp_path: Path):
    artifacts.require_writable(None, tmp_path / "new" / "deep" / "result.json")
    assert list(tmp_path.iterdir()) == []  # a command that is refused later leaves nothing
    (tmp_path / "there").mkdir()
    artifacts.require_writable(tmp_path / "there" / "result.json")
    assert list(tmp_path.rglob("*")) == [tmp_path / "there"]
    (tmp_path / "there").rmdir()
    with pytest.raises(InputError, match="is a folder"):
        artifacts.require_writable(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/result\.json: cannot be written"):
        artifacts.require_writable(tmp_path / "file" / "result.json")


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    with artifacts.atomic_folder(tmp_path / "out") as partial:
        (partial / "a").write_text("1")
        assert not (tmp_path / "out").exists()
    with (
        pytest.raises(InputError, match="out: cannot be written"),
        artifacts.atomic_folder(tmp_path / "out") as partial,
    ):
        (partial / "a").rename(tmp_path / "b")
    assert (tmp_path / "out" / "a").read_text() == "1"
    with artifacts.atomic_folder(tmp_path / "out") as partial:
        (partial / "b").write_text("3")
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["out", "out/b"]
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file/out: cannot be written"), artifacts.atomic_folder(tmp_path / "file/out"):
        pass
