# SPDX-License-Identifier: Apache-2.0
"""What is public can be imported, is documented, and is all that examples, pages and README need."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import neurodyn
from neurodyn.core.errors import InputError

ROOT = Path(__file__).resolve().parent.parent
ROOMS = [path.parent.name for path in sorted((ROOT / "src/neurodyn").glob("*/__init__.py"))]
PUBLIC = [room for room in ROOMS if room != "cli"]
NEEDS_NEWTON = {"neurodyn.solvers"}
PYTHON = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def public(package: str) -> dict[str, object]:
    module = importlib.import_module(package)
    return {name: getattr(module, name) for name in module.__all__}


def imported(source: str) -> set[str]:
    """Return the modules of the package that a script imports from, and what it reads from the package by dots."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] == "neurodyn"}


def deep(source: str) -> set[str]:
    return {name for name in imported(source) if name.count(".") > 1}


@pytest.mark.parametrize("package", ["neurodyn", *(f"neurodyn.{room}" for room in PUBLIC)])
def test_every_public_name_is_there_and_documented(package: str):
    if package in NEEDS_NEWTON:
        pytest.importorskip("newton")
    names = public(package)
    assert names
    for name, value in names.items():
        assert (value.__doc__ or "").strip(), f"{package}.{name} has no docstring"


@pytest.mark.parametrize("package", ["neurodyn", *(f"neurodyn.{room}" for room in PUBLIC)])
def test_a_name_that_is_not_public_is_refused_with_those_that_are(package: str):
    with pytest.raises(AttributeError, match="attribute nothing"):
        _ = importlib.import_module(package).nothing


def test_the_package_has_every_room_and_what_users_begin_with():
    assert {*PUBLIC, "load", "State", "Control", "Environment", "Window", "Step", "Trajectory"} <= set(neurodyn.__all__)
    assert neurodyn.InputError is InputError
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", neurodyn.__version__)


@pytest.mark.parametrize(
    "init", sorted((ROOT / "src/neurodyn").rglob("__init__.pyi")), ids=lambda path: path.parent.name
)
def test_no_module_has_the_name_of_a_public_function_of_its_package(init: Path):
    """Python binds a submodule to its package when it is imported, over whatever has its name there."""
    functions = {alias.name for node in ast.walk(ast.parse(init.read_text()))
                 if isinstance(node, ast.ImportFrom) and node.module for alias in node.names}  # fmt: skip
    assert functions & {path.stem for path in init.parent.iterdir()} == set()


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.py")), ids=lambda path: path.name)
def test_examples_import_what_is_public(path: Path):
    assert deep(path.read_text()) == set()


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.py")), ids=lambda path: path.name)
def test_scripts_of_the_pages_import_what_is_public(path: Path):
    assert deep(path.read_text()) == set()


@pytest.mark.parametrize(
    "path", [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"], ids=lambda path: path.stem
)
def test_pages_import_and_name_what_is_public(path: Path):
    for block in PYTHON.findall(path.read_text()):
        assert deep(block) == set()
        for dotted in re.findall(r"\bneurodyn\.(\w+(?:\.\w+)?)", block):
            room, _, name = dotted.partition(".")
            assert room in neurodyn.__all__
            if name and room in PUBLIC:
                assert name in importlib.import_module(f"neurodyn.{room}").__all__, f"{path.name}: neurodyn.{dotted}"
