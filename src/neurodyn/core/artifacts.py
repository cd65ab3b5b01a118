# SPDX-License-Identifier: Apache-2.0
"""Result files: tensors as safetensors, everything else as JSON or YAML; never pickle.

Every file is written under a temporary name and then renamed, so a killed process leaves either the old or the new
file. The same holds for folders; the old one is removed after the new one is in place. If the system cannot swap two
folders atomically, the old one is kept beside the target under a temporary name, from which readers and writers restore
it (`restore_folder`).
"""

import ctypes
import errno
import glob
import itertools
import json
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neurodyn.core.errors import InputError, choices, describe_os_error, notice, suggestion, unwritable
from neurodyn.core.plain_data import read_text, require_regular
from neurodyn.core.provenance import CHECKSUM, tensors_checksum, verify_checksum, with_checksum

if TYPE_CHECKING:
    import torch

STANDARD_OUTPUT = Path("-")
"""Path that stands for standard output; the command line then prints everything else to standard error."""

PRETRAINED = "pretrained:"
PRETRAINED_POLICY = "pretrained-policy:"
_PRETRAINED_ROOT = Path(__file__).resolve().parent.parent / "pretrained"
_POLICY_ROOT = _PRETRAINED_ROOT.with_name("pretrained_policies")
_TENSOR = "__tensor__"
_AXES = "axes"
_COUNT = itertools.count()
_PART, _OLD = ".part", ".old"
"""Suffixes of files being written and of folders being replaced."""
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
"""Constants of linux/fcntl.h and linux/fs.h."""


def cache_folder(name: str) -> Path | None:
    """Return the user's cache folder, which need not exist; None without a home directory."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "neurodyn" / name
    except RuntimeError:
        return None


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a path to write to, which replaces `path` on success and is removed on failure.

    Symlinks are followed. The file is synced to disk, so it survives a power cut. Raises an InputError if it cannot be
    written (no space left, no permission, parent not a folder) or if `path` is not a regular file.
    """
    target = regular_file(path)
    partial = _temporary_path(target)
    try:
        _make(target.parent)
        _remove_stale(target)
        yield partial
        synchronise(partial)
        os.replace(partial, target)
        synchronise(target.parent)
    except OSError as error:
        _remove(partial)
        raise unwritable(path, describe_os_error(error)) from error
    except BaseException:
        _remove(partial)
        raise


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder to write into, which replaces `path` on success and is removed on failure.

    Symlinks are followed. Raises an InputError if it cannot be written.
    """
    target = Path(os.path.realpath(path))
    partial = _temporary_path(target)
    try:
        partial.mkdir(parents=True)
        restore_folder(target)
        _remove_stale(target)
        yield partial
        for file in (partial, *partial.rglob("*")):
            synchronise(file)
        replaced = _put_in_place(partial, target)
        synchronise(target.parent)
        for folder in replaced:
            _remove_at_once(folder, target)
    except OSError as error:
        _remove(partial)
        raise unwritable(path, describe_os_error(error)) from error
    except InputError as error:  # the path in the error is the temporary name of a file inside
        _remove(partial)
        if str(partial) not in str(error):
            raise
        raise InputError(str(error).replace(str(partial), str(path))) from None
    except BaseException:
        _remove(partial)
        raise


def restore_folder(path: Path) -> None:
    """Restore a folder whose writer was killed after moving the old one away and before the new one was in place.

    Readers of folders written by `atomic_folder` call this first; it does nothing if the folder exists. If renaming
    fails, an InputError says what to rename by hand.
    """
    try:
        target = Path(os.path.realpath(path))
    except (OSError, ValueError):  # not a valid path; its reader will report it
        return
    if os.path.lexists(target):
        return
    with suppress(FileNotFoundError):  # its writer is alive and was faster
        old = max(
            (left for left, _ in _leftovers(target, _OLD)), key=lambda left: left.stat().st_ctime_ns, default=None
        )
        if old is not None:
            _put_back(old, target, path)


def _put_back(old: Path, target: Path, path: Path) -> None:
    try:
        os.replace(old, target)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or target.is_dir():
            return
        raise InputError(
            f"{path}: is not there, because its writer was killed, and cannot be put back ({error.strerror}); rename "
            f"{old} to {target}"
        ) from error


def _put_in_place(new: Path, target: Path) -> list[Path]:
    """Move a folder to its final name; return the temporary paths of the folders it replaced.

    Old and new swap names atomically where the system supports it. Otherwise the name is briefly missing, and
    `restore_folder` can restore the old folder from its temporary name.
    """
    replaced: list[Path] = []
    if target.is_dir() and _exchange(new, target):
        return [new]
    try:
        while True:
            if target.is_dir():
                old = _temporary_path(target, _OLD)
                with suppress(FileNotFoundError):  # another writer moved it
                    os.replace(target, old)
                    replaced.append(old)
            try:
                os.replace(new, target)
                return replaced
            except OSError:
                if not target.is_dir():
                    raise
    except BaseException:
        restore_folder(target)
        raise


def _exchange(one: Path, other: Path) -> bool:
    """Swap the names of two folders atomically; return whether that succeeded."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
        return call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0
    except (AttributeError, OSError, TypeError):  # not Linux, or a C library without it
        return False


