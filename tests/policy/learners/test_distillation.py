# SPDX-License-Identifier: Apache-2.0
"""Students learn from teachers that see what is drawn for the robot: their actions, or the latent of their encoder."""

import msgspec
import pytest
import torch

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.learn.metrics import read_metrics
from neurodyn.policy.artifact import load_policy
from neurodyn.policy.episodes.evaluation import evaluate as evaluate_policy
from neurodyn.policy.learners.distillation import open_distillation
from neurodyn.policy.learners.training import open_training
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.requests import DistillPolicyRequest, TrainPolicyRequest
from tests.policy.small_worlds import seldom_judged, train_briefly

RANGES = ("hinge.mass=x.3:3", "actuator.slider.gain=.5:1.5")


def taught(out, **more):
    return train_briefly(out, randomise=RANGES, privileged=True, **more)


@pytest.fixture(scope="module")
def teachers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teachers")
    return {"plain": taught(folder / "plain"), "encoder": taught(folder / "encoder", latent=3)}


def student(teacher, out, iterations=3, worlds=32, **more):
    settings = seldom_judged(out, max(iterations // 3, 1))
    asked = {"iterations": iterations, "worlds": worlds, "settings": settings, **more}
    end = train_policy(open_distillation(DistillPolicyRequest(teacher, out, **asked)))
    assert end.step == iterations
    return out


def losses(folder):
    return [line["loss"]["behavior"] for line in read_metrics(folder) if "loss" in line]


@pytest.mark.parametrize("more", [{"history": 4}, {"recurrent": "gru"}, {"recurrent": "lstm"}], ids=str)
def test_a_student_learns_what_its_teacher_does_and_resumes_bitwise(tmp_path, teachers, more):
    whole = student(teachers["encoder"], tmp_path / "whole", 6, **more)
    part = student(teachers["encoder"], tmp_path / "part", 3, **more)
    student(teachers["encoder"], part, 6, resume=True, **more)
    one, other = (
        artifacts.read_tree(run / "state", "training")["learner"]["student_state_dict"] for run in (whole, part)
    )
    assert all(torch.equal(one[name], other[name]) for name in one)
    config, _ = load_policy(whole)
    assert not config.privileged
    assert not config.adapts
    found = losses(whole)
    assert found[-1] < 0.7 * found[0]
    assert evaluate_policy(str(whole), ("hybrid",), episodes=4, randomise=RANGES).results[0].length > 0


def test_a_student_that_adapts_keeps_its_teachers_layers(tmp_path, teachers):
    out = student(teachers["encoder"], tmp_path / "student", 8, history=5, adapt=True)
    config, network = load_policy(out)
    _, teacher = load_policy(teachers["encoder"])
    assert config.adapts
    assert config.network.latent == 3
    for one, other in zip(network.layers.parameters(), teacher.layers.parameters(), strict=True):
        assert torch.equal(one, other)
    width = len(config.observations) + len(config.actions)
    assert torch.equal(network.mean.view(5, width)[:, :4], teacher.mean[:4].expand(5, 4))
    assert network.encoder[0].weight.shape[1] == 5 * width
    found = losses(out)
    assert found[-1] < 0.8 * found[0]
    assert evaluate_policy(str(out), ("hybrid",), episodes=4, randomise=RANGES).results[0].length > 0


def test_an_adapting_network_acts_as_its_teacher_where_the_latent_is_right(teachers):
    config, teacher = load_policy(teachers["encoder"])
    network = msgspec.structs.replace(config.network, history=2, with_actions=True)
    built = msgspec.structs.replace(config, network=network, privileged=(), adapts=True).build()
    built.layers.load_state_dict(teacher.layers.state_dict())
    built.mean[:4], built.deviation[:4] = teacher.mean[:4], teacher.deviation[:4]
    seen, drawn = torch.randn(3, 4), torch.rand(3, 2) + 0.5
    latent = teacher.encoder((drawn - teacher.mean[4:]) / teacher.deviation[4:])
    built.encoder = torch.nn.Sequential(Constant(latent))
    torch.testing.assert_close(built(torch.cat([seen, torch.randn(3, 6)], 1)), teacher(torch.cat([seen, drawn], 1)))


class Constant(torch.nn.Module):
    """Gives the same, whatever it reads."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, _):
        return self.value


def test_what_does_not_fit_is_one_line(tmp_path, teachers):
    with pytest.raises(InputError, match=r"has no encoder; valid with --adapt"):
        student(teachers["plain"], tmp_path / "a", adapt=True)
    with pytest.raises(InputError, match=r"valid: the --randomise of its training"):
        student(teachers["plain"], tmp_path / "b", randomise=("hinge.mass=x.5:2",))
    with pytest.raises(InputError, match=r"needs a teacher; valid: `neurodyn policy distill"):
        open_training(TrainPolicyRequest("cartpole-swingup", "hybrid", tmp_path / "c", algorithm="distillation"))
    with pytest.raises(InputError, match=r"sees what is drawn for the robot; valid: a policy that sees"):
        open_training(TrainPolicyRequest("cartpole-swingup", "hybrid", tmp_path / "d", policy=str(teachers["plain"])))
    remembers = student(teachers["plain"], tmp_path / "e", 1, history=2)
    with pytest.raises(InputError, match=r"has a memory; valid: a teacher that sees single observations"):
        student(remembers, tmp_path / "f")
    goes_on = open_training(
        TrainPolicyRequest(
            "cartpole-swingup", "hybrid", tmp_path / "g", policy=str(remembers), iterations=1, worlds=8,
            reference="none",
        )
    )  # fmt: skip
    assert goes_on.settings.network.history == 2
    train_policy(goes_on)  # PPO goes on with a student, whose critic is new
