# SPDX-License-Identifier: Apache-2.0
"""The whole loop on the cartpole, small: what is written, killed anywhere, other kinds of models."""

import math
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec import UNSET

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.core.interruption import Interrupted
from neurodyn.data.store import Store
from neurodyn.dynamics import load
from neurodyn.learn.manifest import read_manifest
from neurodyn.learn.metrics import read_metrics
from neurodyn.policy import OnlineSettings, PolicySettings, load_policy, online
from neurodyn.policy.online_learning.refit import NeuralRefit
from neurodyn.policy.online_learning.rounds import RoundInProgress
from neurodyn.policy.settings import NetworkSettings

pytest.importorskip("newton")
pytest.importorskip("rsl_rl")

TASK = "cartpole-swingup"
SMALL = """
net: {kind: mlp, width: 16, depth: 1}
steps: 40
phases:
  - {share: 1.0, rate: 1.0e-2, batch: 64, loss: absolute}
  - {share: 0.25, rate: 1.0e-3, batch: 64, policy_rollouts: {frames: 4, cut: 2, worlds: 8}}
validations: 1
validation_rollouts: 8
validation_frames: 10
"""
WORLD = """
net: {kind: mlp, members: 2, trunk: own, width: 16, depth: 1, head: 16}
steps: 150
context: 1
phases: [{share: 1.0, rate: 5.0e-3, batch: 32, context: 1, forecast: 2, loss: absolute}]
validations: 5
validation_rollouts: 8
validation_frames: 10
"""
POLICY = PolicySettings(
    worlds=16, horizon=8, iterations=2, evaluations=1, evaluation_worlds=4, minibatches=2, epochs=1,
    network=NetworkSettings(hidden=(8,)), threads=1,
)  # fmt: skip


def settings(folder: Path, text: str = SMALL, **changes) -> OnlineSettings:
    """Return settings of a loop of seconds, whose steps depend on seeds alone."""
    path = folder / "small.yaml"
    path.write_text(text)
    fixed = OnlineSettings(
        rounds=2, frames=800, log_frames=1200, rollout=16, episodes=4, size=str(path), finetune=str(path), policy=POLICY
    )
    return msgspec.structs.replace(fixed, **changes)


