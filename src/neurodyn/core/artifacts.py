# SPDX-License-Identifier: Apache-2.0
"""Files that outlive a process: tensors as safetensors, everything else as JSON or YAML; never pickle.

Every file is written under another name and then renamed, so that a killed process leaves either the old
file or the new one, never half of one.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neurodyn.core.errors import InputError, choices

if TYPE_CHECKING:
    import torch

PRETRAINED = "pretrained:"
PRETRAINED_POLICY = "pretrained-policy:"
_PRETRAINED_ROOT = Path(__file__).resolve().parent.parent / "pretrained"
_POLICY_ROOT = _PRETRAINED_ROOT.with_name("pretrained_policies")
_TENSOR = "__tensor__"
_AXES = "axes"


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a path to write to; on success it takes the place of `path`, on failure it vanishes.

    Raises:
        InputError: The file cannot be written (no space left, no permission, not a folder).
    """
    partial = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        os.replace(partial, path)
    except OSError as error:
        _remove(partial)
        reason = error.strerror or str(error)
        raise InputError(
            f"{path}: cannot be written ({reason}); give a path with space and permission to write"
        ) from error
    except BaseException:
        _remove(partial)
        raise


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder to write into; on success it takes the place of `path`, on failure it vanishes.

    A folder that is there already is replaced.

    Raises:
        InputError: The folder cannot be written.
    """
    partial = path.with_name(path.name + ".part")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        if path.is_dir():
            shutil.rmtree(path)
        os.replace(partial, path)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        reason = error.strerror or str(error)
        raise InputError(
            f"{path}: cannot be written ({reason}); give a path with space and permission to write"
        ) from error
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _remove(path: Path) -> None:
    with suppress(OSError):  # what cannot be removed was never made
        path.unlink()


def require_writable(*paths: Path | None) -> None:
    """Check that files can be written, before work is done whose result would be lost; nothing is left behind.

    Raises:
        InputError: A folder cannot be made or written to, or a folder lies where a file should.
    """
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise InputError(f"{path}: is a folder; give the path of a file")
        trial, made = path.with_name(path.name + ".probe"), [folder for folder in path.parents if not folder.exists()]
        try:
            with atomic(trial) as partial:
                partial.touch()
            trial.unlink()
        except InputError as error:
            raise InputError(str(error).replace(str(trial), str(path))) from None
        finally:
            for folder in made:  # the innermost first
                with suppress(OSError):
                    folder.rmdir()


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, data: Any) -> None:
    """Write plain data as a JSON file, atomically."""
    write_text(path, json.dumps(data, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        InputError: The file is missing or malformed.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); expected a JSON file") from None
    except ValueError as error:
        raise InputError(f"{path}: not a JSON file ({error})") from None


def write_tensors(path: Path, tensors: "dict[str, torch.Tensor]") -> None:
    """Write named tensors as a safetensors file, atomically."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with atomic(path) as partial:
        try:
            save_file({name: tensor.detach().contiguous().cpu().clone() for name, tensor in tensors.items()}, partial)
        except SafetensorError as error:  # so it calls a full disk
            raise OSError(str(error)) from None
        partial.chmod(0o644)  # it writes for the owner alone, and runs are shared


