# SPDX-License-Identifier: Apache-2.0
"""What TAB offers, in Python and in a real bash."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from neurodyn.cli.installation import candidates
from neurodyn.cli.main import VERBS, run
from tests import plant


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run and a policy."""
    for name, holds in (("runs/cartpole", "model/spec.json"), ("policies/swingup", "policy.safetensors")):
        path = tmp_path / name / holds
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tr", {"train"}),
        ("--v", {"--version"}),
        ("policy ev", {"evaluate"}),
        ("train cart", {"cartpole"}),
        ("train cartpole --da", {"--data"}),
        ("train cartpole --net ", {"gru", "mlp", "transformer"}),
        ("train cartpole --kind w", {"world-model"}),
        ("train cartpole --resume --res", set()),
        ("policy train cart", {"cartpole-swingup"}),
        ("policy train cartpole-swingup --dynamics h", {"hybrid"}),
        ("policy train cartpole-swingup --dynamics runs/", {"runs/cartpole"}),
        ("policy evaluate policies/", {"policies/swingup"}),
        ("policy play pretrained-policy:ant-r", {"pretrained-policy:ant-run", "pretrained-policy:ant-run-analytic"}),
        ("evaluate pretrained:cart", {"pretrained:cartpole"}),
        ("evaluate runs", {"runs/cartpole"}),
        ("evaluate runs/cartpole --split v", {"validation"}),
        ("control cartpole-swingup --planner il", {"ilqr"}),
        ("export runs/cartpole --to ne", {"newton"}),
        ("completion z", {"zsh"}),
        ("nothing ", set()),
        ("train cartpole --data ", set()),  # files, which the shell knows
    ],
)
def test_the_last_word_is_completed(line: str, offered: set[str], here: Path):
    assert set(candidates(VERBS, line.split(" "))) == offered


def test_all_verbs_are_offered_and_all_flags_of_one(here: Path):
    assert set(VERBS) <= set(candidates(VERBS, [""]))
    assert {"--data", "--out", "--members", "--resume", "--no-resume"} <= set(candidates(VERBS, ["train", "--"]))


def test_bash_completes_words_with_colons(here: Path, capsys: pytest.CaptureFixture[str]):
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    assert run(["completion", "bash"]) == 0
    (here / "completion.bash").write_text(capsys.readouterr().out)
    command = here / "bin/neurodyn"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m neurodyn.cli.main "$@"\n')
    command.chmod(0o755)
    script = """
source ./completion.bash
complete -p neurodyn
at() { COMP_LINE="$1" COMP_POINT=${#1}; COMPREPLY=(); _neurodyn; (IFS=,; echo "${COMPREPLY[*]}"); }
at "neurodyn tra"
at "neurodyn evaluate pretrained:car"
at "neurodyn policy train "
at "neurodyn evaluate pretrained:cartpole --spl"
"""
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, cwd=here, check=True,
        env={**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}",
             "PYTHONPATH": str(plant.repository() / "src")},
    )  # fmt: skip
    registered, verb, model, tasks, flag = done.stdout.splitlines()
    assert registered == "complete -o default -F _neurodyn neurodyn"
    assert (verb, model, flag) == ("train", "cartpole", "--split")
    assert {"ant-run", "cartpole-swingup"} <= set(tasks.split(","))


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_their_script(shell: str, here: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "neurodyn --complete" in script
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    (here / "script").write_text(script)
    subprocess.run([shell, "-n", "script"], cwd=here, check=True)
