# SPDX-License-Identifier: Apache-2.0
"""`neurodyn examples`: what the pages work with, as files of your own."""

import shutil
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
SOURCES = (_PACKAGE / "examples", _PACKAGE.parent.parent / "examples")
"""Where examples lie: in an installed package, and in a clone."""


def examples(*, out: Path = Path("examples")) -> None:
    """Write the examples of the documentation: robots, column maps, logs in seconds, tasks, scripts.

    Args:
        out: Folder to write.

    Example:
        neurodyn examples --out examples
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.core.artifacts import atomic_folder
    from neurodyn.core.errors import InputError
    from neurodyn.core.locks import exclusive

    source = next((folder for folder in SOURCES if folder.is_dir()), None)
    if source is None:
        raise InputError(f"{SOURCES[0]}: no such folder; the installation is incomplete, install neurodyn once more")
    with exclusive(out):
        if out.exists():
            raise InputError(f"{out}: is there already; give another --out")
        with ProgressBar("writing examples"), atomic_folder(out) as folder:
            shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    count = sum(path.is_file() for path in out.rglob("*"))
    print(f"{count} files: {out}")
    print(f"next: python {out / 'own_logs/make_logs.py'} --out logs")
