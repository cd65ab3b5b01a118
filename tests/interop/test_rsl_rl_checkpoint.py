# SPDX-License-Identifier: Apache-2.0
"""Policies as checkpoints of rsl_rl: its own OnPolicyRunner loads them strictly, and acts as ours; and back again."""

from pathlib import Path

import pytest
import torch
import yaml

pytest.importorskip("rsl_rl")

from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

from neurodyn.cli.main import run
from neurodyn.core.errors import InputError
from neurodyn.interop import import_policy
from neurodyn.interop.policies import export_rsl_rl
from neurodyn.policy.artifact import PolicyNetwork, load_policy, save_policy


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
    assert "is there already" in capsys.readouterr().err


def test_what_cuts_off_its_observations_is_refused(tmp_path: Path):
    config, network = load_policy("pretrained-policy:cartpole")
    clipped = type(config)(**{name: getattr(config, name) for name in config.__struct_fields__} | {"clip": 5.0})
    save_policy(tmp_path / "policy", clipped, network)
    with pytest.raises(InputError, match="cuts off normalised observations at 5, which rsl_rl does not"):
        export_rsl_rl(tmp_path / "policy", tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda saved: saved["actor_state_dict"].pop("mlp.2.bias"), r"holds no 'mlp.2.bias'"),
        (lambda saved: saved["actor_state_dict"].update({"obs_normalizer._std": torch.ones(1, 3)}), "valid: 4"),
        (lambda saved: saved["actor_state_dict"].clear(), r"holds no 'mlp.0.weight'"),
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


@pytest.mark.parametrize(("name", "content"), [("p.pt", b"junk"), ("p.npz", b"junk"), ("p.txt", b""), ("p.pth", None)])
def test_files_that_are_no_checkpoints_are_refused(name: str, content: bytes | None, tmp_path: Path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name) as refused:
        import_policy(tmp_path / name, "ant-run@nerd", tmp_path / "policy")
    assert "\n" not in str(refused.value)
