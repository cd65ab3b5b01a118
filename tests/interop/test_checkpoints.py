# SPDX-License-Identifier: Apache-2.0
"""Files of torch are read without running anything of them, whatever they ask for."""

import contextlib
import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from neurodyn.core.errors import InputError
from neurodyn.interop.checkpoints import InertObject, read_inert, tensor_of


def archive(path: Path, objects: bytes, *, compression: int = zipfile.ZIP_STORED, **numbers: bytes) -> Path:
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("model/data.pkl", objects)
        for name, raw in numbers.items():
            file.writestr(f"model/data/{name.removeprefix('n')}", raw)
    return path


def test_a_module_is_its_names_numbers_and_tensors(tmp_path: Path):
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Tanh())
    torch.save({"model": module, "half": torch.ones(2, dtype=torch.float16), "n": 3}, tmp_path / "model.pt")
    found = read_inert(tmp_path / "model.pt", "somebody")
    assert found["n"] == 3
    assert found["model"].kind == "torch.nn.modules.container.Sequential"
    assert found["model"].modules()["0"].get("in_features") == 3
    tensors = found["model"].tensors()
    assert all(torch.equal(value, tensors[name]) for name, value in module.state_dict().items())
    assert set(tensors) == set(module.state_dict())
    half = tensor_of(found["half"])
    assert half is not None
    assert half.dtype == torch.float16


class Calls:
    """Pickles as a call of a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def asked(mark: Path) -> dict[str, bytes]:
    """Return files that would write `mark` if anything of them ran."""
    shell = f"touch {mark}"
    code = f"open({str(mark)!r}, 'w')"
    by_hand = {
        "a method of what a call returned": b"cos\nsystem\n(V" + shell.encode() + b"\ntR.",
        "an instance": b"(V" + shell.encode() + b"\nios\nsystem\n.",
        "an object": b"(cos\nsystem\nV" + shell.encode() + b"\no.",
        "attributes that are calls": b"cos\nsystem\nV" + shell.encode() + b"\nb.",
        "a function within another": b"c__main__\n__builtins__\n.",
        "a persistent name that is a call": b"(Vstorage\ncos\nsystem\nV0\nVcpu\nI1\ntQ.",
        "a registered extension": b"\x80\x02\x82\x01.",
    }
    return {
        "a call": pickle.dumps(Calls(os.system, shell)),
        "code": pickle.dumps(Calls(eval, code)),
        "a call deep within": pickle.dumps({"model": [1, {"x": (Calls(exec, code),)}]}),
        "torch's own reader": pickle.dumps(Calls(torch.load, str(mark))),
        "getattr": pickle.dumps(Calls(getattr, Calls(__import__, "os"), "system")),
        **by_hand,
    }


@pytest.mark.parametrize("what", asked(Path("mark")))
def test_nothing_of_a_file_runs(what: str, tmp_path: Path):
    mark = tmp_path / "mark"
    path = archive(tmp_path / "model.pt", asked(mark)[what])
    found: Any = InertObject
    with contextlib.suppress(InputError):  # refused, or read as something that does nothing
        found = read_inert(path, "somebody")
    inner = found["model"][1]["x"][0] if isinstance(found, dict) else found
    assert isinstance(inner, InertObject) or issubclass(inner, InertObject)
    assert not mark.exists()


REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def tensor(offset: int, size: int, stride: int) -> bytes:
    """Return a file with a tensor over two numbers."""
    storage = b"((Vstorage\nctorch\nFloatStorage\nV0\nVcpu\nI2\ntQ"
    return REBUILD + storage + f"I{offset}\n(I{size}\nt(I{stride}\ntI00\nNtR.".encode()


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        (tensor(0, 3, 1), "beyond its numbers"),
        (tensor(1, 2, 1), "beyond its numbers"),
        (tensor(-1, 1, 1), "beyond its numbers"),
        (tensor(0, 10**12, 0), "beyond its numbers"),
        (b"c__main__\nThing\n(N}Vkind\nVx\nstb.", "sets|TypeError"),
        (REBUILD + b"(N}V__call__\nVx\nstb.", "sets|TypeError"),
        (tensor(0, 2, 1)[:-1] + b"}Vtensor\nVx\nsb.", "changes a tensor"),
        (b"V" + b"x" * 10 + b"\nr\xff\xff\xff\x7f.", ""),
        (b"\x80\x63.", "ValueError"),
        (b"", "EOFError"),
    ],
)
def test_tensors_stay_within_their_numbers_and_classes_as_they_are(objects: bytes, said: str, tmp_path: Path):
    path = archive(tmp_path / "model.pt", objects, n0=torch.ones(2).numpy().tobytes())
    if said:
        with pytest.raises(InputError, match=said):
            read_inert(path, "somebody")
    else:  # a place in the memo that is far away takes no memory
        assert read_inert(path, "somebody") == "x" * 10


def test_files_that_are_none_of_torch_are_refused(tmp_path: Path):
    whole = archive(tmp_path / "whole.pt", tensor(0, 2, 1), n0=torch.ones(2).numpy().tobytes())
    found = tensor_of(read_inert(whole, "somebody"))
    assert found is not None
    assert found.tolist() == [1.0, 1.0]
    cut = archive(tmp_path / "cut.pt", tensor(0, 2, 1), n0=b"\0" * 4)
    packed = archive(tmp_path / "packed.pt", b"\0" * 10**6, compression=zipfile.ZIP_DEFLATED)
    plain = tmp_path / "plain.pt"
    plain.write_bytes(pickle.dumps(3))
    legacy = tmp_path / "legacy.pt"
    torch.save(torch.ones(2), legacy, _use_new_zipfile_serialization=False)
    for path, said in ((cut, "cut off"), (packed, "is compressed"), (plain, "BadZipFile"), (legacy, "BadZipFile")):
        with pytest.raises(InputError, match=said):
            read_inert(path, "somebody")
    with pytest.raises(InputError, match="no such file"):
        read_inert(tmp_path / "none.pt", "somebody")
    buffer = io.BytesIO()
    torch.save(nn.Linear(1, 1), buffer)
    half = tmp_path / "half.pt"
    half.write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    with pytest.raises(InputError, match="BadZipFile"):
        read_inert(half, "somebody")
