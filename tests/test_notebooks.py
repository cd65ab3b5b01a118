# SPDX-License-Identifier: Apache-2.0
"""Every notebook runs from top to bottom, with fewer steps of its trainings, and is kept without outputs."""

import json
import shutil
from pathlib import Path

import pytest

from tests.test_public_api import deep

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))
NEEDS = {"first_hour": ["newton"], "my_logs": [], "policy_in_imagination": ["newton", "rsl_rl"]}
"""Packages beyond the extra `notebook`, by notebook."""
SHORTER = {"steps=80": "steps=8", "steps=100": "steps=8", "worlds=256, iterations=8": "worlds=32, iterations=2"}
"""Budgets of trainings, and those of a test."""


def cells(path: Path) -> list[dict]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def test_every_notebook_is_known():
    assert [path.stem for path in NOTEBOOKS] == sorted(NEEDS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs_and_import_what_is_public(path: Path):
    for cell in cells(path):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        assert deep("".join(cell["source"])) == set()


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path):
    reason = "notebooks are run with the extra `notebook`"
    nbclient, nbformat = (pytest.importorskip(name, reason=reason) for name in ("nbclient", "nbformat"))
    for package in ("ipykernel", *NEEDS[path.stem]):
        pytest.importorskip(package, reason=f"{path.name} needs {package}")
    shutil.copytree(ROOT / "examples/own_logs", tmp_path / "own_logs")
    place = tmp_path / "notebooks"
    place.mkdir()
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    shortened = 0
    for cell in notebook.cells:
        for long, short in SHORTER.items():
            shortened += long in cell.source
            cell.source = cell.source.replace(long, short)
    assert shortened == 1
    options = {"timeout": 1800, "kernel_name": "python3", "resources": {"metadata": {"path": str(place)}}}
    nbclient.NotebookClient(notebook, **options).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    shown = [output for cell in code for output in cell.outputs]
    assert not [output for output in shown if output.output_type == "error"]
    assert any("image/png" in output.get("data", {}) for output in shown), "no picture"
    bars = [output.data["text/plain"] for output in shown if "<progress" in output.get("data", {}).get("text/html", "")]
    assert [bar.split("  ")[0] for bar in bars] == ["training: 100%"]
