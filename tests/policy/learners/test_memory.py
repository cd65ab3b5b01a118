# SPDX-License-Identifier: Apache-2.0
"""Policies with a history, a recurrent memory, or a sight of what was drawn for the robot."""

import numpy as np
import pytest
import torch

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.interop.onnx import export_policy
from neurodyn.interop.policies import export_rsl_rl
from neurodyn.nets.onnx_file import require_onnx
from neurodyn.policy.artifact import ActingPolicy, acting, load_policy, policy_config, save_policy
from neurodyn.policy.episodes.evaluation import evaluate as evaluate_policy
from neurodyn.policy.episodes.logs import log_policies
from neurodyn.policy.episodes.play import record_policy
from neurodyn.policy.settings import NetworkSettings
from neurodyn.tasks import load
from tests.policy.small_worlds import train_briefly

TASK = "cartpole-swingup"


def trained(out, iterations=3, **more):
    return train_briefly(out, evaluations=iterations // 2, iterations=iterations, worlds=16, **more)


def written(folder, **network):
    """Write an untrained policy with weights that tell inputs apart."""
    torch.manual_seed(0)
    config = policy_config(load(TASK), NetworkSettings(hidden=(8,), **network))
    built = config.build()
    built.mean.normal_()
    save_policy(folder, config, built)
    return folder


def test_a_history_is_what_the_environment_shows():
    network = policy_config(load(TASK), NetworkSettings(hidden=(8,), history=3, with_actions=True)).build()
    act, seen = ActingPolicy(network), torch.randn(4, 2, 4)
    first = act(seen[0])
    frame = torch.cat([seen[0], torch.zeros(2, 1)], 1)
    torch.testing.assert_close(first, network(frame.repeat(1, 3)))
    second = act(seen[1])
    newer = torch.cat([seen[1], first], 1)
    torch.testing.assert_close(second, network(torch.cat([newer, frame, frame], 1)))
    act.restart(torch.tensor([True, False]))
    third = act(seen[2])
    torch.testing.assert_close(third[:1], network(torch.cat([seen[2, :1], torch.zeros(1, 1)], 1).repeat(1, 3)))
    newest = torch.cat([seen[2, 1:], second[1:]], 1)
    torch.testing.assert_close(third[1:], network(torch.cat([newest, newer[1:], frame[1:]], 1)))


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_recurrent_policy_forgets_where_episodes_end(kind):
    network = policy_config(load(TASK), NetworkSettings(hidden=(8,), recurrent=kind, memory=6)).build()
    act, seen = ActingPolicy(network), torch.randn(3, 2, 4)
    act(seen[0])
    act.restart(torch.tensor([True, False]))
    second = act(seen[1])
    torch.testing.assert_close(second[:1], ActingPolicy(network)(seen[1, :1]))
    assert (second[1:] - ActingPolicy(network)(seen[1, 1:])).abs().max() > 1e-4


def test_a_plain_policy_is_called_directly():
    network = policy_config(load(TASK), NetworkSettings(hidden=(8,))).build()
    assert acting(network) is network


@pytest.mark.parametrize("more", [{"history": 3}, {"recurrent": "gru"}, {"recurrent": "lstm"}], ids=str)
def test_trainings_continue_bitwise_and_policies_are_used(tmp_path, more):
    whole = trained(tmp_path / "whole", 4, **more)
    part = trained(tmp_path / "part", 2, **more)
    trained(part, 4, resume=True, **more)
    one, other = (
        artifacts.read_tree(run / "state", "training")["learner"]["actor_state_dict"] for run in (whole, part)
    )
    assert all(torch.equal(one[name], other[name]) for name in one)
    _, network = load_policy(whole)
    found = evaluate_policy(str(whole), ("hybrid",), episodes=8)
    assert found.results[0].length > 0
    if "history" in more:
        assert len(network.mean) == 12


@pytest.mark.parametrize(
    ("network", "inputs"), [({"history": 2}, 1), ({"recurrent": "gru"}, 2), ({"recurrent": "lstm"}, 3)], ids=str
)
def test_exports_act_as_the_policy_does(tmp_path, network, inputs):
    folder = written(tmp_path / "policy", memory=5, **network)
    require_onnx()
    import onnxruntime

    assert export_policy(folder, tmp_path / "policy.onnx") < 1e-5
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"))
    names = [one.name for one in session.get_inputs()]
    assert len(names) == inputs
    act, seen = ActingPolicy(load_policy(folder)[1]), torch.randn(3, 2, 4)
    memory = [np.zeros((2, 5), np.float32) for _ in names[1:]]
    older = seen[0]
    for frame in seen:
        shown = torch.cat([frame, older], 1) if "history" in network else frame
        older = frame
        action, _, *memory = session.run(None, dict(zip(names, [shown.numpy(), *memory], strict=True)))
        np.testing.assert_allclose(action, act(frame).detach(), atol=1e-5)


def test_it_is_played_and_logged(tmp_path):
    folder = written(tmp_path / "policy", recurrent="gru", memory=5)
    assert record_policy(str(folder), "hybrid", beside="hybrid", seconds=0.5).seconds > 0
    found = log_policies([str(folder), "random"], tmp_path / "log.h5", transitions=200, worlds=4, dynamics="hybrid")
    assert found.transitions >= 200


def test_what_does_not_fit_is_one_line(tmp_path):
    folder = written(tmp_path / "policy", history=2)
    with pytest.raises(InputError, match=r"has a memory, or observes randomised quantities"):
        export_rsl_rl(folder, tmp_path / "out")
    with pytest.raises(InputError, match=r"recurrent and privileged are for ppo"):
        trained(tmp_path / "a", algorithm="shac", recurrent="gru")
    with pytest.raises(InputError, match=r"privileged: nothing is drawn"):
        trained(tmp_path / "b", privileged=True)
    teacher = trained(tmp_path / "teacher", 1, privileged=True, randomise=("hinge.mass=x.5:2",))
    assert load_policy(teacher)[0].privileged == ("hinge.mass",)
    with pytest.raises(InputError, match=r"observes randomised quantities: hinge\.mass; valid: the --randomise"):
        evaluate_policy(str(teacher), ("hybrid",), episodes=2)
    assert evaluate_policy(str(teacher), ("hybrid",), episodes=2, randomise=("hinge.mass=1:2",)).results
    for use in (lambda: export_policy(teacher, tmp_path / "x.onnx"), lambda: record_policy(str(teacher), "hybrid")):
        with pytest.raises(InputError, match="observes the randomised quantities, which are not known here"):
            use()
