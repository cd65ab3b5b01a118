# SPDX-License-Identifier: Apache-2.0
"""A lazy package imports a module when one of its names is used, and keeps names that modules are called by."""

import importlib
import sys
from pathlib import Path

import pytest

INIT = """
from typing import TYPE_CHECKING

from neurodyn.core.lazy import lazy

if TYPE_CHECKING:
    from shelf import inner
    from shelf.box import box, lid as cover

__all__ = ["box", "cover", "inner"]

lazy(__name__)
"""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "shelf/inner").mkdir(parents=True)
    (tmp_path / "shelf/__init__.py").write_text(INIT)
    (tmp_path / "shelf/inner/__init__.py").write_text("inside = 1")
    (tmp_path / "shelf/box.py").write_text("def box(): return 2\nlid = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("shelf")
    for name in [name for name in sys.modules if name.split(".")[0] == "shelf"]:
        del sys.modules[name]


def test_nothing_is_imported_before_it_is_used(shelf):
    assert "shelf.box" not in sys.modules
    assert shelf.cover == 3
    assert "shelf.box" in sys.modules
    assert "shelf.inner" not in sys.modules
    assert shelf.inner.inside == 1


@pytest.mark.parametrize("early", [False, True])
def test_a_function_is_not_hidden_by_its_module(shelf, early: bool):
    if early:
        assert shelf.box() == 2
    module = importlib.import_module("shelf.box")
    assert shelf.box() == 2
    assert module.lid == 3


def test_names_are_listed_and_others_refused(shelf):
    assert {"box", "cover", "inner"} <= set(dir(shelf))
    with pytest.raises(AttributeError, match="module 'shelf' has no attribute 'lid'; it has box, cover, inner"):
        _ = shelf.lid
