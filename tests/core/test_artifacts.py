# SPDX-License-Identifier: Apache-2.0
"""Files that outlive a process: whole or not at all, and never paired wrongly."""

import math
import os
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError, Notice
from tests.forked import in_fork

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


def test_only_the_last_checkpoint_of_a_tree_stays(tmp_path: Path):
    (tmp_path / "state-of-mind.json").touch()  # somebody else's
    for step in range(3):
        artifacts.write_tree(tmp_path, "state", {**TREE, "step": step})
    assert artifacts.read_tree(tmp_path, "state")["step"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "state-3.json", "state-3.safetensors", "state-of-mind.json", "state.json",
    ]  # fmt: skip


def test_the_newest_checkpoints_and_the_best_stay(tmp_path: Path):
    for step in range(1, 7):
        artifacts.write_tree(tmp_path, "state", {"step": step, "x": torch.ones(9)}, keep=2, best=step == 2)
    assert {path.stem for path in tmp_path.iterdir()} == {"state", "state-2", "state-5", "state-6"}
    assert artifacts.read_tree(tmp_path, "state")["step"] == 6
    assert artifacts.read_tree(tmp_path, "state", best=True)["step"] == 2
    last = tmp_path / "state-6.safetensors"
    last.write_bytes(last.read_bytes()[:-1] + b"x")
    with pytest.warns(Notice, match=r"state-6.safetensors: is not what was written.* goes on from .* state-5"):
        assert artifacts.read_tree(tmp_path, "state")["step"] == 5
    (tmp_path / "state-5.json").write_text("{")
    with pytest.raises(InputError, match=r"state-6\.safetensors"):
        artifacts.read_tree(tmp_path, "state")


def test_a_kill_between_the_two_files_leaves_the_previous_generation(tmp_path: Path):
    def killed() -> None:
        artifacts.write_tree(tmp_path, "state", {"x": torch.zeros(3)})
        artifacts.write_json = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        artifacts.write_tree(tmp_path, "state", {"x": torch.ones(3)})

    assert in_fork(killed) == -signal.SIGKILL
    assert (tmp_path / "state-2.safetensors").exists()
    assert torch.equal(artifacts.read_tree(tmp_path, "state")["x"], torch.zeros(3))
    artifacts.write_tree(tmp_path, "state", {"x": torch.full((3,), 2.0)})
    assert torch.equal(artifacts.read_tree(tmp_path, "state")["x"], torch.full((3,), 2.0))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("state.json", "[]"),
        ("state.json", "{}"),
        ("state.json", '{"newest": []}'),
        ("state.json", '{"newest": ["1"]}'),
        ("state.json", '{"newest": [1], "best": "1"}'),
        ("state-1.json", "{}"),
        ("state-1.json", '{"tree": {"__tensor__": "y", "axes": [0]}}'),
        ("state-1.json", '{"tree": {"__tensor__": "x", "axes": "ab"}}'),
        ("state-1.json", '{"tree": {"__tensor__": "x", "axes": [0, 0, 0]}}'),
        ("state-1.json", '{"tree": {"__tensor__": [], "axes": [0]}}'),
        ("state-1.json", '{"tree": {"int:x": 1}}'),
        ("state-1.json", "[]"),
    ],
)
def test_a_damaged_tree_is_bad_input(file: str, content: str, tmp_path: Path):
    artifacts.write_tree(tmp_path, "state", {"x": torch.zeros(3)})
    (tmp_path / file).write_text(content)
    with pytest.raises(InputError, match=rf"{re.escape(file)}: damaged"):
        artifacts.read_tree(tmp_path, "state")


