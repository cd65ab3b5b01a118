# SPDX-License-Identifier: Apache-2.0
"""Mistakes in robot assets (URDF, MJCF) and logs (CSV, npz)."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from _refusals import Mistake, misspelled


def _drawn_place(
    file: Path, draw: random.Random
) -> tuple[str, Callable[[str], re.Match[str]], Callable[[re.Match[str], str], None]]:
    """Return the text of a file, and functions that draw a place in it by a pattern, and that replace a place."""
    text = file.read_text()

    def one(pattern: str) -> re.Match[str]:
        return draw.choice(list(re.finditer(pattern, text, re.DOTALL)))

    def replace(match: re.Match[str], new: str) -> None:
        file.write_text(text[: match.start()] + new + text[match.end() :])

    return text, one, replace


def mistaken_urdf(file: Path, draw: random.Random, arguments: list[str]) -> Mistake:
    """Make a mistake in a URDF."""
    text, one, replace = _drawn_place(file, draw)
    kind = draw.randrange(11)
    if kind < 2:
        match = one(r'<(parent|child) link="(\w+)"/>')
        wrong = misspelled(match[2], draw)
        replace(match, f'<{match[1]} link="{wrong}"/>')
        return Mistake(f"{file.name}: {match[1]} {wrong}", arguments, (wrong,), match[2])
    if kind < 4:
        match = one(r'type="(\w+)"')
        wrong = misspelled(match[1], draw)
        replace(match, f'type="{wrong}"')
        return Mistake(f"{file.name}: type {wrong}", arguments, (file.name, wrong), match[1])
    if kind == 4:
        match = one(r"</(link|joint|inertial|robot)>")
        replace(match, "")
        return Mistake(f"{file.name}: no {match[0]}", arguments, (file.name, "line"))
    if kind == 5:
        match = one(r'<mass value="([\d.]+)"/>')
        value = draw.choice(("-1", "heavy", "nan", "inf", ""))
        replace(match, f'<mass value="{value}"/>')
        return Mistake(f"{file.name}: mass {value}", arguments, (file.name, "mass"))
    if kind == 6:
        match = one(r'<axis xyz="([^"]+)"/>')
        value = draw.choice(("0 1", "0 0 0", "y", "0 nan 0", "0,1,0"))
        replace(match, f'<axis xyz="{value}"/>')
        return Mistake(f"{file.name}: axis {value}", arguments, (file.name, "axis"))
    if kind == 7:
        match = one(r'<(link|joint) name="(\w+)"')
        other = draw.choice(
            [
                name
                for tag, name in re.findall(r'<(link|joint) name="(\w+)"', text)
                if tag == match[1] and name != match[2]
            ]
        )
        replace(match, f'<{match[1]} name="{other}"')
        return Mistake(f"{file.name}: two {match[1]}s {other}", arguments, (file.name, other))
    if kind == 8:
        match = one(r'<(inertia|origin|box|sphere|limit) (\w+)="([^"]+)"')
        value = draw.choice(("wide", "1 x 2", "1;2;3"))
        replace(match, f'<{match[1]} {match[2]}="{value}"')
        return Mistake(f"{file.name}: {match[1]} {value}", arguments, (file.name, match[1], value))
    if kind == 9:
        match = one(r"<(parent|child) [^>]*/>")
        replace(match, "")
        return Mistake(f"{file.name}: no {match[1]}", arguments, (file.name, match[1]))
    match = one(r"<robot[^>]*>")
    file.write_text(text.replace("robot", draw.choice(("machine", "html", "sdf"))))
    return Mistake(f"{file.name}: no robot", arguments, (file.name,))


def mistaken_mjcf(file: Path, draw: random.Random, arguments: list[str]) -> Mistake:
    """Make a mistake in MJCF."""
    text, one, replace = _drawn_place(file, draw)
    kind = draw.randrange(10)
    if kind < 2:
        match = one(r' (pos|axis|range|damping|armature|size|mass|fromto|contype|friction)="')
        wrong = misspelled(match[1], draw)
        replace(match, f' {wrong}="')
        return Mistake(f"{file.name}: attribute {wrong}", arguments, (file.name, wrong), match[1])
    if kind == 2:
        match = one(r"<(freejoint|option|worldbody|actuator|compiler)\b")
        wrong = misspelled(match[1], draw)
        file.write_text(re.sub(rf"(</?){match[1]}\b", rf"\1{wrong}", text))
        return Mistake(f"{file.name}: element {wrong}", arguments, (file.name, wrong), match[1])
    if kind == 3 and arguments[0] == "init":  # a declaration has its own drives
        match = one(r' joint="(\w+)"')
        wrong = misspelled(match[1], draw)
        replace(match, f' joint="{wrong}"')
        return Mistake(f"{file.name}: joint {wrong}", arguments, (file.name, wrong), match[1])
    if kind == 4:
        match = one(r'<(?:joint|geom|position)[^>]* class="(\w+)"')
        wrong = misspelled(match[1], draw)
        replace(match, match[0].replace(f'class="{match[1]}"', f'class="{wrong}"'))
        return Mistake(f"{file.name}: class {wrong}", arguments, (file.name, wrong), match[1])
    if kind == 5:
        match = one(r' type="(\w+)"')
        wrong = misspelled(match[1], draw)
        replace(match, f' type="{wrong}"')
        return Mistake(f"{file.name}: type {wrong}", arguments, (file.name, wrong), match[1])
    if kind == 6:
        match = one(r"</(body|worldbody|default|actuator)>")
        replace(match, "")
        return Mistake(f"{file.name}: no {match[0]}", arguments, (file.name,))
    if kind == 7:
        match = one(r' (pos|axis|size|mass|armature)="([^"]+)"')
        value = draw.choice(("x", "0 1 b", "1;2"))
        replace(match, f' {match[1]}="{value}"')
        return Mistake(f"{file.name}: {match[1]} {value}", arguments, (file.name, match[1]))
    if kind == 8:
        names = re.findall(r'<body name="(\w+)"', text)
        match = one(r'<body name="(\w+)"')
        other = draw.choice([name for name in names if name != match[1]])
        replace(match, f'<body name="{other}"')
        return Mistake(f"{file.name}: two bodies {other}", arguments, (file.name, other))
    match = one(r' mass="([\d.]+)"')
    replace(match, ' mass="-1"')
    return Mistake(f"{file.name}: mass -1", arguments, (file.name, "mass"))


def mistaken_csv(file: Path, draw: random.Random, arguments: list[str]) -> Mistake:
    """Make a mistake in a log with columns."""
    rows = [line.split(",") for line in file.read_text().splitlines()]
    row, column, kind = draw.randrange(2, len(rows) - 1), draw.randrange(4), draw.randrange(10)
    name, named, what, meant = rows[0][column], (file.name,), "", ""
    if kind < 2:
        rows[0][column] = meant = misspelled(name, draw)
        named, what = (name,), f"column {meant} for {name}"
    elif kind == 2:
        rows = [[cell for i, cell in enumerate(cells) if i != column] for cells in rows]
        named, what = (file.name, name), f"no column {name}"
    elif kind == 3:
        rows[row][column] = draw.choice(("n/a", "--", "1.2.3", "12,5", "1e", "#REF!"))
        named, what = (file.name, f"line {row + 1}"), f"{rows[row][column]} in {name}"
    elif kind == 4:
        rows[row] = rows[row][: max(1, column)]
        named, what = (file.name, f"line {row + 1}"), "a row cut short"
    elif kind == 5:
        rows[row][column] = draw.choice(("nan", "", "inf"))
        named, what = (file.name, name), f"a {rows[row][column] or 'gap'} in {name}"
    elif kind == 6:
        rows[row], rows[1] = rows[1], rows[row]
        what = "time that goes back"
    elif kind == 7:
        rows = rows[: draw.randrange(2)]
        what = "no rows"
    elif kind == 8:
        file.write_text("\n".join(";".join(cells) for cells in rows) + "\n")
        return Mistake("csv: semicolons", arguments, named)
    else:
        scale = draw.choice((1e-3, 1e3))
        for cells in rows[1:]:
            cells[0] = f"{float(cells[0]) * scale:.6f}"
        named, what = (file.name, "rate"), "another unit of time"
    file.write_text("\n".join(",".join(cells) for cells in rows) + "\n")
    return Mistake(f"csv: {what}", arguments, named, meant)


def mistaken_npz(file: Path, draw: random.Random, arguments: list[str]) -> Mistake:
    """Make a mistake in a log of arrays."""
    with np.load(file) as archive:
        arrays = dict(archive)
    name, kind = draw.choice(list(arrays)), draw.randrange(7)
    values, named, what, meant = arrays.pop(name), (file.name, name), "", ""
    if kind < 2:
        meant = misspelled(name, draw)
        arrays[meant] = values
        named, what = (name,), f"array {meant} for {name}"
    elif kind == 2:
        what = f"no array {name}"
    elif kind == 3:
        arrays[name] = values[: draw.randrange(1, 300)]
        named, what = (file.name, "shape"), f"{name} is short"
    elif kind == 4:
        arrays[name] = values[:, :1] if values.ndim == 2 else np.stack([values] * 2, 1)
        what = f"{name} has another shape"
    elif kind == 5:
        arrays[name] = np.array([str(value) for value in values.reshape(len(values), -1)[:, 0]]) + "x"
        what = f"{name} is text"
    else:
        arrays[name] = values.copy()
        arrays[name].reshape(-1)[draw.randrange(values.size)] = np.nan
        what = f"{name} has a gap"
    np.savez(file, allow_pickle=False, **arrays)
    return Mistake(f"npz: {what}", arguments, named, meant)
