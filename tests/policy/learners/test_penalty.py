# SPDX-License-Identifier: Apache-2.0
"""Lambda by the model's own criterion: it rises while a policy is less certain than the log, and needs both."""

import math
import shutil

import msgspec
import pytest
import torch

pytest.importorskip("rsl_rl")

from neurodyn.control.task_frames import require_fit
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, State
from neurodyn.learn.metrics import read_metrics
from neurodyn.policy.artifact import policy_config, read_weights
from neurodyn.policy.learners.learner import CRITIC_UPDATES
from neurodyn.policy.learners.penalty import CertaintyRule, certainty_rule, held_out_uncertainty
from neurodyn.policy.learners.ppo import PpoLearner
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.settings import NetworkSettings, PolicySettings
from tests.policy.small_worlds import Here, Hold, Mass, log, world_model


def model():
    made = world_model(width=8, head=8)
    made.state_scale.copy_(torch.tensor([2.0, 0.5]))
    return made


def the_log():
    return log(4, slice(3, 4))


def test_lambda_rises_and_falls_with_the_uncertainty_and_stays_within_bounds():
    rule = CertaintyRule(0.5)
    assert rule.update(0.5) == rule.value == 1.0
    assert rule.update(0.75) == pytest.approx(math.exp(0.5))
    assert rule.update(0.25) == pytest.approx(1.0)
    for _ in range(1000):
        rule.update(100.0)
    assert rule.value == 100.0
    for _ in range(1000):
        rule.update(0.0)
    assert rule.value == 0.01


def test_the_reference_is_the_uncertainty_one_frame_ahead_of_held_out_episodes():
    dynamics, store = model(), the_log()
    q, qd, control = (torch.from_numpy(x.copy()) for x in store.episode(3))
    state = State(q[:-1], qd[:-1])
    _, step = dynamics.step(dynamics.begin(state), state, Control(torque=control))
    assert step.epistemic is not None
    wanted = (step.epistemic / torch.tensor([2.0, 0.5])).sum(-1).mean()
    assert held_out_uncertainty(dynamics, store) == pytest.approx(float(wanted), rel=1e-5)


def test_it_needs_a_model_that_knows_its_uncertainty_and_a_log():
    with pytest.raises(InputError, match=r"penalty is auto, .* do not know how uncertain they are; valid here: 0"):
        require_fit(Hold(), Mass(), "auto")
    with pytest.raises(InputError, match=r"penalty is auto, .* uncertainty on a log; valid here: a number"):
        certainty_rule(model(), None)


SETTINGS = PolicySettings(
    worlds=16, horizon=8, iterations=3, evaluations=2, evaluation_worlds=4, minibatches=2, penalty="auto", threads=1,
    network=NetworkSettings(hidden=(8,)),
)  # fmt: skip


def test_a_training_follows_the_rule_and_continues_with_it(tmp_path):
    where = Here("model", model(), the_log())
    train_policy(Hold(), where, tmp_path / "policy", SETTINGS)
    found = read_metrics(tmp_path / "policy")[:3]
    reference = held_out_uncertainty(model(), the_log())
    value = 1.0
    for line in found:
        assert line["uncertainty_log"] == pytest.approx(reference)
        value = min(value * math.exp(min(line["uncertainty"] / reference - 1.0, 1.0)), 100.0)
        assert line["penalty"] == pytest.approx(value)
    assert value != 1.0
    longer = msgspec.structs.replace(SETTINGS, iterations=4)
    train_policy(Hold(), where, tmp_path / "policy", longer, resume=True)
    last = read_metrics(tmp_path / "policy")[-2]
    value = min(value * math.exp(min(last["uncertainty"] / reference - 1.0, 1.0)), 100.0)
    assert last["penalty"] == pytest.approx(value)


def test_a_centred_penalty_is_zero_at_the_uncertainty_of_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(Hold, "terminated", lambda self, now, memory: torch.zeros(len(memory.action), dtype=torch.bool))
    fixed = msgspec.structs.replace(
        SETTINGS, penalty=2.0, iterations=1, evaluations=1, hold_out=False, rate=1e-12, schedule="fixed"
    )
    paid = []
    for centred in (False, True):
        settings, out = msgspec.structs.replace(fixed, centre_penalty=centred), tmp_path / str(centred)
        train_policy(Hold(), Here("model", model(), the_log()), out, settings)
        found = read_metrics(out)[0]
        paid.append(found["return_training"] - found["penalised_training"])
    assert paid[0] - paid[1] == pytest.approx(2.0 * held_out_uncertainty(model(), the_log()) * Hold.frames, rel=1e-3)
    with pytest.raises(InputError, match=r"centre_penalty: .* on a log; valid: a model with one"):
        train_policy(Hold(), Here("model", model()), tmp_path / "none", settings)


def test_it_holds_a_policy_to_what_it_began_with_where_that_is_more_certain():
    rule = CertaintyRule(0.5)
    for watched in (0.9, 0.7, 0.3, 0.5):
        rule.watch(watched)
    again = CertaintyRule(0.1)
    again.load(rule.state())
    assert again.reference == 0.5
    for one in (rule, again):
        assert one.certain(9.0)
        one.release(0.6)
        assert one.reference == pytest.approx(0.4)  # of the later half
        assert one.certain(0.645)
        assert not one.certain(0.65)
    later = CertaintyRule(0.1)
    later.load(rule.state())
    assert not later.certain(0.65)
    doubtful = CertaintyRule(0.2)
    doubtful.watch(0.9)
    doubtful.release(0.6)
    assert doubtful.reference == 0.2


def test_policies_of_which_the_model_is_certain_are_kept_and_averaged(tmp_path, monkeypatch):
    first, out = tmp_path / "first", tmp_path / "policy"
    train_policy(Hold(), Here("mass", Mass()), first, msgspec.structs.replace(SETTINGS, penalty=0.0, evaluations=0))
    shutil.rmtree(first / "state")  # so that a new critic learns first
    settings = msgspec.structs.replace(SETTINGS, iterations=CRITIC_UPDATES + 3, evaluations=CRITIC_UPDATES + 3)
    seen, played = [], PpoLearner.validate

    def certain(rule, _):
        return len(seen) != CRITIC_UPDATES + 1  # of the three that learned, the second is not

    def watched(learner, at):
        found = played(learner, at)
        seen.append(learner.network.state_dict())
        return found

    monkeypatch.setattr(CertaintyRule, "certain", certain)
    monkeypatch.setattr(PpoLearner, "validate", watched)
    network = policy_config(Hold(), settings.network).build()
    network.load_state_dict(read_weights(first))
    monkeypatch.setattr("neurodyn.policy.learners.learner.load_policy", lambda _: (None, network))
    train_policy(Hold(), Here("model", model(), the_log()), out, settings, initial=first)
    for name, value in read_weights(out).items():
        torch.testing.assert_close(value, (seen[-3][name] + seen[-1][name]) / 2)
