# SPDX-License-Identifier: Apache-2.0
"""Provenance of results: package versions, source commit, processor, and checksums of files and tensors."""

import hashlib
import json
import platform
import subprocess
import zlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


try:
    __version__ = version("neurodyn")
except PackageNotFoundError:  # source tree on PYTHONPATH
    __version__ = "0.0.0+source"
"""Version of the installed package."""

_HERE = Path(__file__).resolve().parent.parent


def package_versions(*packages: str) -> dict[str, str]:
    """Return the installed versions of neurodyn, numpy, h5py and further `packages`."""
    versions = {}
    for name in ("neurodyn", "numpy", "h5py", *packages):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def source_commit() -> str:
    """Return the commit of the package's git repository; empty outside a repository.

    "+changes" is appended if tracked package files differ from that commit.
    """
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:  # no git, or another project's repository
        return ""
    commit = _git("rev-parse", "HEAD") or ""
    return commit if _git("diff-index", "--quiet", "HEAD", "--", ".") is not None else f"{commit}+changes"


def repositories() -> list[Path]:
    """Return the distinct git repositories of this package's source and of the working directory."""
    folders = [_HERE] if source_commit() else []
    tops = [_git("rev-parse", "--show-toplevel", folder=folder) for folder in (*folders, Path.cwd())]
    return [Path(top) for top in dict.fromkeys(top for top in tops if top)]


def repository_state(repository: Path) -> str:
    """Return commit, status and diff of a git repository as text, in the format of rsl_rl's `git/*.diff`."""
    parts = {"commit": ("rev-parse", "HEAD"), "status": ("status",), "diff": ("diff", "HEAD")}
    texts = {name: _git(*arguments, folder=repository) or "" for name, arguments in parts.items()}
    return "\n\n\n".join(f"--- git {name} ---\n{text}" for name, text in texts.items()) + "\n"


def processor() -> str:
    """Return the model name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _git(*arguments: str, folder: Path = _HERE) -> str | None:
    """Return the output of a git command in a folder; None if it fails."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


CHECKSUM = "checksum"
"""Key of the checksum in a JSON file or in the metadata of a safetensors file."""


def with_checksum(data: dict[str, Any]) -> dict[str, Any]:
    """Return plain data with its checksum added."""
    return {**data, CHECKSUM: _data_checksum(data)}


def verify_checksum(data: Any) -> tuple[Any, bool]:
    """Return data without its checksum, and whether it matches; true if there is none."""
    if not isinstance(data, dict) or CHECKSUM not in data:
        return data, True
    rest = {name: value for name, value in data.items() if name != CHECKSUM}
    return rest, data[CHECKSUM] == _data_checksum(rest)


def tensors_checksum(tensors: "dict[str, torch.Tensor]") -> str:
    """Return the checksum of the names, types, shapes and bytes of tensors."""
    import torch

    crc = 0
    for name, tensor in sorted(tensors.items()):
        crc = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), crc)
        if tensor.numel():
            flat: np.ndarray[Any, Any] = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
            crc = zlib.crc32(flat.data, crc)
    return f"crc32:{crc:08x}"


def file_checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def files_checksum(folder: Path, *patterns: str) -> str:
    """Return the SHA-256 of names and contents of the files in a folder that match the patterns, in name order."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}):
        digest.update(f"{path.relative_to(folder).as_posix()} {file_checksum(path)}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def _data_checksum(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"crc32:{zlib.crc32(text.encode()):08x}"
