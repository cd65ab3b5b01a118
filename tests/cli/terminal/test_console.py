# SPDX-License-Identifier: Apache-2.0
"""What a verb prints is what it was given: names are neither emoji nor markup."""

import io
import re
from pathlib import Path

import pytest
from rich.table import Table

from neurodyn.cli.terminal import console
from neurodyn.cli.terminal import console as progress

NAME = "pretrained:ant"


def test_names_of_models_are_no_emoji():
    out = io.StringIO()
    printer = console.terminal(width=80, file=out)
    table = Table("error [m]", title=f"[0] {NAME}")
    table.add_row(NAME)
    printer.print(NAME, "[rad/s]")
    printer.print(table)
    assert out.getvalue().count(NAME) == 3
    assert "[rad/s]" in out.getvalue()
    assert "error [m]" in out.getvalue()


@pytest.mark.parametrize("interactive", [True, False])
def test_the_title_of_a_progress_bar_is_printed_as_it_is(interactive, monkeypatch):
    monkeypatch.setattr(progress, "_SOON", 0.0)
    out = io.StringIO()
    where = console.terminal(file=out, force_terminal=interactive)
    where.width = 200
    with progress.ProgressBar(f"training ant in {NAME}", where) as bar:
        bar.update(0.5, "error of pretrained:cube [m]")
    assert f"training ant in {NAME}" in out.getvalue()
    assert "error of pretrained:cube [m]" in out.getvalue()


def test_all_verbs_print_to_such_a_console():
    verbs = Path(console.__file__).parents[1]
    assert [
        path.name for path in verbs.rglob("*.py") if re.search(r"\bConsole\)?\(|\(Console\)", path.read_text())
    ] == ["console.py"]
