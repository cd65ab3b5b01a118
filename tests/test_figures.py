# SPDX-License-Identifier: Apache-2.0
"""The figures of docs/benchmarks.md that `make figures-check` measures again: marks are read, values are compared."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SPEC = importlib.util.spec_from_file_location("check_figures", ROOT / "scripts" / "check_figures.py")
assert SPEC is not None
assert SPEC.loader is not None
checks = importlib.util.module_from_spec(SPEC)
sys.modules["check_figures"] = checks
SPEC.loader.exec_module(checks)

PAGE = """
<!-- command cube -->
```sh
neurodyn identify cube --data tosses.npz \\
  --parameters gravity.z        # two words
neurodyn evaluate runs/cube
```

| gravity | -9.79<!--= cube.1 parameters/name=gravity.z/value .01 --> |
| starts | **1,499**<!--= cube rollouts 0% --> |
"""


def test_marks_are_read():
    gravity, starts = checks.read_figures(PAGE)
    assert (gravity.text, gravity.command, gravity.index) == ("-9.79", "cube", 0)
    assert gravity.slack == pytest.approx(0.015)  # .01, and half of the last digit
    assert (starts.value, starts.index, starts.slack) == (1499, -1, 0.5)


def test_commands_are_read():
    first, second = checks.read_commands(PAGE)["cube"]
    assert first == ["neurodyn", "identify", "cube", "--data", "tosses.npz", "--parameters", "gravity.z"]
    assert second == ["neurodyn", "evaluate", "runs/cube"]


def test_a_mark_that_cannot_be_read_is_an_error():
    with pytest.raises(checks.PageError, match="1 figures are marked"):
        checks.read_figures("fast<!--= cube rollouts 0% -->")


def test_a_path_picks_keys_and_items():
    result = {"parameters": [{"name": "mass", "value": 1.0}, {"name": "gravity.z", "value": -9.8}]}
    assert checks.lookup(result, "parameters/name=gravity.z/value") == -9.8
    for path in ("parameters/name=size/value", "parameters", "rollouts"):
        with pytest.raises(checks.PageError, match=path):
            checks.lookup(result, path)


@pytest.mark.parametrize(("measured", "code"), [(-9.78, 0), (-9.55, 2)])
def test_a_figure_that_is_off_ends_with_two(
    measured: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    (tmp_path / "tosses.npz").touch()
    found = [{"parameters": [{"name": "gravity.z", "value": measured}]}, {"rollouts": 1499}]
    monkeypatch.setattr(checks, "measure", lambda commands, folder: found)
    assert checks.main(["--page", str(page), "--data", str(tmp_path)]) == code
    printed = capsys.readouterr().out
    assert f"page -9.79, measured {measured}" in printed
    assert f"2 figures compared, {code // 2} off" in printed


def test_blocks_without_their_logs_are_skipped(tmp_path: Path, capsys):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert checks.main(["--page", str(page), "--data", str(tmp_path)]) == 0
    assert "tosses.npz not found" in capsys.readouterr().out


def test_the_page_can_be_checked():
    page = checks.PAGE.read_text()
    figures, commands = checks.read_figures(page), checks.read_commands(page)
    assert {figure.command for figure in figures} == set(commands)
