# SPDX-License-Identifier: Apache-2.0
"""Policies that are trained once more; the code of a task is not run because a folder names it."""

from pathlib import Path

import msgspec
import pytest
import yaml

from neurodyn.control.resolve import open_dynamics
from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.learn.manifest import MANIFEST, read_manifest
from neurodyn.learn.reproduction import reproduce
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.settings import NetworkSettings, PolicySettings
from neurodyn.tasks import load

TINY = PolicySettings(
    worlds=4, horizon=4, iterations=2, evaluations=1, evaluation_worlds=2, minibatches=1, epochs=1, frames=8,
    network=NetworkSettings(hidden=(4,)),
)  # fmt: skip


@pytest.fixture
def made(tmp_path: Path) -> Path:
    task = load("cartpole-swingup")
    train_policy(task, open_dynamics(task, "hybrid"), tmp_path / "policy", TINY)
    return tmp_path / "policy"


def test_a_policy_gets_the_same_bits(made: Path, tmp_path: Path):
    assert read_manifest(made).training == "policy train"
    found = reproduce(made, tmp_path / "again")
    assert found.same
    assert found.verdict.startswith("ok: ")


def test_no_code_runs_because_a_folder_names_it(made: Path, tmp_path: Path):
    ran, evil = tmp_path / "ran", tmp_path / "notes.py"
    evil.write_text(f"open({str(ran)!r}, 'w')\n")
    config = yaml.safe_load((made / "config.yaml").read_text()) | {"task": f"{evil}:X"}
    (made / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(InputError, match=r"give it by --task FILE\.py:CLASS"):
        reproduce(made, tmp_path / "again")
    loop = msgspec.structs.replace(read_manifest(made), training="policy online")
    artifacts.write_checksummed(made / MANIFEST, msgspec.to_builtins(loop))
    with pytest.raises(InputError, match=r"its manifest is of `policy online`, and its config\.yaml of `policy train`"):
        reproduce(made, tmp_path / "again")
    assert not ran.exists()
    assert not (tmp_path / "again").exists()
