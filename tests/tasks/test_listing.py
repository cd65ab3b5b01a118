# SPDX-License-Identifier: Apache-2.0
"""Tasks of a user's own: found by file and class, trained, and found again from the saved policy."""

from pathlib import Path

import pytest

from neurodyn import tasks
from neurodyn.core.errors import InputError

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own_task" / "hold.py"


def test_a_task_is_called_by_its_full_path(monkeypatch):
    monkeypatch.chdir(EXAMPLE.parent)
    task = tasks.load("hold.py:Hold")
    assert task.name == f"{EXAMPLE}:Hold"
    assert tasks.load(task.name).observations == task.observations


def test_a_policy_finds_a_task_of_a_file_where_it_is_named(tmp_path, monkeypatch):
    pytest.importorskip("rsl_rl")
    pytest.importorskip("newton")
    from neurodyn.cli.main import run

    out = str(tmp_path / "policy")
    train = ["policy", "train", f"{EXAMPLE}:Hold", "--dynamics", "analytic", "--out", out]
    assert run([*train, "--iterations", "2", "--worlds", "16"]) == 0
    monkeypatch.chdir(tmp_path)
    from neurodyn.policy.episodes.evaluation import evaluate as evaluate_policy

    with pytest.raises(InputError, match="whose code runs only if you name it; give --task"):
        evaluate_policy(out, ("analytic",), episodes=4)
    result = evaluate_policy(out, ("analytic",), episodes=4, task=f"{EXAMPLE}:Hold")
    assert result.results[0].length <= 200


@pytest.mark.parametrize(
    ("text", "kind", "complaint"),
    [
        (None, "Hold", "no such file"),
        ("x = 1", "Hold", "has no task 'Hold'; valid"),
        ("import nothing_of_that_name", "Hold", "cannot be imported .ModuleNotFoundError"),
        ("from neurodyn.tasks import Task\nclass Half(Task):\n    robot = 'cartpole'", "Half", "cannot be made"),
        ("from neurodyn.tasks import Task\nclass Half(Task):\n    robot = 'cartpole'", "Hold", "valid: Half"),
    ],
)
def test_what_is_no_task_is_bad_input(tmp_path, text, kind, complaint):
    file = tmp_path / "mine.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=complaint):
        tasks.load(f"{file}:{kind}")
