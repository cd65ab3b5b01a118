# SPDX-License-Identifier: Apache-2.0
"""Tables that fit the terminal: numbers are never cut, words wrap, and what is too wide goes on below."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

_GAP = 3
_WORDS = 16
"""Width up to which a cell stays on one line."""
_FIRST = 0.45
"""Share of the width that the first column, which names the rows, takes at most."""

Cell = str | Text


def print_table(console: Console, head: Sequence[str], rows: Sequence[Sequence[Cell]], title: str = "") -> None:
    """Print a table, in several blocks below each other where its columns do not fit side by side.

    Args:
        console: Where.
        head: Heads of the columns; those of the first column name the rows, in every block.
        rows: Their cells.
        title: What stands above the first block; empty for nothing.
    """
    for number, columns in enumerate(_blocks(head, rows, console.width)):
        table = Table(
            title=title if not number else None, title_justify="left", title_style="bold", box=SIMPLE_HEAD,
            pad_edge=False, show_edge=False,
        )  # fmt: skip
        for column, width in zip(columns, _widths(columns, head, rows, console.width), strict=True):
            table.add_column(head[column], width=width, overflow="fold")
        for row in rows:
            table.add_row(*(row[column] for column in columns))
        console.print(table)
        console.print()


def _blocks(head: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> list[list[int]]:
    """Return the columns of each block."""
    least = [_least(column, head, rows, width) for column in range(len(head))]
    blocks, used = [[0]], least[0]
    for column in range(1, len(head)):
        if used + _GAP + least[column] > width and len(blocks[-1]) > 1:
            blocks.append([0])
            used = least[0]
        blocks[-1].append(column)
        used += _GAP + least[column]
    return blocks


def _widths(columns: list[int], head: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> list[int]:
    """Return the widths of the columns of a block: as wide as they would be, as far as there is room."""
    widths = [_least(column, head, rows, width) for column in columns]
    wanted = [max(cell_len(str(cell)) for cell in (head[c], *(row[c] for row in rows))) for c in columns]
    room = width - sum(widths) - _GAP * (len(columns) - 1)
    while room > 0 and (narrow := [i for i in range(len(columns)) if widths[i] < wanted[i]]):
        widths[min(narrow, key=lambda i: wanted[i] - widths[i])] += 1  # those that lack least are helped first
        room -= 1
    return widths


def _least(column: int, head: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> int:
    """Return the width below which a column would be cut within a word or a number."""
    cells = [str(row[column]) for row in rows]
    whole = max(map(cell_len, cells), default=0)
    longest_word = max((cell_len(word) for cell in [head[column], *cells] for word in cell.split()), default=0)
    if column == 0:
        return min(max(whole, longest_word), int(_FIRST * width))
    return min(max(longest_word, min(whole, _WORDS)), int(_FIRST * width))
