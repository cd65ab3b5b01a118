# SPDX-License-Identifier: Apache-2.0
"""The page of a policy shows what was measured, and nothing that was not."""

import json

import msgspec
import pytest

from neurodyn.control.returns import QuantitySensitivity, Returns
from neurodyn.policy.episodes.evaluation import PolicyEvaluation, RewardError
from neurodyn.policy.episodes.report import render_policy_report, write_policy_report

RESULT = PolicyEvaluation(
    task="cartpole-swingup",
    policy="somewhere",
    episodes=12,
    seed=7,
    results=[
        Returns(dynamics="analytic", mean=1200.5, std=3.0, length=300.0, episodes=12, failed=0.25),
        Returns(dynamics="runs/<x>", mean=900.0, std=4.0, length=280.0, episodes=12, failed=0.0),
    ],
    reward_error=[RewardError(a="analytic", b="runs/<x>", difference=-300.5, relative=0.25, by_episode=310.0)],
)


@pytest.fixture
def folder(tmp_path):
    lines = [
        {"step": 1, "frames": 100, "cpu_seconds": 1.0, "length": 20.0, "noise": 1.0},
        {"step": 2, "frames": 200, "cpu_seconds": 2.0, "length": 40.0, "noise": 0.9,
         "return_training": 10.0, "penalised_training": 8.0, "return_reference": 5.0},
        {"step": 3, "frames": 300, "cpu_seconds": 3.5, "length": 60.0, "noise": 0.8,
         "return_training": 20.0, "penalised_training": 15.0, "return_reference": 12.0},
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "config.yaml").write_text("task: cartpole-swingup\n")
    return tmp_path


def test_dynamics_that_start_in_other_states_are_named(folder):
    (apart,) = RESULT.reward_error
    for paired in (True, False):
        pair = msgspec.structs.replace(apart, paired=paired)
        page = render_policy_report(folder, msgspec.structs.replace(RESULT, reward_error=[pair]))
        assert ("analytic to runs/&lt;x&gt; (other starts)" in page) is not paired


def test_a_silent_network_is_named(folder):
    told = "compiled contacts, network silent"
    assert told not in render_policy_report(folder, RESULT)
    page = render_policy_report(folder, msgspec.structs.replace(RESULT, caveats={"runs/<x>": told}))
    assert page.count(f"runs/&lt;x&gt; ({told})") == 2  # in the lead and in the table


def test_returns_and_reward_errors_are_shown_and_escaped(folder):
    page = render_policy_report(folder, RESULT)
    for text in ("1200.5", "25%", "-300.5", "25.00%", "300 frames in 4 CPU-s", "runs/&lt;x&gt;"):
        assert text in page
    assert "runs/<x>" not in page
    page = render_policy_report(folder, msgspec.structs.replace(RESULT, task="<script>alert(1)</script>"))
    assert "<script>alert" not in page


def test_real_and_imagined_return_are_on_one_plot(folder):
    plots = [part.split("</svg>")[0] for part in render_policy_report(folder, RESULT).split("<svg")[1:]]
    labels = ("where it is trained", "in the reference", "less the penalty")
    assert [plot for plot in plots if all(label in plot for label in labels)]


def test_without_metrics_and_config_the_page_is_shorter(tmp_path):
    page = render_policy_report(tmp_path, msgspec.structs.replace(RESULT, reward_error=[]))
    assert "Training" not in page
    assert "Reward error" not in page
    assert "Configuration" not in page


def test_a_page_is_written_even_where_nothing_can_be_drawn(folder):
    (folder / "policy.safetensors").write_bytes(b"")  # no policy: nothing moves
    path = write_policy_report(folder, RESULT)
    assert "holds no policy" in path.read_text()


def test_gradients_through_the_dynamics_are_shown_by_horizon(folder):
    assert "Gradient of a return" not in render_policy_report(folder, RESULT)
    lines = [
        {"step": step, "frames": 100 * step, "length": 5.0, "noise": 1.0, "horizon": 4, "return_training": 1.0,
         "gradients": {"1": [0.1, 0.2], "2": [0.3, 0.4], "4": [0.5, 60.0]}} for step in (1, 2)
    ]  # fmt: skip
    path = folder / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "Gradient of a return" in render_policy_report(folder, RESULT)


def test_what_was_drawn_is_shown_with_what_came_of_it(folder):
    numbers = {"root.mass": [float(i) for i in range(24)], "contact.friction": [0.5] * 24}
    strongest = [
        QuantitySensitivity(name=name, low=0.0, high=1.0, return_low=2.0, return_high=1.0, correlation=-0.5)
        for name in numbers
    ]
    row = msgspec.structs.replace(
        RESULT.results[0],
        worst_tenth=900.0,
        sensitivity=strongest,
        drawn=numbers,
        returns=[float(-i) for i in range(24)],
    )
    page = render_policy_report(folder, msgspec.structs.replace(RESULT, results=[row], randomise=("root.mass=0:23",)))
    assert "Return in analytic against root.mass" in page
    assert "Episodes by root.mass" in page
    assert "against contact.friction" not in page  # which was the same everywhere
    assert "Robots that differ" not in render_policy_report(folder, RESULT)
