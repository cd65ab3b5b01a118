# SPDX-License-Identifier: Apache-2.0
"""How commands refuse mistakes: is the refusal clear?

A refusal is one line, with exit code 2, that names what is wrong and where, says what would be valid, and suggests the
right name for a misspelled one; it leaves nothing behind.
"""

import contextlib
import io
import random
import re
from dataclasses import dataclass
from pathlib import Path

from _faults import complaints, place_of
from neurodyn.cli.main import run

ROWS, WIDTH = 6, 80
"""Maximum number of terminal rows of a refusal, and their width."""

SAYS_VALID = re.compile(
    r"valid|expected|expects|did you mean|keys of|--help|more than once|install|instead of|asks for|"
    r"write it (again|with)|write the file again|copy it again|there: |give |declare|line \d+"
)
"""Phrases of the library that say what would be right, or where to look."""


@dataclass(frozen=True)
class Mistake:
    """An invalid command.

    Attributes:
        what: What is wrong, for people.
        arguments: The command.
        named: Words that the refusal must contain: where, and what.
        meant: The intended name, which the refusal must suggest; empty if nothing is misspelled.
    """

    what: str
    arguments: list[str]
    named: tuple[str, ...]
    meant: str = ""


def refused(mistake: Mistake, folder: Path) -> str | None:
    """Run a mistaken command in this process; return what is wrong with its refusal, None if nothing is."""
    before = sorted(folder.rglob("*"))
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(mistake.arguments)
    except BaseException as error:
        return f"{type(error).__name__} at {place_of(error)}: {str(error)[:200]}"
    lines = complaints(err.getvalue())
    if code != 2:
        return f"exit code {code}: {' | '.join(lines)[-200:]}"
    if len(lines) != 1:
        return f"{len(lines)} lines: {' | '.join(lines)[:300]}"
    return _unclear(lines[0], mistake) or _left(before, sorted(folder.rglob("*")))


def _unclear(said: str, mistake: Mistake) -> str | None:
    missing = [word for word in mistake.named if word not in said]
    if missing:
        return f"does not name {missing[0]!r}: {said}"
    if not SAYS_VALID.search(said):
        return f"does not say what is valid: {said}"
    if mistake.meant and not re.search(
        rf"did you mean ('[^']+' or )?'([\w-]*:)?{re.escape(mistake.meant.rpartition(':')[2])}'", said
    ):
        return f"does not suggest {mistake.meant!r}: {said}"
    if len(said) > ROWS * WIDTH:
        return f"has {len(said)} characters: {said}"
    return None


def _left(before: list[Path], after: list[Path]) -> str | None:
    new = sorted(set(after) - set(before))
    return f"leaves {new[0].name}" if new else None


def misspelled(name: str, draw: random.Random) -> str:
    """Return a name with one letter added, removed or changed, or two swapped."""
    letters = [i for i, letter in enumerate(name) if letter.isalpha()]
    while True:
        at = draw.choice(letters)
        kind = draw.randrange(4) if len(name) > 3 else 0
        new = (
            name[:at] + name[at] + name[at:],
            name[:at] + name[at + 1 :],
            name[:at] + draw.choice("aeioust") + name[at + 1 :],
            name[:at] + name[at + 1 : at + 2] + name[at] + name[at + 2 :],
        )[kind]
        if new != name:
            return new
