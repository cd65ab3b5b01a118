# SPDX-License-Identifier: Apache-2.0
"""Files of torch that hold whole objects, read as what these are made of: names of classes, numbers, texts, tensors.

`torch.save` of a module pickles its class by name and its attributes. Python's own reader imports that class, and calls
whatever a file names. The reader here never imports or calls anything that a file names: each class becomes an `Inert`
object that only keeps its attributes. The few names behind which tensors lie are known here (`_KNOWN`), and what a file
can do with them is to describe a part of its own bytes.
"""

import math
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.errors import InputError

_MOST_OBJECTS = 64_000_000
"""Most bytes of a file that describe objects, not numbers."""

_TYPES = {
    "DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16, "LongStorage": torch.int64, "IntStorage": torch.int32,
    "ShortStorage": torch.int16, "CharStorage": torch.int8, "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
}  # fmt: skip


class _RefusedError(Exception):
    """A file asks for what it may not."""


class _Fixed(type):
    """A type to which no file can add anything."""

    def __setattr__(cls, name: str, value: Any) -> None:
        raise _RefusedError(f"sets {name!r} of a class")


class Inert(metaclass=_Fixed):
    """An object of a file: of which class it was, by name, and its attributes.

    Attributes:
        kind: Module and name of its class, which was not looked up.
        state: Its attributes.
    """

    kind: str
    state: Any

    def __new__(cls, *arguments: Any, **options: Any) -> "Inert":
        """Make an object without attributes; arguments are dropped."""
        made = object.__new__(cls)
        object.__setattr__(made, "state", {})
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        raise _RefusedError(f"sets {name!r} of an object")

    def __setstate__(self, state: Any) -> None:
        """Take the attributes that a file gives."""
        object.__setattr__(self, "state", state)

    def get(self, name: str) -> Any:
        """Return an attribute; None where there is none."""
        return self.state.get(name) if isinstance(self.state, dict) else None

    def tensors(self, prefix: str = "") -> dict[str, Tensor]:
        """Return the parameters and buffers of a module and of those within, by their names in a `state_dict`."""
        found: dict[str, Tensor] = {}
        for group in ("_parameters", "_buffers"):
            for name, value in _mapping(self.get(group)).items():
                if isinstance(value, _Array):
                    found[f"{prefix}{name}"] = value.tensor
        for name, module in _mapping(self.get("_modules")).items():
            if isinstance(module, Inert):
                found |= module.tensors(f"{prefix}{name}.")
        return found

    def modules(self) -> "dict[str, Inert]":
        """Return the modules within, in their order."""
        return {str(name): one for name, one in _mapping(self.get("_modules")).items() if isinstance(one, Inert)}


class _Array(metaclass=_Fixed):
    """A tensor within a file's bytes; files cannot change it."""

    tensor: Tensor

    def __setattr__(self, name: str, value: Any) -> None:
        raise _RefusedError(f"sets {name!r} of a tensor")

    def __setstate__(self, state: Any) -> None:
        raise _RefusedError("changes a tensor")

    @classmethod
    def of(cls, tensor: Tensor) -> "_Array":
        made = object.__new__(cls)
        object.__setattr__(made, "tensor", tensor)
        return made


class _Rebuilt(_Array):
    """`torch._utils._rebuild_tensor_v2`: a view of numbers, within their bounds."""

    def __new__(cls, storage: Any, offset: Any, size: Any, stride: Any, *more: Any) -> Any:
        if not isinstance(storage, _Array) or type(offset) is not int or not _lengths(size) or not _lengths(stride):
            raise _RefusedError("a tensor that is none")
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if (
            offset < 0
            or (math.prod(size) and last >= storage.tensor.numel())
            or math.prod(size) > storage.tensor.numel()
        ):
            raise _RefusedError("a tensor beyond its numbers")
        return _Array.of(torch.as_strided(storage.tensor, size, stride, offset))


class _Parameter(_Array):
    """`torch._utils._rebuild_parameter`: the tensor itself."""

    def __new__(cls, data: Any, *more: Any) -> Any:
        if not isinstance(data, _Array):
            raise _RefusedError("a parameter that is none")
        return data


class _Table(dict[Any, Any], metaclass=_Fixed):
    """`collections.OrderedDict`: entries by name, and nothing beside them."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        """Drop attributes."""


_KNOWN: dict[tuple[str, str], type] = {
    ("collections", "OrderedDict"): _Table,
    ("torch._utils", "_rebuild_tensor_v2"): _Rebuilt,
    ("torch._utils", "_rebuild_parameter"): _Parameter,
}


class _Reader(pickle._Unpickler):  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    """Python's reader in Python, whose memory grows with what a file holds, not with numbers that it names."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(archive.open(f"{root}data.pkl"), encoding="utf-8")
        self._archive, self._root = archive, root
        self._storages: dict[str, _Array] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name; nothing is imported."""
        known = _KNOWN.get((module, name))
        return known or _Fixed(name, (Inert,), {"kind": f"{module}.{name}"})

    def get_extension(self, code: int) -> Any:
        raise _RefusedError("asks for a registered extension")

    def persistent_load(self, pid: Any) -> _Array:
        """Return the numbers that a tensor looks at."""
        if not (isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage"):
            raise _RefusedError("refers to something outside of itself")
        _, kind, key, _, count = pid
        dtype = _TYPES.get(getattr(kind, "kind", "").removeprefix("torch."))
        if dtype is None or not isinstance(key, str) or type(count) is not int:
            raise _RefusedError("numbers of an unknown type")
        if key not in self._storages:
            raw = bytearray(self._archive.read(f"{self._root}data/{key}"))
            if len(raw) != count * dtype.itemsize:
                raise _RefusedError("numbers that are cut off")
            self._storages[key] = _Array.of(torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype))
        return self._storages[key]


def read_inert(path: Path, of: str) -> Any:
    """Return what a file of `torch.save` holds, with an `Inert` object in place of each object.

    Args:
        path: The file.
        of: Whose file is expected, for messages.

    Raises:
        InputError: It is missing, damaged, compressed, or asks for more than to describe objects.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a checkpoint of {of}")
    try:
        with zipfile.ZipFile(path) as archive:
            root = _root(archive)
            return _Reader(archive, root).load()
    except _RefusedError as error:
        why = str(error)
    except Exception as error:  # whatever a file makes the reader stumble over: it is damaged, or no such file
        why = type(error).__name__
    raise InputError(f"{path}: cannot be read as objects and numbers alone ({why}); expected a checkpoint of {of}")


def tensor_of(value: Any) -> Tensor | None:
    """Return the tensor that an attribute is; None where it is none."""
    return value.tensor if isinstance(value, _Array) else None


def _root(archive: zipfile.ZipFile) -> str:
    """Return the folder of the objects within an archive as torch writes it: uncompressed, little-endian."""
    entries = archive.infolist()
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise _RefusedError("is compressed")
    (root,) = (e.filename.removesuffix("data.pkl") for e in entries if e.filename.endswith("/data.pkl"))
    if archive.getinfo(f"{root}data.pkl").file_size > _MOST_OBJECTS:
        raise _RefusedError("holds too many objects")
    order = f"{root}byteorder"
    if order in archive.namelist() and archive.read(order) != b"little":
        raise _RefusedError("has its bytes in another order")
    return root


def _lengths(value: Any) -> bool:
    return isinstance(value, tuple) and all(type(one) is int and one >= 0 for one in value)


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}