def regular_file(path: Path) -> Path:
    """Return the target of a path, symlinks followed; raise an InputError if it exists and is not a regular file."""
    if path == STANDARD_OUTPUT:
        raise InputError("-: only text goes to standard output; give the path of a file")
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    try:
        mode = target.stat().st_mode
    except (OSError, ValueError) as error:  # missing, or the writer will report it
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise unwritable(path, describe_os_error(error)) from None
        return target
    if not stat.S_ISREG(mode):
        kind = next((word for test, word in _KINDS if test(mode)), "no regular file")
        raise InputError(f"{path}: is {kind} and cannot be written; give the path of a file, or - for text")
    return target


_KINDS = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
)  # fmt: skip


def make_folder(path: Path) -> None:
    """Make a folder and its parents if missing, or raise an InputError; symlinks are followed."""
    try:
        _make(path)
    except (OSError, ValueError) as error:
        raise unwritable(path, describe_os_error(error)) from error


def _make(path: Path) -> None:
    Path(os.path.realpath(path)).mkdir(parents=True, exist_ok=True)


def synchronise(path: Path) -> None:
    """Sync a file, or a folder's directory entries, to disk."""
    try:
        file = os.open(path, os.O_RDONLY)
    except PermissionError:
        if path.is_dir():  # systems that open no folders, such as Windows
            return
        raise
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EBADF}:  # unsupported by the file system
            raise
    finally:
        os.close(file)


def _temporary_path(target: Path, suffix: str = _PART) -> Path:
    """Return a name beside a file that no other writer uses."""
    return target.with_name(f"{target.name}.{os.getpid()}-{next(_COUNT)}{suffix}")


def _remove_stale(target: Path) -> None:
    """Remove leftovers of killed writers of this target; old folders only if the target exists."""
    for suffix in (_PART, _OLD) if target.is_dir() else (_PART,):
        for path, writer in _leftovers(target, suffix):
            if not _is_alive(writer):
                _remove_at_once(path, target)


