# SPDX-License-Identifier: Apache-2.0
"""Pages that are made where the site is built: all verbs and flags, all figures with machine and command; the nav."""

import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

import yaml

from tests.cli.test_refusals import verbs

ROOT = Path(__file__).resolve().parent.parent


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("reference_pages", ROOT / "scripts" / "reference_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _pages() -> dict:
    return _script().PAGES


def test_every_verb_is_there_with_the_meaning_of_every_flag():
    parts = dict(re.findall(r"^## neurodyn (.*?)\n(.*?)(?=^## |\Z)", _pages()["commands"](), re.MULTILINE | re.DOTALL))
    for name, called in verbs():
        rows = [line for line in parts[name].splitlines() if line.startswith("|`")]
        assert len(rows) == len(inspect.signature(called).parameters), name
        assert all(re.fullmatch(r"\|`(--)?[\w-]+`\|.*\|.{8,}\|", row) for row in rows), name


def test_every_result_has_machine_and_command():
    text, results = _pages()["results"](), sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    parts = text.split("## ")[1:]
    assert len(parts) == len(results) > 10
    for part, path in zip(parts, results, strict=True):
        assert "thread" in part.splitlines()[2], path
        assert part.count("|`") >= 1, path
        if (ROOT / "benchmarks" / path.with_suffix(".py").name).is_file():
            assert f"python benchmarks/{path.stem}.py" in part


def test_pages_are_complete_in_a_clone():
    """Verbs, benchmarks and public names are those of the sources; the sentences beside them may be older."""
    rows = re.compile(r"^\|([^|]+)\|.*$", re.MULTILINE)
    overviews = _script().overviews()
    assert len(overviews) == 2 + len(list((ROOT / "docs" / "api").glob("*.md")))
    for page, text in overviews.items():
        assert rows.findall(page.read_text()) == rows.findall(text), "run python scripts/reference_pages.py --write"
    dynamics = overviews[ROOT / "docs" / "api" / "dynamics.md"]
    file = "[dynamics/batch.py](../../src/neurodyn/dynamics/batch.py)"
    assert f"|`State`|Generalised coordinates of a batch of worlds|{file}|" in dynamics
    assert not [line for line in dynamics.splitlines() if "||" in line], "a name without a docstring"


def test_the_site_has_every_page_once_and_few_of_each_kind():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]

    def pages(part: object) -> list[str]:
        if isinstance(part, str):
            return [part]
        return [page for one in (part.values() if isinstance(part, dict) else part) for page in pages(one)]  # type: ignore[union-attr]

    listed = pages(nav)
    there = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    assert sorted(listed) == there
    sections = {name: part for one in nav if isinstance(one, dict) for name, part in one.items()}
    assert list(sections) == ["Tutorials", "How to", "Explanation", "Results", "Reference"]
    assert len(sections["Tutorials"]) == 3
