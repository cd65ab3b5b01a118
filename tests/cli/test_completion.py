# SPDX-License-Identifier: Apache-2.0
"""What TAB offers in a real bash."""

import shutil
import subprocess
from pathlib import Path

import pytest

from neurodyn.cli.main import VERBS, every_verb, run

OFFERED = {
    "neurodyn tr": {"train"},
    "neurodyn policy ": {*VERBS["policy"].call, "-h", "--help"},  # pyright: ignore[reportGeneralTypeIssues]
    "neurodyn policy train --dyn": {"--dynamics"},
    "neurodyn train --res": {"--resume"},
    "neurodyn evaluate RUN --split v": {"validation"},
}


def script_of(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["completion", shell]) == 0
    return capsys.readouterr().out


def test_bash_completes_verbs_flags_and_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    asked = "\n".join(f'at "{line}"' for line in OFFERED)
    (tmp_path / "script").write_text(f"""{script_of("bash", capsys)}
at() {{
    COMP_WORDS=($1); [[ $1 == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)) COMPREPLY=()
    _tyro_neurodyn; echo "${{COMPREPLY[*]}}"
}}
{asked}
""")
    done = subprocess.run(["bash", "--norc", "script"], capture_output=True, text=True, cwd=tmp_path, check=True)
    for line, offered in zip(OFFERED, done.stdout.splitlines(), strict=True):
        assert set(offered.split()) == OFFERED[line], line


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_with_all_verbs(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    script = script_of(shell, capsys)
    assert all(repr(name.split()[-1]) in script for name in every_verb())
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    (tmp_path / "script").write_text(script)
    subprocess.run([shell, "-n", "script"], cwd=tmp_path, check=True)