def read_tensors(path: Path) -> "dict[str, torch.Tensor]":
    """Read a safetensors file.

    Raises:
        InputError: The file is missing, truncated, or no safetensors file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{path}: not a readable safetensors file ({error}); expected one written by neurodyn"
        ) from None


def write_tree(folder: Path, name: str, tree: Any) -> None:
    """Write nested dictionaries and lists with tensors inside as NAME.safetensors and NAME.json.

    The JSON file is written last and names the generation of the tensor file beside it, so that a reader
    never pairs the tensors of one write with the structure of another.
    """
    tensors: dict[str, torch.Tensor] = {}
    structure = _take_tensors(tree, "", tensors)
    generation = _generation(folder, name) + 1 if (folder / f"{name}.json").exists() else 1
    write_tensors(folder / f"{name}-{generation}.safetensors", tensors)
    write_json(folder / f"{name}.json", {"generation": generation, "tree": structure})
    for stale in folder.glob(f"{name}-*.safetensors"):
        if stale.name != f"{name}-{generation}.safetensors":
            stale.unlink(missing_ok=True)


def read_tree(folder: Path, name: str) -> Any:
    """Read what `write_tree` wrote.

    Raises:
        InputError: The files are missing or malformed.
    """
    path = folder / f"{name}.json"
    tensors = read_tensors(folder / f"{name}-{_generation(folder, name)}.safetensors")
    try:
        return _put_tensors(read_json(path)["tree"], tensors)
    except KeyError as error:
        raise InputError(f"{path}: damaged: {error} is missing; expected a file written by neurodyn") from None


def _generation(folder: Path, name: str) -> int:
    path = folder / f"{name}.json"
    saved = read_json(path)
    if not isinstance(saved, dict) or not isinstance(saved.get("generation"), int):
        raise InputError(f"{path}: damaged: it names no generation; expected a file written by neurodyn")
    return saved["generation"]


def _take_tensors(tree: Any, prefix: str, tensors: "dict[str, torch.Tensor]") -> Any:
    import torch

    if isinstance(tree, torch.Tensor):
        # The order in memory comes back too: sums of products, and with them every bit of what follows a
        # resumed training, depend on it (eigenvectors, for one, come column by column).
        axes = sorted(range(tree.dim()), key=lambda axis: -tree.stride(axis))
        if tree.is_contiguous():
            axes = list(range(tree.dim()))
        tensors[prefix] = tree.permute(axes)
        return {_TENSOR: prefix, _AXES: axes}
    if isinstance(tree, dict):
        # Keys become strings in JSON; integer keys (optimiser state) are marked to find their way back.
        return {
            (f"int:{key}" if isinstance(key, int) else key): _take_tensors(value, f"{prefix}/{key}", tensors)
            for key, value in tree.items()
        }
    if isinstance(tree, list | tuple):
        return [_take_tensors(value, f"{prefix}/{index}", tensors) for index, value in enumerate(tree)]
    return tree


def _put_tensors(tree: Any, tensors: "dict[str, torch.Tensor]") -> Any:
    if isinstance(tree, dict):
        if _TENSOR in tree:
            axes = tree[_AXES]
            # A copy, because what is read lies anywhere in the file's memory, and what is computed is aligned.
            return tensors[tree[_TENSOR]].clone().permute([axes.index(axis) for axis in range(len(axes))])
        return {
            (int(key[4:]) if key.startswith("int:") else key): _put_tensors(value, tensors)
            for key, value in tree.items()
        }
    if isinstance(tree, list):
        return [_put_tensors(value, tensors) for value in tree]
    return tree


def pretrained_names() -> list[str]:
    """Return the names of the models that ship with the package."""
    return sorted(path.parent.parent.name for path in _PRETRAINED_ROOT.glob("*/model/spec.json"))


def pretrained_policy_names() -> list[str]:
    """Return the names of the policies that ship with the package."""
    return sorted(path.parent.name for path in _POLICY_ROOT.glob("*/policy.safetensors"))


def resolve_run(run: str | Path) -> Path:
    """Return the run directory that `run` names: a path, or "pretrained:NAME".

    Raises:
        InputError: There is no such run directory.
    """
    text = str(run)
    if text.startswith(PRETRAINED):
        name = text.removeprefix(PRETRAINED)
        if name not in pretrained_names():
            raise InputError(
                f"no pretrained model {name!r}; valid: {choices(PRETRAINED + n for n in pretrained_names())}"
            )
        return _PRETRAINED_ROOT / name
    path = Path(text)
    if not (path / "model" / "spec.json").is_file():
        reason = "holds no model (model/spec.json is missing)" if path.is_dir() else "is no folder"
        raise InputError(
            f"{path}: {reason}; expected a run directory written by `neurodyn train`, or one of "
            f"{choices(PRETRAINED + n for n in pretrained_names())}"
        )
    return path


def resolve_policy(policy: str | Path) -> Path:
    """Return the folder that `policy` names: a path, or "pretrained-policy:NAME".

    Raises:
        InputError: There is no such policy.
    """
    text, known = str(policy), pretrained_policy_names()
    if text.startswith(PRETRAINED_POLICY):
        name = text.removeprefix(PRETRAINED_POLICY)
        if name not in known:
            raise InputError(f"no pretrained policy {name!r}; valid: {_policies(known) or 'a folder; none ships'}")
        return _POLICY_ROOT / name
    path = Path(text)
    if not (path / "config.json").is_file():
        reason = "holds no policy (config.json is missing)" if path.is_dir() else "is no folder"
        ships = f", or one of {_policies(known)}" if known else ""
        raise InputError(f"{path}: {reason}; expected a folder written by `neurodyn policy train`{ships}")
    return path


def _policies(names: list[str]) -> str:
    return choices(PRETRAINED_POLICY + name for name in names) if names else ""
