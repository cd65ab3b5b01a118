# SPDX-License-Identifier: Apache-2.0
"""Policies in the layout of rl_games, made here from random arrays: what they answer, and what is refused."""

import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from neurodyn import tasks
from neurodyn.cli.main import run
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.interop.policies import import_policy
from neurodyn.policy.artifact import load_policy, require_task
from tests.tasks.test_nerd import CASES, observed

HIDDEN = (16, 12, 8)


def arrays(observations: int, actions: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random arrays by the names of a checkpoint."""
    rng = np.random.default_rng(seed)
    widths = [observations, *HIDDEN]
    found: dict[str, np.ndarray] = {}
    for index, (below, above) in enumerate(pairwise(widths)):
        found[f"a2c_network.actor_mlp.{2 * index}.weight"] = rng.normal(size=(above, below)) / below**0.5
        found[f"a2c_network.actor_mlp.{2 * index}.bias"] = rng.normal(size=above) * 0.1
    for name, out in (("mu", actions), ("value", 1)):
        found[f"a2c_network.{name}.weight"] = rng.normal(size=(out, HIDDEN[-1]))
        found[f"a2c_network.{name}.bias"] = rng.normal(size=out) * 0.1
    found["a2c_network.sigma"] = np.zeros(actions)
    for name, size in (("running_mean_std", observations), ("value_mean_std", 1)):
        found[f"{name}.running_mean"] = rng.normal(size=size)
        found[f"{name}.running_var"] = rng.uniform(0.01, 2.0, size=size)
        found[f"{name}.count"] = np.array(1e6)
    return {name: value.astype(np.float64 if "mean_std" in name else np.float32) for name, value in found.items()}


def answer(made: dict[str, np.ndarray], observation: np.ndarray) -> np.ndarray:
    """Return the action of the published formula."""
    x = (observation - made["running_mean_std.running_mean"]) / np.sqrt(made["running_mean_std.running_var"] + 1e-5)
    x = np.clip(x, -5.0, 5.0)
    for index in range(0, 2 * len(HIDDEN), 2):
        x = made[f"a2c_network.actor_mlp.{index}.weight"] @ x + made[f"a2c_network.actor_mlp.{index}.bias"]
        x = np.where(x > 0, x, np.expm1(np.minimum(x, 0.0)))
    return np.clip(made["a2c_network.mu.weight"] @ x + made["a2c_network.mu.bias"], -1.0, 1.0)


def write(path: Path, made: dict[str, np.ndarray]) -> Path:
    tensors = {name: torch.from_numpy(value) for name, value in made.items()}
    if path.suffix == ".npz":
        np.savez(path, allow_pickle=False, **made)
    elif path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        best = {"model": tensors, "epoch": 3, "last_mean_rewards": np.float32(12.5), "env_state": None}
        torch.save(best, path)
    return path


def sizes(name: str) -> tuple[int, int]:
    task = tasks.load(name)
    return len(task.observations), len(task.actions)


@pytest.mark.parametrize("turn", CASES.values(), ids=CASES)
@pytest.mark.parametrize("name", ["ant-run@nerd", "ant-spin-track@nerd", "anymal-forward@nerd", "anymal-side@nerd"])
def test_actions_are_those_of_the_published_formula(name, turn, tmp_path):
    made = arrays(*sizes(name))
    import_policy(write(tmp_path / "p.pth", made), name, tmp_path / "policy")
    _, network = load_policy(tmp_path / "policy")
    wanted, quantities, _ = observed(name, turn)
    task = tasks.load(name)
    seen = task.observe(quantities, task.begin(quantities, torch.Generator())).float()
    if float(seen[0, 1:5].double() @ torch.tensor(wanted[1:5])) < 0:
        wanted[1:5] *= -1
    np.testing.assert_allclose(network(seen)[0].numpy(), answer(made, wanted), atol=1e-5)
    far = wanted * 1e3  # where every normalised observation is cut off
    np.testing.assert_allclose(network(torch.tensor(far).float()).numpy(), answer(made, far), atol=1e-5)


@pytest.mark.parametrize("suffix", [".pth", ".npz", ".safetensors"])
def test_every_form_of_the_arrays_is_read(suffix, tmp_path):
    made = arrays(*sizes("cartpole-swingup"))
    import_policy(write(tmp_path / f"p{suffix}", made), "cartpole-swingup", tmp_path / "policy", activation="elu")
    config, network = load_policy(tmp_path / "policy")
    seen = np.array([0.3, -1.0, 2.0, 0.5])
    np.testing.assert_allclose(network(torch.tensor(seen).float()).numpy(), answer(made, seen), atol=1e-5)
    assert (config.network.hidden, config.clip) == (HIDDEN, 5.0)


def test_a_policy_without_normalisation_sees_what_there_is(tmp_path):
    made = {name: value for name, value in arrays(4, 1).items() if "mean_std" not in name}
    import_policy(write(tmp_path / "p.npz", made), "cartpole-swingup", tmp_path / "policy")
    config, network = load_policy(tmp_path / "policy")
    plain = {"running_mean_std.running_mean": np.zeros(4), "running_mean_std.running_var": np.ones(4) - 1e-5}
    seen = np.array([0.3, -1.0, 2.0, 0.5])
    np.testing.assert_allclose(network(torch.tensor(seen).float()).numpy(), answer(made | plain, seen), atol=1e-5)
    assert config.clip is None


def test_a_policy_is_for_its_task_alone(tmp_path):
    import_policy(write(tmp_path / "p.npz", arrays(28, 8)), "ant-run@nerd", tmp_path / "policy")
    config, _ = load_policy(tmp_path / "policy")
    for name in ("ant-run", "ant-spin@nerd", "anymal-forward@nerd"):
        with pytest.raises(MismatchError, match="policy for another task"):
            require_task(config, tasks.load(name), "here")


class _Harm:
    def __reduce__(self):
        return (pickle.loads, (b"",))


def broken(name: str, change) -> dict[str, np.ndarray]:
    made = arrays(28, 8)
    made[name] = change(made[name]) if name in made else change(None)
    return made


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (arrays(29, 8), r"takes 29 observations and gives 8 actions, but task 'ant-run@nerd' has 28 and 8; valid: ant"),
        (arrays(28, 12), "gives 12 actions.*valid: no task"),
        (broken("a2c_network.mu.weight", lambda x: x[:, 1:]), "mu takes 7 numbers, but actor_mlp.4 gives 8"),
        (broken("a2c_network.mu.bias", lambda x: x[1:]), r"mu has shapes \[8, 8\] and \[7\]"),
        (broken("running_mean_std.running_var", lambda x: x[1:]), r"running_var has shape \[27\]; valid: \[28\]"),
        (broken("running_mean_std.running_var", lambda x: -x), "running_var has negative numbers"),
        (broken("a2c_network.actor_mlp.0.bias", lambda x: x * np.nan), "actor_mlp.0.bias has numbers that are not fin"),
        (broken("a2c_network.rnn.rnn.weight_ih_l0", lambda _: np.zeros(2)), "has a layer 'a2c_network.rnn.rnn.w"),
        ({"weights": np.zeros(3)}, "holds no 'a2c_network.mu.weight'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(made, message, tmp_path):
    with pytest.raises(InputError, match=message) as caught:
        import_policy(write(tmp_path / "p.npz", made), "ant-run@nerd", tmp_path / "policy")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "policy").exists()


def test_nothing_in_a_file_is_executed(tmp_path):
    torch.save({"model": arrays(28, 8), "hook": _Harm()}, tmp_path / "p.pth")
    with pytest.raises(InputError, match="save the arrays of its 'model' by name") as caught:
        import_policy(tmp_path / "p.pth", "ant-run@nerd", tmp_path / "policy")
    assert "\n" not in str(caught.value)
    np.savez(tmp_path / "p.npz", hook=np.array([_Harm()], dtype=object))
    with pytest.raises(InputError, match="cannot be read"):
        import_policy(tmp_path / "p.npz", "ant-run@nerd", tmp_path / "policy")


@pytest.mark.parametrize(("name", "content"), [("p.pth", b"junk"), ("p.npz", b"junk"), ("p.txt", b""), ("p.pt", None)])
def test_files_that_are_no_checkpoints_are_refused(name, content, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name) as caught:
        import_policy(tmp_path / name, "ant-run@nerd", tmp_path / "policy")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["ant-run@nerd", "anymal-side@nerd"])
def test_an_imported_policy_is_played_in_the_simulator(name, tmp_path, capsys):
    pytest.importorskip("newton")
    file, policy = write(tmp_path / "p.pth", arrays(*sizes(name))), tmp_path / "policy"
    assert run(["policy", "import", str(file), "--task", name, "--layout", "rl-games", "--out", str(policy)]) == 0
    assert f"policy for {name}" in capsys.readouterr().out
    flags = ["--seconds", "0.1", "--out", str(tmp_path / "play.gif")]
    assert run(["policy", "play", str(policy), *flags]) == 0
    assert (tmp_path / "play.gif").read_bytes()[:3] == b"GIF"
    assert run(["policy", "import", str(file), "--task", name, "--out", str(policy)]) == 2
    assert "give another --out" in capsys.readouterr().err
