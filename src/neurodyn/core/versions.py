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


def processor() -> str:
    """Return the model of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _git(*arguments: str) -> str | None:
    """Return what git says of the folder of the package; None where it fails."""
    command = ["git", "--no-optional-locks", "-C", str(_HERE), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