def _is_alive(pid: int) -> bool:
    """Return whether a process with this number runs on this machine."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0


def _leftovers(target: Path, suffix: str) -> Iterator[tuple[Path, int]]:
    """Yield the paths that `_temporary_path` made for a target, each with the id of its process."""
    for path in target.parent.glob(f"{glob.escape(target.name)}.*-*{suffix}"):
        writer = path.name.removeprefix(f"{target.name}.").partition("-")[0]
        if writer.isdecimal():
            yield path, int(writer)


def _remove_at_once(path: Path, target: Path) -> None:
    """Remove a folder or file; an old folder is first renamed, so that `restore_folder` never finds half of it."""
    if path.name.endswith(_OLD):
        doomed = _temporary_path(target)
        with suppress(OSError):
            os.replace(path, doomed)
            path = doomed
    _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):  # if it cannot be removed, it was never created
        path.unlink()


def require_writable(*paths: Path | None, text: bool = False) -> None:
    """Check before long work that its results can be written, or raise an InputError; leaves nothing behind.

    Paths of None are skipped; `text` files may go to standard output.
    """
    for path in paths:
        if path is None or (path == STANDARD_OUTPUT and text):
            continue
        target = regular_file(path)
        trial = Path(os.path.realpath(target.parent), f"{target.name}.probe")
        made = [folder for folder in trial.parents if not folder.exists()]
        try:
            with atomic(trial) as partial:
                partial.touch()
            trial.unlink()
        except InputError as error:
            raise InputError(str(error).replace(str(trial), str(path))) from None
        finally:
            for folder in made:  # innermost first
                with suppress(OSError):
                    folder.rmdir()


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, or print it if the path is `-`."""
    if path == STANDARD_OUTPUT:
        print(text, end="", file=sys.__stdout__, flush=True)
        return
    with atomic(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, data: Any) -> None:
    """Write plain data as a JSON file, atomically."""
    write_text(path, json.dumps(data, indent=2, allow_nan=False) + "\n")


def write_checksummed(path: Path, data: dict[str, Any]) -> None:
    """Write plain data as a JSON file with a checksum that `read_json` verifies, atomically."""
    write_json(path, with_checksum(json.loads(json.dumps(data, allow_nan=False))))


