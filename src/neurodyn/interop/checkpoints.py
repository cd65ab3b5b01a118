# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of other projects, read as tensors, numbers and class names; nothing in a file is executed."""

import math
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError, choices, suggested_file

_SUFFIXES = (".pth", ".pt", ".npz", ".safetensors")
"""Torch checkpoints, and files of named arrays."""


def read_arrays(path: Path, part: str, of: str) -> dict[str, Tensor]:
    """Return a checkpoint's arrays by name.

    Args:
        path: A checkpoint (.pth, .pt) with the arrays at its top level or in `part`; or a file of arrays (.npz,
            .safetensors).
        part: Key of the arrays.
        of: Library whose checkpoint is expected, for messages.

    Raises:
        InputError: The file is missing, damaged, holds something else, or would have to be unpickled.
    """
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise InputError(f"{path}: no known kind of checkpoint; valid: {choices(_SUFFIXES)}")
    if not path.is_file():
        raise InputError(
            f"{path}: no such file{suggested_file(path)}; expected a checkpoint of {of} ({', '.join(_SUFFIXES)})"
        )
    if suffix == ".safetensors":
        return artifacts.read_tensors(path)
    if suffix == ".npz":
        return _npz(path)
    tree = _weights(path, part)
    tree = tree.get(part, tree) if isinstance(tree, Mapping) else tree
    if not isinstance(tree, Mapping):
        raise InputError(f"{path}: holds no {part!r}; expected a checkpoint of {of}")
    return {name: value for name, value in tree.items() if isinstance(name, str) and isinstance(value, Tensor)}


def take(arrays: Mapping[str, Tensor], name: str, where: str, of: str) -> Tensor:
    """Return one array as float32, or raise an InputError if it is missing or not finite."""
    if name not in arrays:
        raise InputError(f"{where}: holds no {name!r}; expected {of}")
    value = arrays[name].float()
    if not bool(value.isfinite().all()):
        raise InputError(f"{where}: {name} has numbers that are not finite")
    return value


def _npz(path: Path) -> dict[str, Tensor]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: torch.from_numpy(np.asarray(file[name])) for name in file.files}
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: cannot be read ({error}); expected arrays of numbers by name") from None


def _weights(path: Path, part: str) -> Any:
    """Return the contents of a checkpoint with torch's weights-only reader, which executes nothing."""
    scalar: Any = np.float32(0).__reduce__()[0]  # constructor of numpy scalars, such as a best return
    names = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")
    kinds = [type(np.dtype(kind)) for kind in ("float32", "float64", "int32", "int64", "bool")]
    try:
        with torch.serialization.safe_globals([*((scalar, name) for name in names), np.dtype, *kinds]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # damaged files, and files that ask to run code, may raise anything
        raise InputError(
            f"{path}: cannot be read as tensors and numbers alone, and nothing is unpickled; save the arrays of its "
            f"{part!r} by name as .npz or .safetensors, where its own code runs"
        ) from None


_MOST_OBJECTS = 64_000_000
"""Maximum size of a file's object description [bytes]; numbers are stored separately."""

_TYPES = {
    "DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16, "LongStorage": torch.int64, "IntStorage": torch.int32,
    "ShortStorage": torch.int16, "CharStorage": torch.int8, "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
}  # fmt: skip


class _RefusedError(Exception):
    """A file contains a forbidden object."""


class _Fixed(type):
    """A type whose attributes a file cannot set."""

    def __setattr__(cls, name: str, value: Any) -> None:
        raise _RefusedError(f"sets {name!r} of a class")


class InertObject(metaclass=_Fixed):
    """An object in a file, as its class name and attributes.

    Attributes:
        kind: Module and name of its class, which is not imported.
        state: Its attributes.
    """

    kind: str
    state: Any

    def __new__(cls, *arguments: Any, **options: Any) -> "InertObject":
        """Create an object without attributes; arguments are dropped."""
        made = object.__new__(cls)
        object.__setattr__(made, "state", {})
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        raise _RefusedError(f"sets {name!r} of an object")

    def __setstate__(self, state: Any) -> None:
        object.__setattr__(self, "state", state)

    def get(self, name: str) -> Any:
        """Return an attribute; None if missing."""
        return self.state.get(name) if isinstance(self.state, dict) else None

    def tensors(self, prefix: str = "") -> dict[str, Tensor]:
        """Return the parameters and buffers of a module and its submodules, by `state_dict` name."""
        tensors: dict[str, Tensor] = {}
        for group in ("_parameters", "_buffers"):
            for name, value in _mapping(self.get(group)).items():
                if isinstance(value, _Array):
                    tensors[f"{prefix}{name}"] = value.tensor
        for name, module in _mapping(self.get("_modules")).items():
            if isinstance(module, InertObject):
                tensors |= module.tensors(f"{prefix}{name}.")
        return tensors

    def modules(self) -> "dict[str, InertObject]":
        """Return the direct submodules, in order."""
        return {str(name): one for name, one in _mapping(self.get("_modules")).items() if isinstance(one, InertObject)}


class _Array(metaclass=_Fixed):
    """A tensor in a file's bytes, which the file cannot change."""

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
    """`torch._utils._rebuild_tensor_v2`: a bounds-checked view of stored numbers."""

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
    """`collections.OrderedDict`, without attributes."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        pass


_KNOWN: dict[tuple[str, str], type] = {
    ("collections", "OrderedDict"): _Table,
    ("torch._utils", "_rebuild_tensor_v2"): _Rebuilt,
    ("torch._utils", "_rebuild_parameter"): _Parameter,
}


class _InertReader(pickle._Unpickler):  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    """Python's own unpickler, which, unlike the C one, allocates no more memory than a file has contents."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(archive.open(f"{root}data.pkl"), encoding="utf-8")
        self._archive, self._root = archive, root
        self._storages: dict[str, _Array] = {}

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get((module, name))
        return known or _Fixed(name, (InertObject,), {"kind": f"{module}.{name}"})

    def get_extension(self, code: int) -> Any:
        raise _RefusedError("asks for a registered extension")

    def persistent_load(self, pid: Any) -> _Array:
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
    """Return the contents of a `torch.save` file, with an `InertObject` in place of each object.

    Args:
        path: The file.
        of: Library whose checkpoint is expected, for messages.

    Raises:
        InputError: The file is missing, damaged or compressed, or contains more than objects and numbers.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file{suggested_file(path)}; expected a checkpoint of {of}")
    try:
        with zipfile.ZipFile(path) as archive:
            root = _root(archive)
            return _InertReader(archive, root).load()
    except _RefusedError as error:
        why = str(error)
    except Exception as error:  # a damaged file may raise anything
        why = type(error).__name__
    raise InputError(f"{path}: cannot be read as objects and numbers alone ({why}); expected a checkpoint of {of}")


def tensor_of(value: Any) -> Tensor | None:
    """Return the tensor of an attribute; None if it is not a tensor."""
    return value.tensor if isinstance(value, _Array) else None


def _root(archive: zipfile.ZipFile) -> str:
    """Return the root folder in an archive of torch, which must be uncompressed and little-endian."""
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
