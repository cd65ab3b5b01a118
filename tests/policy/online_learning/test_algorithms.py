# SPDX-License-Identifier: Apache-2.0
"""Algorithms that train policies in `policy online`."""

import msgspec
import pytest

from neurodyn.core.config import read_plain
from neurodyn.core.errors import InputError
from neurodyn.learn.metrics import read_metrics
from neurodyn.policy import online
from neurodyn.policy.online_learning.problem import settings_of
from neurodyn.policy.online_learning.rounds import RoundInProgress
from neurodyn.policy.requests import OnlineRequest
from neurodyn.policy.settings import PolicySettings, ShacSettings
from tests.policy.online_learning.test_loop import POLICY, TASK, figures, settings

pytest.importorskip("newton")
pytest.importorskip("rsl_rl")

SHAC = ShacSettings(
    worlds=POLICY.worlds, horizon=POLICY.horizon, iterations=2, evaluations=1, evaluation_worlds=4,
    network=POLICY.network, critic_epochs=1, critic_minibatches=2, threads=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def along_gradients(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shac")
    return folder / "out", online(TASK, folder / "out", settings=settings(folder, policy=SHAC))


def test_policies_of_rounds_are_trained_along_gradients(along_gradients):
    out, result = along_gradients
    assert [one.number for one in result.rounds] == [1, 2]
    for folder in (out, *(out / "rounds" / f"{k:02d}" / "policy" for k in (1, 2))):
        assert read_plain(folder / "config.yaml")["algorithm"] == "shac"
    updates = [entry for entry in read_metrics(out / "rounds" / "02" / "policy") if "explosion" in entry]
    assert updates, "no gradients through the model"
    assert read_plain(out / "rounds" / "02" / "policy" / "config.yaml")["base"].endswith("01/policy")


def test_a_loop_along_gradients_continues(along_gradients, tmp_path, monkeypatch):
    monkeypatch.setattr(RoundInProgress, "_log", lambda _: (_ for _ in ()).throw(InputError("stop")))
    with pytest.raises(InputError, match="stop"):
        online(TASK, tmp_path / "out", settings=settings(tmp_path, policy=SHAC))
    monkeypatch.undo()
    with pytest.raises(InputError, match="--resume needs the algorithm that the run was started with, shac"):
        online(TASK, tmp_path / "out", settings=settings(tmp_path), resume=True)
    online(TASK, tmp_path / "out", settings=settings(tmp_path, policy=SHAC), resume=True)
    assert figures(tmp_path / "out") == figures(along_gradients[0])


def test_settings_are_those_of_the_algorithm(along_gradients, tmp_path):
    request = OnlineRequest(TASK, tmp_path / "out")
    assert isinstance(settings_of(request).policy, PolicySettings)
    by_name = settings_of(msgspec.structs.replace(request, algorithm="shac")).policy
    assert isinstance(by_name, ShacSettings)
    (tmp_path / "own.yaml").write_text("critic_rate: 0.004\n")
    by_file = settings_of(msgspec.structs.replace(request, settings=tmp_path / "own.yaml")).policy
    assert isinstance(by_file, ShacSettings)
    assert by_file.critic_rate == 0.004
    continued = OnlineRequest(TASK, along_gradients[0], resume=True)
    assert isinstance(settings_of(continued).policy, ShacSettings)


def test_algorithms_that_cannot_learn_in_rounds_are_refused(tmp_path):
    for name, words in {"distillation": "needs a teacher", "sac": "valid: "}.items():
        with pytest.raises(InputError, match=words):
            settings_of(OnlineRequest(TASK, tmp_path / "out", algorithm=name))
