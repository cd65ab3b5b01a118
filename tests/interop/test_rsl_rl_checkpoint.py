# SPDX-License-Identifier: Apache-2.0
"""Policies as checkpoints of rsl_rl: its own OnPolicyRunner loads them strictly, and acts as ours; and back again."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

pytest.importorskip("rsl_rl")

from rsl_rl.env import VecEnv
from rsl_rl.models import MLPModel, RNNModel
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

from neurodyn.cli.main import run
from neurodyn.core.errors import InputError
from neurodyn.interop import import_policy
from neurodyn.interop.c_code.policies import policy_unit
from neurodyn.interop.onnx import export_policy
from neurodyn.interop.policies import export_rsl_rl
from neurodyn.policy.artifact import PolicyNetwork, load_policy, policy_config, save_policy
from neurodyn.policy.settings import NetworkSettings
from neurodyn.tasks import load
from tests.interop.c_programs import compiled

STATE = "actor_state_dict"


class Other(VecEnv):
    """An environment of somebody else with the sizes of a policy."""

    def __init__(self, observations: int, actions: int) -> None:
        self.num_envs, self.num_actions, self.max_episode_length, self.device = 2, actions, 10, "cpu"
        self.episode_length_buf, self.cfg = torch.zeros(2, dtype=torch.long), {}
        self.seen = TensorDict({"policy": torch.zeros(2, observations)}, batch_size=[2])

    def get_observations(self) -> TensorDict:
        return self.seen

    def step(self, actions: torch.Tensor):
        return self.seen, torch.zeros(2), torch.zeros(2, dtype=torch.long), {}


def loaded(checkpoint: Path, observations: int, actions: int) -> OnPolicyRunner:
    """Load a checkpoint as play.py does: all that it holds, strictly."""
    settings = yaml.safe_load((checkpoint.parent / "params/agent.yaml").read_text())
    settings.pop("clip_actions")  # which Isaac Lab's wrapper reads
    runner = OnPolicyRunner(Other(observations, actions), settings, None, "cpu")
    runner.load(str(checkpoint))
    return runner


@pytest.mark.parametrize("name", ["anymal-velocity", "cartpole"])
def test_rsl_rl_loads_a_policy_and_acts_as_it(name: str, tmp_path: Path):
    config, network = load_policy(f"pretrained-policy:{name}")
    checkpoint = export_rsl_rl(f"pretrained-policy:{name}", tmp_path / "out")
    runner = loaded(checkpoint, len(config.observations), len(config.actions))
    seen = network.mean + network.deviation * torch.randn(64, len(config.observations))
    act = runner.get_inference_policy()
    theirs = act(TensorDict({"policy": seen}, batch_size=[64])).clamp(-config.limit, config.limit)
    torch.testing.assert_close(theirs, network(seen), atol=2e-6, rtol=2e-5)
    runner.alg.optimizer.step()  # a training goes on from it


def test_a_checkpoint_of_rsl_rl_becomes_the_same_policy(tmp_path: Path):
    name = "pretrained-policy:anymal-velocity"
    config, network = load_policy(name)
    checkpoint = export_rsl_rl(name, tmp_path / "out")
    again = import_policy(checkpoint, config.task, tmp_path / "again", activation="elu")
    assert (again.network.hidden, again.clip) == (config.network.hidden, None)
    seen = torch.randn(16, len(config.observations))
    torch.testing.assert_close(load_policy(tmp_path / "again")[1](seen), network(seen), atol=1e-6, rtol=1e-5)


def test_the_verb_says_where_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out"
    assert run(["export", "pretrained-policy:cartpole", "--to", "rsl-rl", "--out", str(out)]) == 0
    assert str(out / "model_0.pt") in capsys.readouterr().out
    assert run(["export", "pretrained-policy:cartpole", "--to", "rsl-rl", "--out", str(out)]) == 2
    assert "already exists" in capsys.readouterr().err


def test_what_cuts_off_its_observations_is_refused(tmp_path: Path):
    config, network = load_policy("pretrained-policy:cartpole")
    clipped = type(config)(**{name: getattr(config, name) for name in config.__struct_fields__} | {"clip": 5.0})
    save_policy(tmp_path / "policy", clipped, network)
    with pytest.raises(InputError, match="clips normalised observations at 5, which rsl_rl does not"):
        export_rsl_rl(tmp_path / "policy", tmp_path / "out")


def recurrent_layer(width: int, gates: int = 3) -> dict[str, torch.Tensor]:
    shapes = {"weight_ih_l0": (gates * width, 4), "weight_hh_l0": (gates * width, width)}
    shapes |= dict.fromkeys(("bias_ih_l0", "bias_hh_l0"), (gates * width,))
    return {f"rnn.rnn.{name}": torch.zeros(shape) for name, shape in shapes.items()}


ACTOR = """#include <stdio.h>
#include "unit.h"
int main(void) {
  unit_state state; double x, again; unit_real seen[4], action[1], scaled[1];
  unit_reset(&state);
  while (fread(&again, sizeof again, 1, stdin) == 1) {
    if (again > 0.5) unit_reset(&state);
    for (int i = 0; i < 4; ++i) { if (fread(&x, sizeof x, 1, stdin) != 1) return 1; seen[i] = (unit_real)x; }
    unit_act(&state, seen, action, scaled);
    x = action[0]; fwrite(&x, sizeof x, 1, stdout);
  }
  return 0;
}
"""


def in_torch(policy: Path, rows: torch.Tensor, begins: torch.Tensor) -> np.ndarray:
    _, network = load_policy(policy)
    actions, hidden = [], None
    for row, again in zip(rows, begins.tolist(), strict=True):
        action, hidden = network.remember(row[None], None if again else hidden)
        actions.append(action)
    return torch.cat(actions).detach().numpy()


def in_onnx(policy: Path, rows: torch.Tensor, begins: torch.Tensor) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime")
    export_policy(policy, policy / "policy.onnx")
    session = runtime.InferenceSession(policy / "policy.onnx")
    empty = {one.name: np.zeros((1, one.shape[1]), np.float32) for one in session.get_inputs()[1:]}
    actions, memory = [], empty
    for row, again in zip(rows, begins.tolist(), strict=True):
        given = {"observation": row[None].numpy(), **(empty if again else memory)}
        action, _, *after = session.run(None, given)
        memory = dict(zip(empty, after, strict=True))
        actions.append(action)
    return np.concatenate(actions)


def in_c(policy: Path, rows: torch.Tensor, begins: torch.Tensor) -> np.ndarray:
    program = compiled(policy_unit(str(policy)), ACTOR, policy)
    given = torch.cat([begins[:, None].double(), rows.double()], 1).numpy()
    found = subprocess.run([program], input=given.tobytes(), capture_output=True, check=True)
    return np.frombuffer(found.stdout).reshape(-1, 1)


@pytest.mark.parametrize("act", [in_torch, in_onnx, in_c])
@pytest.mark.parametrize(("kind", "width"), [("gru", 8), ("gru", 4), ("lstm", 4)])
def test_a_recurrent_actor_of_rsl_rl_acts_as_it_does_there(kind: str, width: int, act, tmp_path: Path):
    torch.manual_seed(3)
    seen = TensorDict({"policy": torch.zeros(2, 4)}, batch_size=[2])
    spread = "HeteroscedasticGaussianDistribution" if width == 4 else "GaussianDistribution"
    actor = RNNModel(
        seen, {"actor": ["policy"]}, "actor", 1, hidden_dims=[16, 8], obs_normalization=True, rnn_type=kind,
        rnn_hidden_dim=width, distribution_cfg={"class_name": spread},
    ).eval()  # fmt: skip
    torch.save({"actor_state_dict": actor.state_dict()}, tmp_path / "actor.pt")
    import_policy(tmp_path / "actor.pt", "cartpole-swingup", tmp_path / "policy")
    rows, begins, theirs = 5 * torch.randn(1000, 4), torch.rand(1000) < 0.02, []
    for row, again in zip(rows, begins.tolist(), strict=True):
        if again:
            actor.reset(torch.ones(1, dtype=torch.bool))
        theirs.append(actor(TensorDict({"policy": row[None]}, batch_size=[1])).clamp(-1.0, 1.0))
    wanted = torch.cat(theirs).detach().numpy()
    np.testing.assert_allclose(act(tmp_path / "policy", rows, begins), wanted, atol=1e-5, rtol=1e-4)
    assert wanted.std() > 0.01


@pytest.mark.parametrize("normalised", [True, False])
def test_an_actor_that_also_gives_its_deviation_is_read_without_it(normalised: bool, tmp_path: Path):
    seen = TensorDict({"policy": torch.zeros(2, 4)}, batch_size=[2])
    spread = {"class_name": "HeteroscedasticGaussianDistribution"}
    options = {"hidden_dims": [16], "obs_normalization": normalised, "distribution_cfg": spread}
    actor = MLPModel(seen, {"actor": ["policy"]}, "actor", 1, **options).eval()
    torch.save({"actor_state_dict": actor.state_dict()}, tmp_path / "actor.pt")
    import_policy(tmp_path / "actor.pt", "cartpole-swingup", tmp_path / "policy")
    _, network = load_policy(tmp_path / "policy")
    rows = torch.randn(32, 4)
    theirs = actor(TensorDict({"policy": rows}, batch_size=[32]))
    torch.testing.assert_close(network(rows), theirs.clamp(-1.0, 1.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda saved: saved[STATE].pop("mlp.2.bias"), r"holds no 'mlp.2.bias'"),
        (lambda saved: saved[STATE].update({"obs_normalizer._std": torch.ones(1, 3)}), "valid: 4"),
        (lambda saved: saved[STATE].clear(), r"holds no 'mlp.0.weight'"),
        (lambda saved: saved[STATE].update({"cnn.0.weight": torch.ones(2, 2)}), "holds cnn.0.weight, which"),
        (lambda saved: saved[STATE].update(recurrent_layer(5)), "mlp.0 does not take what"),
        (lambda saved: saved[STATE].update(recurrent_layer(2, gates=2)), "4 rows for a state of 2; valid: a"),
        (lambda saved: saved.update(infos=PolicyNetwork.forward), "nothing is unpickled"),
    ],
)
def test_broken_checkpoints_are_refused_in_one_line(change, message: str, tmp_path: Path):
    checkpoint = export_rsl_rl("pretrained-policy:cartpole", tmp_path / "out")
    saved = torch.load(checkpoint, weights_only=True)
    change(saved)
    torch.save(saved, tmp_path / "broken.pt")
    with pytest.raises(InputError, match=message) as refused:
        import_policy(tmp_path / "broken.pt", "cartpole-swingup", tmp_path / "policy")
    assert "\n" not in str(refused.value)


def test_a_policy_of_another_task_is_refused_with_the_tasks_that_fit(tmp_path: Path):
    checkpoint = export_rsl_rl("pretrained-policy:cartpole", tmp_path / "out")
    with pytest.raises(InputError, match=r"takes 4 observations and gives 1 actions.*valid: .*cartpole-swingup"):
        import_policy(checkpoint, "anymal-velocity", tmp_path / "policy")
    assert not (tmp_path / "policy").exists()


@pytest.mark.parametrize(
    ("name", "content"), [("p.pt", b"junk"), ("p.npz", b"junk"), ("p.npz", b""), ("p.txt", b""), ("p.pth", None)]
)
def test_files_that_are_no_checkpoints_are_refused(name: str, content: bytes | None, tmp_path: Path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name) as refused:
        import_policy(tmp_path / name, "ant-run@nerd", tmp_path / "policy")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("view", "sees"), [("state", 50), ("sensors", 47)])
def test_a_walking_policy_that_sees_the_state_or_sensors_is_found_by_its_size(view: str, sees: int, tmp_path: Path):
    config = policy_config(load("velocity@go2", view), NetworkSettings(hidden=(8,)))  # pyright: ignore[reportArgumentType]
    save_policy(tmp_path / "policy", config, config.build())
    checkpoint = export_rsl_rl(tmp_path / "policy", tmp_path / "out")
    again = import_policy(checkpoint, "velocity@go2", tmp_path / "again", activation="elu")
    assert (again.observe, len(again.observations)) == (view, sees)