def test_a_run_is_a_folder_with_a_model(tmp_path: Path):
    artifacts.write_json(tmp_path / "run" / "model" / "spec.json", {})
    assert artifacts.resolve_run(tmp_path / "run") == tmp_path / "run"
    assert artifacts.resolve_run(str(tmp_path / "run")) == tmp_path / "run"


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("nowhere", "no such folder"),
        ("", "holds no model"),
        ("own arm", "declares a robot and holds no model; `neurodyn hybrid 'own arm' --out RUN` writes one"),
        ("pretrained:nothing", "no pretrained model 'nothing'; valid:"),
        ("pretrained:../core", "no pretrained model"),
        ("pretrained:", "no pretrained model"),
    ],
)
def test_no_run_is_bad_input(run: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own arm").mkdir()
    (tmp_path / "own arm" / "robot.yaml").touch()
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
        # What processes of one run say to each other is no file, and nobody else sends it. `interop.checkpoints` reads
        # what others pickled with a reader that imports and calls nothing (tests/interop/test_checkpoints.py).
        assert "import pickle" not in text or path.name in ("workers.py", "checkpoints.py"), path
        assert "pickle.load" not in text or path.name == "workers.py", path
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


def test_what_cannot_be_written_is_reported_before_any_work(tmp_path: Path):
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


@pytest.mark.parametrize("exchanged", [True, False])
def test_a_kill_leaves_the_old_folder_or_the_new_one(exchanged: bool, tmp_path: Path):
    artifacts.write_text(tmp_path / "out" / "a", "old")

    def killed() -> None:
        if not exchanged:  # where the system cannot exchange two folders
            artifacts.ctypes.CDLL = None
        remove = shutil.rmtree

        def dies(path, **options):
            remove(path, **options)
            os.kill(os.getpid(), signal.SIGKILL)

        shutil.rmtree = dies
        with artifacts.atomic_folder(tmp_path / "out") as partial:
            (partial / "a").write_text("new")

    assert in_fork(killed) == -signal.SIGKILL
    assert (tmp_path / "out" / "a").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def written_until(out: Path, last: int) -> None:
    """Write a folder where the system cannot exchange two, and kill the process before a step of it."""
    artifacts.ctypes.CDLL = None
    steps = 0

    def counted(call):
        def step(*arguments, **options):
            nonlocal steps
            if steps == last:
                os.kill(os.getpid(), signal.SIGKILL)
            steps += 1
            return call(*arguments, **options)

        return step

    for module, name in ((os, "replace"), (os, "fsync"), (shutil, "rmtree")):
        setattr(module, name, counted(getattr(module, name)))
    with artifacts.atomic_folder(out) as partial:
        (partial / "a").write_text("new")
        (partial / "b").write_text("new")


@pytest.mark.parametrize("reader", [True, False])
def test_a_kill_at_any_step_loses_no_folder_where_two_cannot_be_exchanged(reader: bool, tmp_path: Path):
    ends = []
    for step in range(30):
        out = tmp_path / str(step) / "out"
        for name in ("a", "b"):
            artifacts.write_text(out / name, "old")
        code = in_fork(partial(written_until, out, step))
        if code == 0:
            break
        assert code == -signal.SIGKILL
        if reader:
            artifacts.restore_folder(out)
            ends.append((out / "a").read_text())
            assert (out / "b").read_text() == ends[-1]
            assert sorted(path.name for path in out.iterdir()) == ["a", "b"]
        with pytest.raises(ZeroDivisionError), artifacts.atomic_folder(out):  # a writer puts it back, too
            _ = 1 / 0
        assert (out / "a").read_text() == (out / "b").read_text()
        assert [path.name for path in out.parent.iterdir()] == ["out"]
    else:
        pytest.fail("the writer never came to its end")
    assert step >= 6
    assert ends == sorted(ends, reverse=True)  # old ones, then new ones
    assert not reader or {"old", "new"} == set(ends)


def test_a_live_writer_and_a_reader_that_puts_the_old_folder_back_end_with_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out, replace = tmp_path / "out", os.replace
    artifacts.write_text(out / "a", "old")
    monkeypatch.setattr(artifacts.ctypes, "CDLL", None)
    seen = []

    def interrupted(old: Path, new: Path) -> None:
        replace(old, new)
        if not out.exists() and len(seen) < 2:
            artifacts.restore_folder(out)
            seen.append((out / "a").read_text())

    monkeypatch.setattr(os, "replace", interrupted)
    with artifacts.atomic_folder(out) as partial:
        (partial / "a").write_text("new")
    assert seen == ["old", "old"]
    assert (out / "a").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_run_whose_model_was_being_replaced_is_found(tmp_path: Path):
    artifacts.write_json(tmp_path / "run" / "model.999999999-0.old" / "spec.json", {})
    assert artifacts.resolve_run(tmp_path / "run") == tmp_path / "run"
    assert (tmp_path / "run" / "model" / "spec.json").is_file()


def test_a_folder_that_cannot_be_put_back_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "out.999999999-0.old").mkdir()

    def refused(old: Path, new: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(InputError, match=r"cannot be put back \(Permission denied\); rename \S+out.999999999-0.old to"):
        artifacts.restore_folder(tmp_path / "out")


def test_what_is_written_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A power cut leaves the old file or the new one: bytes first, then the name, then the folder's list of names."""
    done: list[tuple[str, str]] = []
    sync, replace = os.fsync, os.replace

    def fsync(file: int) -> None:
        done.append(("sync", Path(os.readlink(f"/proc/self/fd/{file}")).name))
        sync(file)

    def rename(old: Path, new: Path) -> None:
        done.append(("rename", Path(new).name))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    artifacts.write_text(tmp_path / "a.txt", "1")
    (written, renamed, listed), done[:] = done, []
    assert written[1].startswith("a.txt.")
    assert (written[0], renamed, listed) == ("sync", ("rename", "a.txt"), ("sync", tmp_path.name))
    with artifacts.atomic_folder(tmp_path / "out") as partial:
        (partial / "deep").mkdir()
        (partial / "deep" / "b.txt").write_text("2")
    before = [name for what, name in done[:-2] if what == "sync"]
    assert before[0].startswith("out.")
    assert sorted(before[1:]) == ["b.txt", "deep"]
    assert done[-2:] == [("rename", "out"), ("sync", tmp_path.name)]


def test_links_are_followed_and_special_files_are_left_alone(tmp_path: Path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "deep" / "real.json")
    artifacts.write_json(tmp_path / "link.json", {"x": 1})
    artifacts.write_json(tmp_path / "link.json", {"x": 2})
    assert (tmp_path / "link.json").is_symlink()
    assert artifacts.read_json(tmp_path / "deep" / "real.json") == {"x": 2}
    (tmp_path / "folder").symlink_to(tmp_path / "deep")
    with artifacts.atomic_folder(tmp_path / "folder") as partial:
        (partial / "a").touch()
    assert (tmp_path / "folder").is_symlink()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a"]
    (tmp_path / "new").symlink_to(tmp_path / "far" / "away")  # where no folder is yet
    artifacts.require_writable(tmp_path / "new" / "a.json")
    assert not (tmp_path / "far").exists()
    artifacts.write_json(tmp_path / "new" / "a.json", {})
    assert (tmp_path / "far" / "away" / "a.json").exists()
    os.mkfifo(tmp_path / "pipe")
    heard = socket.socket(socket.AF_UNIX)
    heard.bind(str(tmp_path / "s"))
    heard.close()
    for path, kind in (
        (tmp_path / "pipe", "a pipe"), (tmp_path / "s", "a socket"), (Path("/dev/null"), "a device"),
        (Path("/dev/full"), "a device"),
    ):  # fmt: skip
        for refused in (artifacts.require_writable, lambda path: artifacts.write_json(path, {})):
            with pytest.raises(InputError, match=f"is {kind} and cannot be written"):
                refused(path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match=r"loop: cannot be written \(Too many levels of symbolic links\)"):
        artifacts.write_json(tmp_path / "loop", {})
    assert (tmp_path / "loop").is_symlink()
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_text_alone_goes_to_standard_output(capfd: pytest.CaptureFixture[str], tmp_path: Path):
    artifacts.require_writable(Path("-"), text=True)
    with pytest.raises(InputError, match="only text"):
        artifacts.require_writable(Path("-"))
    script = "from pathlib import Path; from neurodyn.core.artifacts import write_json; write_json(Path('-'), [1])"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)
    assert capfd.readouterr().out == "[\n  1\n]\n"
    assert not list(tmp_path.iterdir())


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f"a.json.{dead.pid}-0.part").write_text("half")
    (tmp_path / f"a.json.{os.getppid()}-0.part").write_text("of a writer that is at work")
    artifacts.write_json(tmp_path / "a.json", {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", f"a.json.{os.getppid()}-0.part"]


def test_flipped_bits_of_weights_and_of_sealed_files_are_found(tmp_path: Path):
    draw, weights, sealed = np.random.default_rng(0), tmp_path / "w.safetensors", tmp_path / "config.json"
    for path in (weights, sealed):
        artifacts.write_tensors(weights, {"a": torch.randn(30, 20), "none": torch.empty(0), "b": torch.arange(5)})
        artifacts.write_checksummed(sealed, {"dt": 0.01, "names": ("a", "b"), "nested": {"x": [1.5, None]}})
        read = artifacts.read_tensors if path == weights else artifacts.read_json
        whole, before = path.read_bytes(), read(path)
        for _ in range(100):
            damaged = bytearray(whole)
            place = draw.integers(0, 8 * len(whole))
            damaged[place // 8] ^= 1 << (place % 8)
            path.write_bytes(damaged)
            try:
                found = read(path)
            except InputError:
                continue
            # White space, or a letter of the checksum's own name: a key that no configuration knows.
            assert same({name: found[name] for name in before}, before)
    artifacts.write_checksummed(sealed, {"dt": 0.01})
    sealed.write_text(sealed.read_text().replace("0.01", "0.02"))
    with pytest.raises(InputError, match='remove its "checksum" if you changed it yourself'):
        artifacts.read_json(sealed)


def test_files_without_checksums_are_read(tmp_path: Path):
    save_file({"a": torch.ones(3)}, tmp_path / "old.safetensors")
    assert torch.equal(artifacts.read_weights(tmp_path / "old.safetensors")["a"], torch.ones(3))
    artifacts.write_json(tmp_path / "old.json", {"x": 1})
    assert artifacts.read_json(tmp_path / "old.json") == {"x": 1}


def test_weights_that_are_not_numbers_are_refused(tmp_path: Path):
    artifacts.write_tensors(tmp_path / "w.safetensors", {"layer": torch.tensor([1.0, math.nan])})
    with pytest.raises(InputError, match="'layer' holds numbers that are not finite"):
        artifacts.read_weights(tmp_path / "w.safetensors")


def test_the_folder_of_a_model_stands_for_its_run(tmp_path):
    """`adapt` and `hybrid` print it."""
    model = tmp_path / "run" / "model"
    model.mkdir(parents=True)
    (model / "spec.json").write_text("{}")
    assert artifacts.resolve_run(model) == artifacts.resolve_run(tmp_path / "run") == tmp_path / "run"
    with pytest.raises(InputError, match="holds no model"):
        artifacts.resolve_run(tmp_path)
