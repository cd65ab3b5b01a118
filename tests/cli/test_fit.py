# SPDX-License-Identifier: Apache-2.0
"""Tables fit the terminal, and no number is cut."""

import io

import pytest

from neurodyn.cli.terminal import console
from neurodyn.cli.terminal.tables import print_table

HEAD = ("Parameter", "Value", "95 % interval", "Declared", "Unit", "Remark")
ROWS = [
    ("actuator.FL_hip_joint.static_friction", "0.01234", "0.0112 ... 0.0134", "0.01", "N m", "no interval"),
    ("base.mass", "12.1", "11.9 ... 12.3", "11.5", "kg", ""),
]


def shown(width: int, rows: list = ROWS) -> list[str]:
    out = io.StringIO()
    where = console.terminal(file=out)
    where.width = width
    print_table(where, HEAD, rows, "Parameters")
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_every_number_is_whole_and_every_line_fits(width: int):
    lines = shown(width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert all(cell in text for row in ROWS for cell in row[1:5])
    assert "…" not in text
    assert text.count("Parameters") == 1


def test_what_does_not_fit_goes_on_below_with_the_names_of_the_rows():
    assert sum(line.startswith("base.mass") for line in shown(200)) == 1
    assert sum(line.startswith("base.mass") for line in shown(80)) == 2


def test_very_long_names_wrap():
    long = "pretrained-policy:" + "a" * 100
    lines = shown(60, [(long, *ROWS[0][1:])])
    assert max(map(len, lines)) <= 60
    assert "".join(line.split()[0] for line in lines if "a" * 8 in line).startswith("pretrained-policy:")