def read_json(path: Path) -> Any:
    """Read a JSON file; verify and drop its checksum, if present; raise an InputError on failure."""
    text = read_text(path, "a JSON file")
    try:
        data, intact = verify_checksum(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a JSON file ({error})") from None
    if not intact:
        raise InputError(
            f'{path}: is not what was written: its checksum differs; copy it again, or remove its "{CHECKSUM}" if you '
            "changed it yourself"
        )
    return data


def write_tensors(path: Path, tensors: "dict[str, torch.Tensor]") -> None:
    """Write named tensors as a safetensors file, atomically."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with atomic(path) as partial:
        try:
            own = {name: tensor.detach().contiguous().cpu().clone() for name, tensor in tensors.items()}
            save_file(own, partial, metadata={CHECKSUM: tensors_checksum(own)})
        except SafetensorError as error:  # raised for a full disk
            raise OSError(str(error)) from None
        partial.chmod(0o644)  # safetensors writes for the owner only, but runs are shared


def read_tensors(path: Path) -> "dict[str, torch.Tensor]":
    """Read a safetensors file; raise an InputError if it is missing, truncated, of another kind, or corrupt."""
    from safetensors import SafetensorError, safe_open

    require_regular(path, "a safetensors file")
    try:
        with safe_open(path, "pt") as file:
            tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
        wanted = (metadata or {}).get(CHECKSUM)  # files written by other tools have none
        if wanted is not None and wanted != tensors_checksum(tensors):
            raise InputError(f"{path}: is not what was written: its checksum differs; copy it again")
        return tensors
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{path}: not a readable safetensors file ({error}); expected one written by neurodyn"
        ) from None


def read_weights(path: Path) -> "dict[str, torch.Tensor]":
    """Read a model's weights; see `read_tensors`. NaN raises an InputError."""
    tensors = read_tensors(path)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.isnan().any():
            raise InputError(f"{path}: {name!r} holds numbers that are not finite (NaN); train the model again")
    return tensors


def write_tree(folder: Path, name: str, tree: Any, *, keep: int = 1, best: bool = False) -> None:
    """Write nested dictionaries and lists of tensors as a numbered checkpoint, `best` if it is the best so far.

    Its files are NAME-NUMBER.safetensors and NAME-NUMBER.json. NAME.json, which is written last, lists the checkpoints
    and names the `last` and the `best`, so a reader never mixes tensors and structure of different writes. The newest
    `keep` and the best are kept.
    """
    newest, before = _listed_checkpoints(folder, name) if (folder / f"{name}.json").exists() else ([], None)
    number = max((*newest, before or 0), default=0) + 1
    tensors: dict[str, torch.Tensor] = {}
    structure = _extract_tensors(tree, "", tensors)
    write_tensors(folder / f"{name}-{number}.safetensors", tensors)
    write_checksummed(folder / f"{name}-{number}.json", {"tree": structure})
    newest, kept = [*newest, number][-keep:], number if best else before
    write_checksummed(folder / f"{name}.json", {"last": number, "best": kept, "newest": newest})
    for path in folder.glob(f"{glob.escape(name)}-*"):
        middle = path.stem.removeprefix(f"{name}-")
        if middle.isdecimal() and int(middle) not in {*newest, kept} and path.suffix in {".json", ".safetensors"}:
            path.unlink(missing_ok=True)


def read_tree(folder: Path, name: str, *, best: bool = False) -> Any:
    """Read the `best` checkpoint of `write_tree`, or the last one (the one before it if the last is damaged).

    Raises:
        InputError: The files are missing or malformed, or there is no best checkpoint.
    """
    newest, kept = _listed_checkpoints(folder, name)
    if best:
        if kept is None:
            raise InputError(f"{folder / f'{name}.json'}: names no best checkpoint; expected one that was validated")
        return _read_checkpoint(folder, name, kept)
    first: InputError | None = None
    for number in reversed(newest):
        try:
            tree = _read_checkpoint(folder, name, number)
        except InputError as error:
            first = first or error
            continue
        if first is not None:
            notice(f"{first}; goes on from the checkpoint before, {name}-{number}")
        return tree
    assert first is not None
    raise first


def _read_checkpoint(folder: Path, name: str, number: int) -> Any:
    path = folder / f"{name}-{number}.json"
    tensors = read_tensors(folder / f"{name}-{number}.safetensors")
    try:
        return _insert_tensors(read_json(path)["tree"], tensors)
    except KeyError as error:
        raise InputError(f"{path}: damaged: {error} is missing; expected a file written by neurodyn") from None
    except (TypeError, ValueError, RuntimeError) as error:  # invalid tensor names, keys or axes
        raise InputError(f"{path}: damaged: {error}; expected a file written by neurodyn") from None


def _listed_checkpoints(folder: Path, name: str) -> tuple[list[int], int | None]:
    """Return the numbers of the newest checkpoints, in order, and the number of the best."""
    path = folder / f"{name}.json"
    saved = read_json(path)
    saved = saved if isinstance(saved, dict) else {}
    best, newest = saved.get("best"), saved.get("newest", [])
    known = isinstance(newest, list) and newest and all(isinstance(number, int) for number in newest)
    if not known or not isinstance(best, int | None):
        raise InputError(f"{path}: damaged: it names no checkpoint; expected a file written by neurodyn")
    return newest, best


def _extract_tensors(tree: Any, prefix: str, tensors: "dict[str, torch.Tensor]") -> Any:
    import torch

    if isinstance(tree, torch.Tensor):
        # Restore the memory layout too: the rounding of sums of products depends on it, and so does bitwise resumption
        # (eigenvectors, for example, are column-major).
        axes = sorted(range(tree.dim()), key=lambda axis: -tree.stride(axis))
        if tree.is_contiguous():
            axes = list(range(tree.dim()))
        tensors[prefix] = tree.permute(axes)
        return {_TENSOR: prefix, _AXES: axes}
    if isinstance(tree, dict):
        # JSON turns keys into strings, so integer keys (optimiser state) are marked.
        return {
            (f"int:{key}" if isinstance(key, int) else key): _extract_tensors(value, f"{prefix}/{key}", tensors)
            for key, value in tree.items()
        }
    if isinstance(tree, list | tuple):
        return [_extract_tensors(value, f"{prefix}/{index}", tensors) for index, value in enumerate(tree)]
    return tree


def _insert_tensors(tree: Any, tensors: "dict[str, torch.Tensor]") -> Any:
    if isinstance(tree, dict):
        if _TENSOR in tree:
            axes = tree[_AXES]
            # A copy is aligned in memory; a view into the file is not.
            return tensors[tree[_TENSOR]].clone().permute([axes.index(axis) for axis in range(len(axes))])
        return {
            (int(key[4:]) if key.startswith("int:") else key): _insert_tensors(value, tensors)
            for key, value in tree.items()
        }
    if isinstance(tree, list):
        return [_insert_tensors(value, tensors) for value in tree]
    return tree


def pretrained_names() -> list[str]:
    """Return the names of the shipped models."""
    return sorted(path.parent.parent.name for path in _PRETRAINED_ROOT.glob("*/model/spec.json"))


def pretrained_policy_names() -> list[str]:
    """Return the names of the shipped policies."""
    return sorted(path.parent.name for path in _POLICY_ROOT.glob("*/policy.safetensors"))


def resolve_run(run: str | Path) -> Path:
    """Return the run directory for a path or "pretrained:NAME", or raise an InputError if there is none."""
    if not str(run).startswith(PRETRAINED):
        run = run_folder(run)
        restore_folder(run / "model")
        if not (run / "model").exists() and any((run / f"robot{end}").is_file() for end in _DECLARED):
            how = f"neurodyn hybrid {shlex.quote(str(run))} --out RUN"
            raise InputError(f"{run}: declares a robot and holds no model; `{how}` writes one")
    wanted = "model", "model/spec.json", "a run directory written by `neurodyn train`"
    return _resolve(str(run), PRETRAINED, pretrained_names(), _PRETRAINED_ROOT, wanted)


_DECLARED = (".yaml", ".yml", ".toml", ".json")
"""Suffixes of declarations."""


def run_folder(run: str | Path) -> Path:
    """Return the run of a path that ends in its folder model/, as trainings print it; other paths as they are."""
    run = Path(run)
    within = run.name == "model" and (run / "spec.json").is_file() and not (run / "model").is_dir()
    return run.parent if within else run


def resolve_policy(policy: str | Path) -> Path:
    """Return the policy folder for a path or "pretrained-policy:NAME", or raise an InputError if there is none."""
    wanted = "policy", "config.json", "a folder written by `neurodyn policy train`"
    return _resolve(str(policy), PRETRAINED_POLICY, pretrained_policy_names(), _POLICY_ROOT, wanted)


def _resolve(name: str, prefix: str, known: list[str], root: Path, wanted: tuple[str, str, str]) -> Path:
    """Return the folder of a path or a shipped name; `wanted` holds its content, its file and its kind, in words."""
    shipped, (what, file, folder) = [prefix + one for one in known], wanted
    if name.startswith(prefix):
        own = name.removeprefix(prefix)
        if own not in known:
            valid = choices(shipped) if known else "a folder; none ships"
            raise InputError(f"no pretrained {what} {own!r}{suggestion(own, known)}; valid: {valid}")
        return root / own
    path = Path(name)
    if not (path / file).is_file():
        reason = _no_folder(path, shipped) or f"holds no {what} ({file} is missing)"
        ships = f", or one of {choices(shipped)}" if known else ""
        raise InputError(f"{path}: {reason}; expected {folder}{ships}")
    return path


def export_folder(run: str | Path, target: str) -> Path:
    """Return the default folder of an export: RUN/TARGET, or ./NAME-TARGET for shipped models."""
    text = str(run)
    if text.startswith((PRETRAINED, PRETRAINED_POLICY)):
        return Path(f"{text.partition(':')[2]}-{target}")
    return Path(run) / target


def _no_folder(path: Path, shipped: list[str]) -> str:
    """Return the error text for a missing folder, with suggestions; empty if it exists."""
    if path.is_dir():
        return ""
    if path.exists():
        return "is no folder"
    beside = [one.name for one in path.parent.iterdir() if one.is_dir()] if path.parent.is_dir() else []
    same = [one for one in shipped if one.partition(":")[2] == str(path)]
    meant = f" (did you mean {same[0]!r}?)" if same else suggestion(path.name, beside) or suggestion(str(path), shipped)
    return f"no such folder{meant}"


def is_policy(run: str | Path) -> bool:
    """Return whether a path or "pretrained-policy:NAME" is a policy rather than a run with a model."""
    if str(run).startswith(PRETRAINED_POLICY):
        return True
    return (Path(run) / "policy.safetensors").is_file() and not (Path(run) / "model").is_dir()
