# SPDX-License-Identifier: Apache-2.0
"""A lazy package imports a module when one of its names is used, and keeps names that modules are called by."""

import builtins
import compileall
import importlib
import sys
import threading
from pathlib import Path

import pytest

INIT = """
from neurodyn.core.registry import lazy

with lazy(__name__):
    from shelf import inner
    from shelf.box import box, lid as cover

__all__ = ["box", "cover", "inner"]
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


def test_no_source_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare/__init__.py").write_text(INIT.replace("shelf", "bare"))
    (tmp_path / "bare/box.py").write_text("def box(): return 2\nlid = 3\n")
    compileall.compile_dir(tmp_path / "bare", quiet=1, legacy=True)
    for source in (tmp_path / "bare").glob("*.py"):
        source.unlink()
    monkeypatch.syspath_prepend(tmp_path)
    from bare import box  # pyright: ignore[reportMissingImports]

    assert box() == 2
    assert sys.modules["bare"].__file__.endswith(".pyc")


@pytest.mark.parametrize("statement", ["import shut.box", "from . import box", "from shut.box import *", "1 / 0"])
def test_other_imports_and_errors_leave_pythons_import_as_it_was(
    statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "shut").mkdir()
    init = INIT.replace("shelf", "shut").replace("from shut import inner", statement)
    (tmp_path / "shut/__init__.py").write_text(init)
    monkeypatch.syspath_prepend(tmp_path)
    before = builtins.__import__
    with pytest.raises(ZeroDivisionError if "/" in statement else ImportError) as error:
        importlib.import_module("shut")
    assert builtins.__import__ is before
    assert "/" in statement or "valid: `from MODULE import NAME`" in str(error.value)


def test_what_other_threads_import_meanwhile_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where another lazy package is among it."""
    for name in ("slow", "quick"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "box.py").write_text("def box(): return 2\nlid = 3\n")
        (tmp_path / name / "inner.py").write_text("")
    quick = INIT.replace("shelf", "quick")
    (tmp_path / "quick/__init__.py").write_text(quick)
    slow, waits = quick.replace("quick", "slow"), "    import_of_the_other()\n    from slow import inner"
    (tmp_path / "slow/__init__.py").write_text(slow.replace("    from slow import inner", waits))
    (tmp_path / "plain.py").write_text("from json import dumps\nfrom string import digits\n")
    monkeypatch.syspath_prepend(tmp_path)
    found, others = {}, []

    def other() -> None:
        found["plain"] = importlib.import_module("plain").digits
        found["quick"] = importlib.import_module("quick").box()

    def import_of_the_other() -> None:
        others.append(threading.Thread(target=other))
        others[0].start()
        others[0].join(0.2)  # it waits to import a lazy package until this one is done

    monkeypatch.setattr(builtins, "import_of_the_other", import_of_the_other, raising=False)
    package, before = importlib.import_module("slow"), builtins.__import__
    others[0].join()
    assert found == {"plain": "0123456789", "quick": 2}
    assert package.box() == 2
    assert builtins.__import__ is before
    assert "_defer" not in repr(before)
