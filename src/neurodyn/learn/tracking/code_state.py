# SPDX-License-Identifier: Apache-2.0
"""RUN/git: what the code was that a run was made with, beyond the commit in its manifest."""

from pathlib import Path

from neurodyn.core.artifacts import write_text
from neurodyn.core.versions import repositories, repository_state

FOLDER = "git"


def write_code_state(run: Path) -> list[Path]:
    """Write commit, status and difference of each repository that the code lies in, as RUN/git/NAME.diff.

    Returns:
        The files; those of a run that goes on stay as they are, with none returned.
    """
    written = []
    for repository in repositories():
        path = run / FOLDER / f"{repository.name}.diff"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, repository_state(repository))
            written.append(path)
    return written
