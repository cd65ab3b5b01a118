# SPDX-License-Identifier: Apache-2.0
"""Registries find what was added, import it late, and name what there is."""

import sys
from fractions import Fraction
from importlib.metadata import EntryPoint

import pytest

from neurodyn.core import registry
from neurodyn.core.errors import InputError
from neurodyn.core.registry import Later, Registry


@pytest.fixture
def shapes() -> Registry[object]:
    return Registry("shape", disc=1, **{"half-disc": Later(lambda: Fraction)})


def test_what_was_added_is_found_and_can_be_removed(shapes):
    shapes.add("square", 4)
    assert (shapes["disc"], shapes["square"], list(shapes), len(shapes)) == (1, 4, ["disc", "half-disc", "square"], 3)
    shapes.remove("square")
    assert "square" not in shapes


def test_an_entry_for_later_is_imported_when_it_is_first_asked_for(shapes):
    def load() -> object:
        raise ModuleNotFoundError("no_such_module")

    assert shapes["half-disc"] is Fraction
    shapes.add("gone", Later(load))
    assert "gone" in shapes
    with pytest.raises(ModuleNotFoundError):
        shapes["gone"]


def test_an_unknown_name_lists_the_valid_ones(shapes):
    with pytest.raises(InputError, match=r"unknown shape 'cube'; valid: disc, half-disc$"):
        shapes["cube"]


def test_a_name_is_taken_once(shapes):
    with pytest.raises(InputError, match="shape 'disc' is registered already"):
        shapes.add("disc", 2)
    shapes.add("disc", 2, replace=True)
    assert shapes["disc"] == 2


def test_a_decorator_adds_what_it_decorates(shapes):
    @shapes.register("line")
    def line() -> int:
        return 2

    assert shapes["line"] is line


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a plug-in module of a given text, for the time of a test."""

    def install(text: str) -> None:
        (tmp_path / "shapes_plugin.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        entry = EntryPoint(name="shapes", value="shapes_plugin", group=registry.PLUGINS)
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry])
        monkeypatch.setattr(registry, "_loaded", [])

    yield install
    sys.modules.pop("shapes_plugin", None)


def test_installed_packages_add_to_it(installed, shapes, monkeypatch):
    module = type(sys)("shapes_here")
    module.SHAPES = shapes  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "shapes_here", module)
    installed("from shapes_here import SHAPES\nassert 'cone' not in SHAPES\nSHAPES.add('cone', 3)\n")
    assert shapes["disc"] == 1  # needs no plug-in
    assert shapes["cone"] == 3
    assert "cone" in list(shapes)


def test_a_plug_in_that_cannot_be_imported_is_named_in_one_line(installed, shapes):
    installed("raise ValueError('broken\\nmore')")
    with pytest.raises(
        InputError, match=r"plug-in 'shapes' .* cannot be imported \(ValueError: broken more\)"
    ) as caught:
        list(shapes)
    assert "\n" not in str(caught.value)
