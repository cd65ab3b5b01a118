# SPDX-License-Identifier: Apache-2.0
"""Whether an imagined return is supported: by a judge that the policy never trains in, and by the log."""

import msgspec
import numpy as np
import pytest
import torch

pytest.importorskip("rsl_rl")

from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.core import artifacts
from neurodyn.core.errors import Notice
from neurodyn.data.header import Split
from neurodyn.data.mixture import Mixture
from neurodyn.data.training_range import TrainingRange
from neurodyn.dynamics.batch import State, Step
from neurodyn.dynamics.input_samples import known_inputs_of
from neurodyn.learn.metrics import read_metrics
from neurodyn.policy.artifact import read_weights
from neurodyn.policy.episodes.evaluation import play
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.settings import NetworkSettings, PolicySettings
from neurodyn.policy.trust.support import (
    FrameSample,
    PolicySupport,
    return_loss_share,
    share_out_of_range,
    share_outside,
    support_in,
)
from tests.policy.small_worlds import Fixed, Hold, Mass, log


class Windy(Mass):
    """The mass in a wind that soon carries it away."""

    def step(self, carry, state, control):
        qd = state.qd + self.spec.dt * (control.torque + 60.0)
        return carry, Step(State(state.q + self.spec.dt * qd, qd))


class Later(Windy):
    """The wind that rises after the first play."""

    def step(self, carry, state, control):
        return (Mass if self.begun < 2 else Windy).step(self, carry, state, control)


class Read(Mass):
    """The mass as a network that reads place, speed and force, of which a part is held out."""

    judge: Mass = Windy()

    def hold_out(self):
        return self, self.judge, "a member held out"

    def network_inputs(self, state, control, environment=None):
        assert control.torque is not None
        return torch.cat([state.q, state.qd, control.torque], -1)


def the_log():
    return log(40, slice(0, None, 4))


def test_what_is_lost_is_a_share_of_the_return_or_of_what_was_gained():
    even = torch.zeros(16)
    assert return_loss_share(100.0 + even, 75.0 + even, 100.0) == pytest.approx(0.25)
    assert return_loss_share(100.0 + even, 125.0 + even, 100.0) == 0.0
    # A return near zero says little: what counts is that it came from -300.
    assert return_loss_share(1.0 + even, -2.0 + even, -299.0) == pytest.approx(0.01)
    assert return_loss_share(1.0 + even, -2.0 + even, 1.0) == pytest.approx(1.5)


def test_a_loss_within_its_error_is_none():
    noise = torch.linspace(-200.0, 200.0, 16)
    assert return_loss_share(100.0 + noise, 70.0 + torch.zeros(16), 100.0) == 0.0
    assert return_loss_share(100.0 + 0.1 * noise, 70.0 + torch.zeros(16), 100.0) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("lost", "outside", "exploits"),
    [(0.19, 1.0, False), (0.21, 0.0, True), (None, 0.09, False), (None, 0.11, True), (None, None, False)],
)
def test_the_judge_decides_where_there_is_one(lost, outside, exploits):
    found = PolicySupport(100.0, None if lost is None else 80.0, "a member held out", lost, outside)
    assert found.exploits is exploits
    assert (found.verdict().grade == "warning") is exploits


def test_figures_are_one_line_and_are_read_back():
    found = PolicySupport(3024.0, 400.0, "a member held out", 0.868, 0.93, 2.5)
    assert str(found) == (
        "imagined return 3024, a member held out 400, frames outside of the log 93%, "
        "disagreement 2.5 times that on the log"
    )
    lines = [{"step": 1}, {"return_training": 3024.0, **found.figures()}, {"finished": True}]
    assert support_in(lines) == found
    assert support_in([{"step": 1}]) is None


