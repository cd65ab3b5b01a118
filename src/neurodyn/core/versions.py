# SPDX-License-Identifier: Apache-2.0
"""Versions of installed packages, of our own source and of the processor, for the record."""

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_HERE = Path(__file__).resolve().parent.parent


def package_versions(*packages: str) -> dict[str, str]:
    """Return the installed versions of neurodyn, numpy, h5py and of further `packages`, for a header."""
    versions = {}
    for name in ("neurodyn", "numpy", "h5py", *packages):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def source_commit() -> str:
    """Return the commit of the git repository that this package lies in; empty where it lies in none.

    "+changes" follows where tracked files of the package differ from that commit.
    """
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:  # no git, or the repository of somebody else
        return ""
    commit = _git("rev-parse", "HEAD") or ""
    return commit if _git("diff-index", "--quiet", "HEAD", "--", ".") is not None else f"{commit}+changes"


def repositories() -> list[Path]:
    """Return the git repositories of this package's source and of the working directory, each once."""
    folders = [_HERE] if source_commit() else []
    found = [_git("rev-parse", "--show-toplevel", folder=folder) for folder in (*folders, Path.cwd())]
    return [Path(top) for top in dict.fromkeys(top for top in found if top)]


def repository_state(repository: Path) -> str:
    """Return commit, status and difference of a git repository as a text, in the form of rsl_rl's `git/*.diff`."""
    parts = {"commit": ("rev-parse", "HEAD"), "status": ("status",), "diff": ("diff", "HEAD")}
    texts = {name: _git(*arguments, folder=repository) or "" for name, arguments in parts.items()}
    return "\n\n\n".join(f"--- git {name} ---\n{text}" for name, text in texts.items()) + "\n"


def processor() -> str:
    """Return the model of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _git(*arguments: str, folder: Path = _HERE) -> str | None:
    """Return what git says of a folder; None where it fails."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