def figures(out: Path) -> dict:
    """Return what a loop found, without times and paths."""

    def bare(value):
        if isinstance(value, dict):
            left_out = ("cpu_seconds", "run", "calibrated", "folder", "path", "dynamics")
            return {key: bare(entry) for key, entry in value.items() if key not in left_out}
        return [bare(entry) for entry in value] if isinstance(value, list) else value

    return bare(artifacts.read_json(out / "online.json"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("online")
    lines: list[str] = []
    result = online(TASK, folder / "out", settings=settings(folder), report=lines.append)
    return folder / "out", result, lines


def test_written_files(whole):
    out, result, lines = whole
    assert [one.number for one in result.rounds] == [1, 2]
    assert lines[0].startswith("round 1: return ")
    assert artifacts.read_json(out / "online.json") == result.plain()
    config, _ = load_policy(out / "policy")
    assert config.task == TASK
    page = (out / "report.html").read_text()
    assert "Ends of episodes" in page
    assert result.verdict in page
    first, second, end = read_metrics(out)
    assert [first["step"], second["step"], end["step"]] == [1, 2, 2]
    assert second["return_reference"] == result.rounds[1].real.mean
    assert second["gap"] == result.rounds[1].gap
    assert (end["finished"], end["verdict"]) == (True, result.verdict)
    assert read_manifest(out).training == "policy online"


def test_frames_of_the_reference_are_counted(whole):
    out, result, _ = whole
    logs = [Store.open(out / "rounds" / f"{number:02d}" / "log.h5") for number in (1, 2)]
    # An episode has one frame more than transitions: its first is not kept.
    assert [one.log.frames for one in result.rounds] == [log.transitions + len(log.table) for log in logs]
    assert result.frames == result.first_frames + sum(one.frames for one in result.rounds)
    assert result.first_frames >= 800


def test_half_of_the_logged_episodes_have_no_noise(whole):
    out, result, _ = whole
    log = Store.open(out / "rounds" / "01" / "log.h5")
    first = result.rounds[0].log
    assert first is not None
    assert first.returns.episodes == first.noisy.episodes == len(log.table) // 2
    assert first.returns.mean == pytest.approx(log.returns[log.group == 0].mean(), rel=1e-5)


def test_the_second_policy_begins_with_the_first(whole):
    out, _, _ = whole
    record = (out / "rounds" / "02" / "policy" / "config.yaml").read_text()
    assert f"base: {out / 'rounds' / '01' / 'policy'}" in record


def test_a_copy_that_knows_the_policies_of_the_logs_judges(whole):
    out, result, lines = whole
    first, second = (one.measured for one in result.rounds)
    models = [one.model for one in result.rounds]
    assert first is not None
    assert second is not None
    assert first.uncalibrated is UNSET  # there was no policy yet
    assert models[0] is not None
    assert models[0].calibrated is UNSET
    copy = out / "rounds" / "02" / "calibrated-run"
    assert models[1] is not None
    assert models[1].calibrated == second.returns.dynamics == str(copy)
    assert second.uncalibrated is not UNSET
    assert second.uncalibrated.dynamics == models[1].run
    assert f"(before calibration {second.uncalibrated.mean:.4g})" in lines[1]
    for folder, steps in ((copy, 10), (out / "rounds" / "02" / "model-run", 40)):  # .25 of the others' share
        metrics = read_metrics(folder)
        assert metrics[-1]["step"] == steps
        assert any((line.get("policy_rollouts") or 0.0) > 0 for line in metrics) == (folder == copy)
    record = (out / "rounds" / "02" / "policy" / "config.yaml").read_text()
    assert "calibrated" not in record  # policies do not learn in it


def test_policies_train_in_a_model_that_has_learned_from_roll_outs_of_earlier_ones(whole, tmp_path):
    finished, _, _ = whole
    chosen = settings(finished.parent, closed_loop="train")
    result = online(TASK, tmp_path / "out", settings=chosen, data=[str(finished / "random.h5")])
    model, measured = result.rounds[1].model, result.rounds[1].measured
    assert model is not None
    assert measured is not None
    assert model.calibrated is UNSET
    assert measured.uncalibrated is UNSET
    metrics = read_metrics(Path(model.run))
    assert metrics[-1]["step"] == 40  # in the steps of the windows
    assert any((line.get("policy_rollouts") or 0.0) > 0 for line in metrics)
    with pytest.raises(InputError, match="--closed-loop train is for --kind neural"):
        online(TASK, tmp_path / "hybrid", kind="hybrid", settings=chosen)


KILLS = [("_fit", True), ("_train", False), ("_train", True), ("_log", True), ("_measure", False)]
"""Steps of a round, and whether each is done, but not yet recorded, when it is killed."""


def test_a_loop_that_is_killed_again_and_again_continues(whole, tmp_path, monkeypatch):
    finished, _, _ = whole
    left = list(KILLS)

    def kill(step):
        own = getattr(RoundInProgress, step)

        def run(self):
            ends = self.number == 2 and left and left[0][0] == step
            kept = ends and left.pop(0)[1]
            result = own(self) if kept or not ends else None
            if ends:
                raise KeyboardInterrupt
            return result

        return run

    for step in {step for step, _ in KILLS}:
        monkeypatch.setattr(RoundInProgress, step, kill(step))
    chosen = settings(finished.parent)
    for number in range(len(KILLS)):
        with pytest.raises(Interrupted, match="interrupted; the same command with --resume goes on"):
            online(TASK, tmp_path / "out", settings=chosen, resume=number > 0)
        assert left == KILLS[number + 1 :]
    online(TASK, tmp_path / "out", settings=chosen, resume=True)
    assert figures(tmp_path / "out") == figures(finished)


def test_random_data_that_were_cut_short_are_made_again(whole, tmp_path, monkeypatch):
    finished, _, _ = whole
    own = NeuralRefit.random

    def kill(*given):
        own(*given)
        path = tmp_path / "out" / "random.h5"
        path.rename(path.with_name("random.h5.part"))  # as of a process that was killed while it was written
        raise KeyboardInterrupt

    def stop(self):
        raise KeyboardInterrupt

    chosen = settings(finished.parent)
    with monkeypatch.context() as patch:
        patch.setattr(NeuralRefit, "random", kill)
        with pytest.raises(Interrupted):
            online(TASK, tmp_path / "out", settings=chosen)
    monkeypatch.setattr(RoundInProgress, "run", stop)
    with pytest.raises(Interrupted):
        online(TASK, tmp_path / "out", settings=chosen, resume=True)
    first, again = Store.open(finished / "random.h5"), Store.open(tmp_path / "out" / "random.h5")
    np.testing.assert_array_equal(again.frames, first.frames)


def test_more_rounds_and_nothing_else_may_be_asked_for(whole, tmp_path):
    out, _, _ = whole
    chosen = settings(out.parent)
    with pytest.raises(InputError, match="already holds a run"):
        online(TASK, out, settings=chosen)
    with pytest.raises(InputError, match="--resume needs the settings that the run was started with"):
        online(TASK, out, settings=msgspec.structs.replace(chosen, noise=0.1), resume=True)
    before = figures(out)
    online(TASK, out, settings=chosen, resume=True)
    assert figures(out) == before


def test_other_data_are_not_gone_on_with(whole, tmp_path, monkeypatch):
    def stop(self):
        raise KeyboardInterrupt

    first = whole[0] / "random.h5"
    shutil.copy(first, tmp_path / "moved.h5")
    (tmp_path / "other.h5").write_bytes((whole[0] / "rounds" / "01" / "log.h5").read_bytes())
    chosen = settings(whole[0].parent)
    monkeypatch.setattr(RoundInProgress, "run", stop)
    for data, resume in ((first, False), (tmp_path / "moved.h5", True)):
        with pytest.raises(Interrupted):
            online(TASK, tmp_path / "out", settings=chosen, data=[str(data)], resume=resume)
    with pytest.raises(InputError, match=r"--resume needs the data that the run was started with, and .*other\.h5"):
        online(TASK, tmp_path / "out", settings=chosen, data=[str(tmp_path / "other.h5")], resume=True)


def test_smooth_first_data_have_no_uniform_actions(tmp_path, monkeypatch):
    def stop(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(RoundInProgress, "run", stop)
    for first, groups in (((), ("still",)), (("swing",), ("swing",))):
        chosen = settings(tmp_path, WORLD, correlation=0.9, first=first)
        with pytest.raises(Interrupted):
            online(TASK, tmp_path / groups[0], kind="world-model", settings=chosen, logger="none")
        assert Store.open(tmp_path / groups[0] / "random.h5").header.groups == groups
    with pytest.raises(InputError, match="--first is for world models"):
        online(TASK, tmp_path / "out", settings=settings(tmp_path, first=("swing",)))
    with pytest.raises(ValueError, match=r"first is swings; valid: random, still, swing"):
        OnlineSettings(first=("swings",))


@pytest.mark.slow
def test_a_world_model_of_what_a_floating_robot_measures(tmp_path):
    chosen = settings(tmp_path, WORLD, reference="hybrid", rounds=1, correlation=0.9)
    result = online("ant-run", tmp_path / "out", kind="world-model", settings=chosen)
    first = Store.open(tmp_path / "out" / "random.h5").header.spec
    assert not first.floating
    assert {"base_height", "base_orientation", "base_linear_velocity"} <= {one.quantity for one in first.channels}
    assert math.isfinite(result.rounds[0].imagined.mean)
    assert math.isfinite(result.rounds[0].real.mean)


@pytest.mark.slow
def test_a_world_model(tmp_path):
    result = online(TASK, tmp_path / "out", kind="world-model", settings=settings(tmp_path, WORLD))
    assert result.kind == "world-model"
    first = Store.open(tmp_path / "out" / "random.h5")
    assert first.header.groups == ("random", "still")
    of = [np.concatenate([first.episode(e)[2] for e in np.flatnonzero(first.group == number)]) for number in (0, 1)]
    assert 0 < np.abs(of[1]).mean() < np.abs(of[0]).mean()  # noise about actions of zero is the smaller
    second = (tmp_path / "out" / "rounds" / "02" / "model-run" / "config.yaml").read_text()
    assert f"base: {tmp_path / 'out' / 'rounds' / '01' / 'model-run'}" in second  # it goes on from the first
    assert result.rounds[0].measured is not None
    assert result.rounds[0].measured.model_error is not None


def test_a_hybrid_model_identifies_wrong_parameters(tmp_path):
    chosen = settings(
        tmp_path, "horizon: 0.2\nwindows: 32\nrollouts: 16\niterations: 10\nthreads: 1\n",
        frames=0, rollout=None, parameters=("slider.mass=100:10:200",),
    )  # fmt: skip
    result = online(TASK, tmp_path / "out", kind="hybrid", settings=chosen)
    errors = [one.measured.model_error for one in result.rounds if one.measured is not None]
    assert result.rounds[1].model is not None
    model = load(result.rounds[1].model.run)
    assert errors[0] > 0.1
    assert errors[1] < 0.03
    assert float(model.physical()[0]) == pytest.approx(50.0, rel=1e-2)
