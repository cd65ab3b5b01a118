# SPDX-License-Identifier: Apache-2.0
"""The commands of the README run one after another in a fresh folder, those that take long on less; its flags exist.

`python scripts/run_readme.py` runs them as they stand.
"""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SPEC = importlib.util.spec_from_file_location("run_readme", ROOT / "scripts" / "run_readme.py")
assert SPEC is not None
assert SPEC.loader is not None
run_readme = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(run_readme)
README = ROOT / "README.md"


def test_the_commands_run_in_a_fresh_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for extra in ("newton", "rsl_rl"):
        pytest.importorskip(extra)
    failed = run_readme.run_all(README, tmp_path, short=True)
    assert failed == 0, capsys.readouterr().out


def test_a_command_that_fails_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "page.md"
    page.write_text("```sh\npython -c 'raise SystemExit(3)'   # a comment\npython -c 'print(1)'\n```\n")
    assert run_readme.run_all(page, tmp_path, short=True) == 1
    assert "exit code 3" in capsys.readouterr().out


def test_every_rule_is_for_a_command_that_there_is_and_says_why():
    there = run_readme.commands(README)
    for begin, reason in run_readme.ELSEWHERE.items():
        assert any(command.startswith(begin) for command in there), begin
        assert reason
    for begin, (_, reason) in run_readme.SHORTER.items():
        assert any(command.startswith(begin) for command in there), begin
        assert reason
    for command in there:
        known = run_readme.rule(command, run_readme.ELSEWHERE) is not None
        assert known or command.startswith(("neurodyn ", "python ")), command
