# SPDX-License-Identifier: Apache-2.0
"""Policies are trained in models of logs where there is no simulator."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

_SCRIPT = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"newton", "mujoco", "mujoco_warp"}:
            raise ImportError(f"{name} is not to be had")

sys.meta_path.insert(0, Blocked())
from pathlib import Path

import pytest
import torch
from neurodyn.data.header import StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.nets.ensemble import EnsembleConfig
from neurodyn.policy.episodes.evaluation import evaluate as evaluate_policy
from neurodyn.control.resolve import ResolvedDynamics, open_reference
from neurodyn.policy.settings import NetworkSettings, PolicySettings
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.tasks import load

out = Path(sys.argv[1])
task = load("cartpole-swingup")
spec = task.declaration().spec
with StoreWriter(out / "log.h5", StoreHeader(source="log", spec=spec)) as writer:
    writer.append(torch.rand(4, 21, 2).numpy(), torch.rand(4, 21, 2).numpy(), torch.rand(4, 20, 1).numpy())
model = WorldModel(spec.with_context(8), EnsembleConfig(kind="gru", members=2)).requires_grad_(False)
model.fitted.fill_(True)
where = ResolvedDynamics("model", model, Store.open(out / "log.h5"))
settings = PolicySettings(
    worlds=8, horizon=8, iterations=2, evaluations=1, evaluation_worlds=4, penalty=0.5,
    network=NetworkSettings(hidden=(8,)),
)
assert open_reference(task, where, None) is None, "a reference without a simulator"
end = train_policy(task, where, out / "policy", settings)
assert end.step == 2
assert not {"newton", "mujoco", "mujoco_warp"} & set(sys.modules)
print("trained")
"""


@pytest.mark.slow
def test_a_policy_is_trained_in_a_world_model_without_newton(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("trained")


def test_no_file_of_the_room_imports_newton():
    for path in (ROOT / "src" / "neurodyn" / "policy").glob("*.py"):
        for line in path.read_text().splitlines():
            words = line.split()
            assert not (words[:1] in (["import"], ["from"]) and words[1].split(".")[0] in {"newton", "mujoco"}), path
