# SPDX-License-Identifier: Apache-2.0
"""One vocabulary: a class name means one thing, and docs/glossary.md says what and where."""

import ast
import importlib
import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/neurodyn"
ROOMS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
ENTRY = re.compile(r"^- \*\*(.+?)\*\*: \S.* \((`[^)]+`)\)$", re.MULTILINE)
OTHERS = {"actuator": "drive", "sensing": "sensor", "probe": "contact point", "teacher": "reference simulator"}
"""Words that the code has another term for."""


@lru_cache
def classes() -> dict[str, list[str]]:
    """Return the files of each module-level class, relative to the package."""
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    return found


def glossary() -> dict[str, list[str]]:
    """Return the files that the glossary names for each term."""
    text = (ROOT / "docs/glossary.md").read_text()
    return {
        name.strip(): re.findall("`([^`]+)`", files)
        for names, files in ENTRY.findall(text)
        for name in names.split(",")
    }


def test_no_two_classes_share_a_name():
    assert {name: files for name, files in classes().items() if len(files) > 1} == {}


def test_no_class_is_called_by_a_word_that_has_another_term():
    wrong = {name: term for name in classes() for word, term in OTHERS.items() if word in name.lower()}
    assert wrong == {}


def test_every_line_of_the_glossary_is_an_entry():
    text = (ROOT / "docs/glossary.md").read_text()
    assert len(ENTRY.findall(text)) == len(re.findall(r"^- ", text, re.MULTILINE)) > 50


def test_terms_of_the_glossary_are_classes_where_it_says():
    there = classes()
    assert {name: files for name, files in glossary().items() if not set(there.get(name, ["?"])) <= set(files)} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_public_classes_stand_in_the_glossary(room: str):
    module = importlib.import_module(f"neurodyn.{room}")
    assert (classes().keys() & set(module.__all__)) - glossary().keys() == set()


def test_the_glossary_holds_public_classes_alone():
    rooms = {name for room in ROOMS for name in importlib.import_module(f"neurodyn.{room}").__all__}
    assert glossary().keys() - rooms - set(importlib.import_module("neurodyn").__all__) == set()
