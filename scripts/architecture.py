# SPDX-License-Identifier: Apache-2.0
"""Draw the rooms of the package into docs/architecture.md, from their real imports.

    python scripts/architecture.py            # writes the page
    python scripts/architecture.py --check    # exit 1 if the page is out of date

The order of rooms is that of import-linter's layers in pyproject.toml; the imports are grimp's, those inside functions
included, those for types alone left out. A room stands one row above the highest room that it imports. An import that
follows from others is not drawn.
"""

import sys
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/architecture.md"
BEGIN, END = "<!-- rooms: written by scripts/architecture.py -->\n", "<!-- end of rooms -->\n"


def layers() -> list[str]:
    """Return the rooms from the highest to the lowest."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return next(contract["layers"] for contract in contracts if contract["type"] == "layers")


def imports_of_rooms(rooms: list[str]) -> dict[str, set[str]]:
    """Return the rooms that each room imports directly."""
    graph = grimp.build_graph("neurodyn", exclude_type_checking_imports=True, cache_dir=None)
    imports: dict[str, set[str]] = {room: set() for room in rooms}
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            a, b = (f"{module}.".split(".")[1] for module in (importer, imported))
            if a in imports and b in imports and a != b:
                imports[a].add(b)
    return imports


def rows_of(rooms: list[str], imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the rooms in rows, from the highest to the lowest: each one above all that it imports."""
    height: dict[str, int] = {}
    for room in reversed(rooms):
        height[room] = 1 + max((height[below] for below in imports[room]), default=-1)
    return [[room for room in rooms if height[room] == row] for row in range(max(height.values()), -1, -1)]


def picture() -> str:
    """Return the picture as a block of text."""
    rooms = layers()
    imports = imports_of_rooms(rooms)
    reached: dict[str, set[str]] = {}
    for room in reversed(rooms):
        reached[room] = imports[room].union(*(reached[below] for below in imports[room]))
    lines = []
    for row in rows_of(rooms, imports):
        for room in row:
            indirect = set().union(*(reached[below] for below in imports[room]))
            drawn = [below for below in rooms if below in imports[room] - indirect]
            lines.append(f"{room:<10}-> {', '.join(drawn)}" if drawn else room)
    return "```text\n" + "\n".join(lines) + "\n```\n"


def page_with_picture(page: str) -> str:
    """Return the page with its picture drawn anew."""
    head, rest = page.split(BEGIN)
    return head + BEGIN + picture() + END + rest.split(END)[1]


def main() -> int:
    """Write or check the page."""
    page = PAGE.read_text()
    drawn = page_with_picture(page)
    if "--check" in sys.argv[1:]:
        return int(page != drawn)
    PAGE.write_text(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
