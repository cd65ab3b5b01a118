# SPDX-License-Identifier: Apache-2.0
"""The page of benchmarks/board.py keeps rows that are not measured."""

import copy
from types import ModuleType

import pytest

from tests.plant import repository

PAGE = repository() / "docs/real-robots.md"


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(repository() / "benchmarks"))
    import _board_page  # pyright: ignore[reportMissingImports]

    return _board_page


def test_rows_that_are_not_measured_stay_on_the_page(board, tmp_path):
    before = PAGE.read_text()
    table = before.split(board.BEGIN)[1].split(board.END)[0]
    cells = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if " s, " in line]
    titles = {f"row{k}": (row[1], row[2]) for k, row in enumerate(row for row in cells if len(row) > 2 and row[1])}
    rows = board.read_table(table, titles)
    assert list(rows) == list(titles)
    page = tmp_path / "page.md"
    page.write_text(before)
    board.write_page(page, titles, {}, tmp_path)
    assert board.table(titles, rows) in page.read_text()
    assert board.table(titles, rows) in before
    first = next(iter(rows))
    measured = copy.deepcopy(rows[first]) | {"cpu_s": 1234.0}
    board.write_page(page, titles, {first: measured}, tmp_path)
    kept = page.read_text().splitlines()
    lost = [line for line in before.splitlines() if line.startswith("|") and line not in kept]
    assert len(lost) == 1
    assert lost[0].startswith(f"| {titles[first][0]} |")
    assert "| 1234 |" in page.read_text()