def test_frames_of_the_log_are_inside_and_others_are_not():
    known = known_inputs_of(Read(), Mixture.of(the_log()))
    assert known is not None
    held = torch.from_numpy(np.concatenate([np.concatenate([q[:-1], qd[:-1], u], -1)
                                            for q, qd, u in map(the_log().episode, range(0, 40, 4))]))  # fmt: skip
    assert share_outside(held, known) == pytest.approx(0.05, abs=0.04)
    assert share_outside(held + 5.0, known) == 1.0
    assert share_outside(torch.full((3, 3), torch.nan), known) == 1.0
    assert known_inputs_of(Mass(), Mixture.of(the_log())) is None  # reads nothing
    none = the_log()
    none.table["split"] = Split.TRAIN
    assert known_inputs_of(Read(), Mixture.of(none)) is None


def test_a_range_is_left_by_any_velocity():
    known = TrainingRange(qd=((-1.0, 1.0), (-2.0, 2.0)))
    qd = torch.tensor([[0.0, 0.0], [1.5, 0.0], [0.0, -1.9], [0.0, torch.nan]])
    assert share_out_of_range(State(torch.zeros(4, 2), qd), known) == 0.5


def test_a_play_is_sampled_as_the_network_reads_it():
    sample = FrameSample(5, 2)
    play(lambda seen: torch.full((len(seen), 1), 0.5), Hold(), Read(), Fixed([0.1, 0.2]), 2, watcher=sample)
    assert sample.inputs is not None
    assert sample.inputs.shape == (10, 3)
    torch.testing.assert_close(sample.inputs[:2, 0], torch.tensor([0.1, 0.2]))
    assert (sample.inputs[:, 2] == 1.5).all()
    torch.testing.assert_close(sample.state.q, sample.inputs[:, :1])


SETTINGS = PolicySettings(
    worlds=8, horizon=4, iterations=6, evaluations=3, evaluation_worlds=8, minibatches=2, threads=1,
    network=NetworkSettings(hidden=(8,)),
)  # fmt: skip


def trained(folder, dynamics, **settings):
    changed = msgspec.structs.replace(SETTINGS, **settings)
    return train_policy(Hold(), ResolvedDynamics("model", dynamics), folder, changed)


def test_a_return_that_the_judge_does_not_support_is_a_warning(tmp_path):
    with pytest.warns(Notice, match=r"not supported: imagined return \d.*, a member held out -?\d"):
        end = trained(tmp_path / "policy", Read())
    assert end.step == 6
    assert end.verdict.startswith("warning: the imagined return is not supported: imagined return ")
    played = [line for line in read_metrics(tmp_path / "policy") if "exploits" in line]
    assert [line["exploits"] for line in played] == [True] * 3
    assert all(line["return_judge"] < 0.8 * line["return_training"] for line in played)
    assert played[-1]["judged_by"] == "a member held out"


@pytest.mark.filterwarnings("ignore::neurodyn.core.errors.Notice")
def test_training_ends_there_where_that_is_asked_for_with_the_policy_that_was_kept(tmp_path):
    class Turning(Read):
        """Honest in the first play, and in none after it."""

        judge = Mass()

        def __init__(self) -> None:
            super().__init__()
            self.judge = Later()

    end = trained(tmp_path / "policy", Turning(), stop_when_exploiting=True)
    assert end.step == 4  # the second of three plays
    assert end.best_step == 2
    kept = read_weights(tmp_path / "policy")
    last = artifacts.read_tree(tmp_path / "policy" / "state", "training")["learner"]["actor_state_dict"]
    assert torch.equal(kept["layers.0.weight"], last["mlp.0.weight"])


def test_a_judge_that_agrees_lets_it_continue(tmp_path):
    class Agreed(Read):
        judge = Mass()

    end = trained(tmp_path / "policy", Agreed(), stop_when_exploiting=True)
    assert end.step == 6
    assert "supported" not in end.verdict
    assert read_metrics(tmp_path / "policy")[-2]["exploits"] is False


def test_nothing_is_held_out_where_that_is_not_wanted(tmp_path):
    trained(tmp_path / "policy", Read(), hold_out=False)
    assert not any("exploits" in line for line in read_metrics(tmp_path / "policy"))
