# SPDX-License-Identifier: Apache-2.0
"""The picture of rooms in docs/architecture.md is that of the code."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parent.parent / "scripts/architecture.py"


def _script() -> Any:
    spec = spec_from_file_location("architecture", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    architecture = module_from_spec(spec)
    spec.loader.exec_module(architecture)
    return architecture


def test_the_page_shows_the_imports_between_rooms():
    architecture = _script()
    page = architecture.PAGE.read_text()
    assert page == architecture.page_with_picture(page), "run scripts/architecture.py"
    assert architecture.rows_of(["a", "b", "c"], {"a": {"c"}, "b": {"c"}, "c": set()}) == [["a", "b"], ["c"]]


def test_acting_imports_no_pages():
    architecture = _script()
    imports = architecture.imports_of_rooms(architecture.layers())
    assert "report" in imports["walking"]
    assert not [room for room in ("control", "tasks", "evaluate", "identify", "learn") if "report" in imports[room]]
