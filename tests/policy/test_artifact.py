# SPDX-License-Identifier: Apache-2.0
"""Opening a policy runs no code of files that it names."""

from pathlib import Path

import pytest

from neurodyn.cli.main import run
from neurodyn.core import artifacts
from neurodyn.core.config import to_dict
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.policy.artifact import _difference, load_policy, policy_config, save_policy, task_of
from neurodyn.policy.settings import NetworkSettings
from neurodyn.tasks import load

_EVIL = """
from pathlib import Path
from neurodyn.tasks.swing_up import CartpoleSwingUp
Path(__file__).with_name("ran").touch()
class Swing(CartpoleSwingUp):
    pass
"""


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """Return the folder of a policy whose config.json names a file beside it."""
    config = policy_config(load("cartpole-swingup"), NetworkSettings(hidden=(4,)))
    folder = tmp_path / "policy"
    save_policy(folder, config, config.build())
    (folder / "notes.py").write_text(_EVIL)
    changed = to_dict(config) | {"task": f"{folder}/notes.py:Swing"}
    artifacts.write_json(folder / "config.json", changed)
    return folder


@pytest.mark.parametrize(
    "verb", [["export"], ["policy", "evaluate"], ["policy", "play"], ["policy", "log", "--out", "log.h5"]]
)
def test_no_verb_runs_code_that_a_policy_names(
    evil: Path, verb: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = run([*verb, str(evil)])
    assert not (evil / "ran").exists()
    if verb == ["export"]:  # needs the network alone
        assert code == 0
    else:
        assert code == 2
        assert "'Swing' in a file" in capsys.readouterr().err


def test_the_file_that_a_user_names_is_run(evil: Path, tmp_path: Path) -> None:
    config, _ = load_policy(evil)
    moved = tmp_path / "moved.py"
    moved.write_text(_EVIL)
    assert task_of(config, f"{moved}:Swing", "here").name == f"{moved}:Swing"
    assert (tmp_path / "ran").exists()
    assert not (evil / "ran").exists()
    with pytest.raises(MismatchError, match="its task is"):
        task_of(config, "cartpole-swingup", "here")
    with pytest.raises(InputError, match=r"--task FILE\.py:Swing"):
        task_of(config, None, "here")


def test_of_many_differing_columns_few_are_listed():
    theirs, ours = ([f"joint_position.{side}{n}" for n in range(30)] for side in "ab")
    said = _difference("observations", theirs, ours)
    assert said.startswith("observations lack joint_position.b0, joint_position.b1, joint_position.b10 ... (30) and ")
