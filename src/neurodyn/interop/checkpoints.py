# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that others wrote.

Read as tensors, numbers and names of classes, without executing anything of a file, and written as runs of ours.
"""

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
from neurodyn.core.errors import InputError, choices
from neurodyn.dynamics.artifact import save
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.interop.formats import MODEL_LAYOUTS
from neurodyn.robots import load, locate

SUFFIXES = (".pth", ".pt", ".npz", ".safetensors")
"""Files that are read: checkpoints of torch, or arrays by name."""


def read_arrays(path: Path, part: str, of: str) -> dict[str, Tensor]:
    """Return the arrays of a checkpoint by name.

    Args:
        path: A checkpoint (.pth, .pt) whose `part` holds the arrays, or that is these arrays; or a file with them
            (.npz, .safetensors).
        part: Key of the arrays.
        of: Whose checkpoint is expected, for messages.

    Raises:
        InputError: The file is missing, damaged, holds something else, or would have to be unpickled.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: no known kind of checkpoint; valid: {choices(SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a checkpoint of {of} ({', '.join(SUFFIXES)})")
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
    """Return one array in single precision.

    Raises:
        InputError: It is missing, or has numbers that are not finite.
    """
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
    except (OSError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: cannot be read ({error}); expected arrays of numbers by name") from None


def _weights(path: Path, part: str) -> Any:
    """Return what a checkpoint holds, without running anything of it."""
    scalar: Any = np.float32(0).__reduce__()[0]  # makes the numbers of numpy, as a best return may be
    names = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")
    kinds = [type(np.dtype(kind)) for kind in ("float32", "float64", "int32", "int64", "bool")]
    try:
        with torch.serialization.safe_globals([*((scalar, name) for name in names), np.dtype, *kinds]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # whatever a file makes the reader stumble over: it is damaged, or asks for code to be run
        raise InputError(
            f"{path}: cannot be read as tensors and numbers alone, and nothing is unpickled; save the arrays of its "
            f"{part!r} by name as .npz or .safetensors, where its own code runs"
        ) from None


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


class InertObject(metaclass=_Fixed):
    """An object of a file: of which class it was, by name, and its attributes.

    Attributes:
        kind: Module and name of its class, which was not looked up.
        state: Its attributes.
    """

    kind: str
    state: Any

    def __new__(cls, *arguments: Any, **options: Any) -> "InertObject":
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
            if isinstance(module, InertObject):
                found |= module.tensors(f"{prefix}{name}.")
        return found

    def modules(self) -> "dict[str, InertObject]":
        """Return the modules within, in their order."""
        return {str(name): one for name, one in _mapping(self.get("_modules")).items() if isinstance(one, InertObject)}


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


class _InertReader(pickle._Unpickler):  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    """Python's reader in Python, whose memory grows with what a file holds, not with numbers that it names."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(archive.open(f"{root}data.pkl"), encoding="utf-8")
        self._archive, self._root = archive, root
        self._storages: dict[str, _Array] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name; nothing is imported."""
        known = _KNOWN.get((module, name))
        return known or _Fixed(name, (InertObject,), {"kind": f"{module}.{name}"})

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
    """Return what a file of `torch.save` holds, with an `InertObject` object in place of each object.

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
            return _InertReader(archive, root).load()
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


def import_model(
    file: str | Path, robot: str | Path, out: str | Path, *, layout: str, statistics: str | Path | None = None
) -> LearnedDynamics:
    """Write somebody else's model as a run of ours.

    Args:
        file: The checkpoint; nothing of it is executed.
        robot: Robot that it is a model of, by name or path.
        out: Run directory to write.
        layout: Layout of the file: "rwm" or "nerd".
        statistics: File with what the inputs were normalised with; None for the one that the robot comes with.

    Returns:
        The model.

    Raises:
        InputError: The file is no such checkpoint or would have to be unpickled, does not fit the robot, or `out`
            holds a run.
    """
    run, declared = Path(out), load(robot)
    if (run / "model").exists() or run.is_file():
        raise InputError(f"{run}: is there already; give another --out")
    model = MODEL_LAYOUTS[layout](Path(file), declared, None if statistics is None else Path(statistics))
    model.declaration = locate(robot)
    save(run, model)
    return model
