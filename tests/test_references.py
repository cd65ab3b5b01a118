# SPDX-License-Identifier: Apache-2.0
"""Docstrings and comments name modules, and names in them, that are there."""

import re
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src/neurodyn"
DOTTED = re.compile(r"`([a-z_]+(?:\.[A-Za-z_]+)+)`")


def is_there(reference: str) -> bool:
    """Return whether `room.folder.module.name` leads to a module, and the names behind it stand in that module."""
    place, parts = SOURCE, reference.split(".")
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if parts and (place / f"{parts[0]}.py").is_file():
        place /= f"{parts.pop(0)}.py"
    files = (place,) if place.is_file() else sorted(place.glob("__init__.py*"))  # names of rooms stand in the stub
    text = "".join(file.read_text() for file in files)
    return all(re.search(rf"\b{part}\b", text) for part in parts)


def test_references_to_modules_lead_somewhere():
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir()} | {"rigid"}  # a room of earlier versions
    wrong = [
        f"{path.relative_to(SOURCE)}:{number}: {reference}"
        for path in sorted(SOURCE.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for reference in DOTTED.findall(line)
        if reference.split(".")[0] in rooms and not is_there(reference)
    ]
    assert wrong == []


def test_references_that_lead_nowhere_are_seen():
    assert is_there("geometry.contact_features")
    assert is_there("control.planning.planner.PLANNERS")
    assert not is_there("geometry.contact_outputs")
    assert not is_there("control.planning.optimiser.NOTHING")
