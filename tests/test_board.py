# SPDX-License-Identifier: Apache-2.0
"""The page of benchmarks/board.py keeps rows that are not measured."""

import copy
from types import ModuleType, SimpleNamespace

import numpy as np
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


def test_evaluate_agrees_where_it_warns_of_better_models_and_there_are_some(board):
    errors = lambda *values: {"at": {"joints [rad or m]": list(values)}}  # noqa: E731
    row = {"seconds": [0.1, 1.0], "models": {"adapt": errors(1.0, 1.0), "gru": errors(2.0, 0.9)}}
    assert board.agrees(row) is None
    assert [board.agrees(row | {"better": better}) for better in ([], ["GRU"])] == [False, True]
    led = row | {"models": {"adapt": errors(1.0, 1.0), "gru": errors(2.0, 0.96)}}
    assert [board.agrees(led | {"better": better}) for better in ([], ["GRU"])] == [True, False]


@pytest.mark.parametrize("number", [0, 1])
def test_halves_of_training_runs_leave_the_others_as_they_are(monkeypatch: pytest.MonkeyPatch, number: int):
    monkeypatch.syspath_prepend(str(repository() / "benchmarks"))
    import half_logs  # pyright: ignore[reportMissingImports]

    row = SimpleNamespace(parts=lambda _: (np.array([0, 10, 14, 20, 30]), np.array([0, 1, 2, 0])))
    ends, split = half_logs.half(row, number)({})
    assert ends.tolist() == [0, 5, 10, 14, 20, 25, 30]
    assert split.tolist() == [[0, 2, 1, 2, 0, 2], [2, 0, 1, 2, 2, 0]][number]
    many = SimpleNamespace(parts=lambda _: (np.arange(7), np.array([0, 0, 1, 0, 2, 0])))
    ends, split = half_logs.half(many, number)({})
    assert (ends.tolist(), split.tolist()) == (list(range(7)), [[0, 2, 1, 0, 2, 2], [2, 0, 1, 2, 2, 0]][number])
