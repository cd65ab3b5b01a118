# SPDX-License-Identifier: Apache-2.0
"""Training and fine-tuning: errors fall, kills do not matter, and what does not fit is refused."""

import dataclasses
import functools
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.artifacts import read_tree
from neurodyn.core.errors import InputError, MismatchError, Notice
from neurodyn.core.interruption import Interrupted
from neurodyn.data.header import Split
from neurodyn.data.store import Store
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.evaluate import beside_log
from neurodyn.learn.budget import TrainState
from neurodyn.learn.loop import Callback, TrainingLoop
from neurodyn.learn.metrics import read_metrics
from neurodyn.learn.neural.settings import Phase, Settings
from neurodyn.learn.neural.train import finetune, read_run_config, train
from neurodyn.learn.neural.validation import RolloutValidation
from neurodyn.nets.networks import NetConfig
from neurodyn.robots import Robot
from tests import plant
from tests.forked import in_fork
from tests.learn.callbacks import SignalAt

replace = msgspec.structs.replace


def scores(run: Path) -> list[float]:
    return [line["rollout_score"] for line in read_metrics(run) if "rollout_score" in line]


def validated(run: Path) -> list[dict]:
    """Metrics without what differs between machines: times."""
    lines = [line for line in read_metrics(run) if "rollout_score" in line]
    return [{k: v for k, v in line.items() if not k.endswith("seconds")} for line in lines]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return read_tree(run / "state", "training")["model"]


@functools.cache
def stored() -> Store:
    return plant.make_store()


def learn(out: Path, settings: Settings, store: Store | None = None, **options: Any) -> TrainState:
    """Train dynamics of the plant, on its own store by default."""
    return train(plant.robot(), "cartpole", "here", store or stored(), out, settings, **options)


def assert_same_weights(one: Path, two: Path) -> None:
    first, second = weights(one), weights(two)
    assert list(first) == list(second)
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
    best = [(run / "model" / "model.safetensors").read_bytes() for run in (one, two)]
    assert best[0] == best[1]


@pytest.fixture(scope="module")
def short(quick: Settings) -> Settings:
    return replace(quick, steps=120, validations=8)


# Learning


# How much is learned in a few hundred steps depends on rounding as much as on the seed: the same settings ended at a
# 4.5th to a 26th of the first error on different processors. Factors stay at half of the least that was seen, or less.


@pytest.mark.trains
def test_training_more_than_halves_the_held_out_rollout_error(trained_run: Path, quick: Settings):
    found = scores(trained_run)
    assert len(found) == quick.validations + 1
    # The first is the best linear model in the encoding's inputs, which is no weak start.
    assert min(found) < found[0] / 2


@pytest.mark.trains
def test_the_trained_model_beats_both_baselines_on_test_episodes(trained_run: Path, plant_store: Store):
    report = beside_log(NEURAL.load(trained_run), plant.robot(), plant_store, split=Split.TEST, horizon=30).plain()
    better = report["at_horizon"]["all"]["30"]["better_than_baselines"]
    assert better["q_mean"] > 5
    assert better["qd_mean"] > 5


def test_the_model_that_is_kept_is_the_best_by_validation(trained_run: Path, plant_store: Store, quick: Settings):
    score = RolloutValidation(plant_store, quick).measure(NEURAL.load(trained_run)).ranking.error
    assert score == pytest.approx(min(scores(trained_run)), rel=1e-6)


def test_a_run_says_how_it_was_made(trained_run: Path, plant_file: Path, quick: Settings):
    config = read_run_config(trained_run)
    assert (config.kind, config.robot, config.data, config.base) == ("neural", "cartpole", str(plant_file), None)
    assert config.settings == quick
    assert {"neurodyn", "torch"} <= set(config.versions)
    for line in (trained_run / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    assert read_metrics(trained_run)[-1]["finished"] is True
    assert not list(trained_run.rglob("*.part"))


@pytest.mark.trains
@pytest.mark.parametrize("kind", ["gru", "transformer"])
def test_networks_with_a_memory_learn_too(kind: str, quick: Settings, tmp_path: Path):
    nets = {
        "gru": NetConfig(kind="gru", width=24, depth=1, head=24),
        "transformer": NetConfig(kind="transformer", width=16, depth=1, heads=2, window=4, head=16),
    }
    phases = (Phase(share=1, rate=1e-2, batch=64, frames=20),)
    settings = replace(quick, net=nets[kind], phases=phases, steps=300, validations=3)
    learn(tmp_path, settings)
    found = scores(tmp_path)
    assert min(found) < 0.8 * found[0]


def test_the_seed_alone_decides(short: Settings, tmp_path: Path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        learn(tmp_path / name, replace(short, seed=seed, steps=20))
        torch.manual_seed(99)
    assert_same_weights(tmp_path / "a", tmp_path / "b")
    assert any(not torch.equal(t, weights(tmp_path / "c")[n]) for n, t in weights(tmp_path / "a").items())


class Clock:
    """Goes on by a hundredth of a second whenever it is read, however long a step really takes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


def test_a_time_budget_is_kept(quick: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("time.perf_counter", Clock())
    end = learn(tmp_path, replace(quick, steps=None, minutes=0.03, clock="wall"))
    assert 1.8 <= end.seconds < 1.8 + 2 * 0.1  # each of the two phases ends with the step in which its time is up
    assert end.step > 20
    assert end.phase == 2


def test_a_model_that_never_gets_finite_is_still_written(
    short: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from neurodyn.dynamics.rollout_errors import Ranking
    from neurodyn.learn.neural.validation import RolloutScore

    bad = RolloutScore(Ranking(1.0, float("inf")), (float("nan"),) * 2, (float("inf"),) * 2)
    monkeypatch.setattr(RolloutValidation, "measure", lambda self, model: bad)
    learn(tmp_path, replace(short, steps=5))
    assert NEURAL.load(tmp_path).spec.robot == "cartpole"
    assert scores(tmp_path)[0] is None


# Kills and resuming


class Kill(Callback):
    """Kills the process after a step; another one may be saved before."""

    def __init__(self, step: int, saved: int) -> None:
        self.step, self.saved = step, saved

    def on_step(self, loop: TrainingLoop) -> None:
        if loop.state.step == self.saved:
            loop.save()
        if loop.state.step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def kill_at(step: int, folder: Path, settings: Settings, *, saved: int) -> None:
    def trained() -> None:
        learn(folder / "killed", settings, callbacks=[Kill(step, saved)])

    assert in_fork(trained) == -signal.SIGKILL


@pytest.fixture(scope="module")
def uninterrupted(short: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("whole") / "run"
    learn(run, short)
    return run


@pytest.mark.parametrize("step", [40, 85], ids=["teacher-forcing", "forecast"])
def test_a_killed_training_resumes_bitwise(step: int, short: Settings, uninterrupted: Path, tmp_path: Path):
    kill_at(step, tmp_path, short, saved=step - 3)
    run = tmp_path / "killed"
    assert (run / "state").exists()
    assert len(read_metrics(run)) < 9
    end = learn(run, short, resume=True)
    assert end.step == short.steps
    assert_same_weights(run, uninterrupted)
    assert validated(run) == validated(uninterrupted)
    steps = [line["step"] for line in validated(run)]
    assert steps == sorted(set(steps))


def test_a_training_that_was_killed_before_its_first_save_starts_over(
    short: Settings, uninterrupted: Path, tmp_path: Path
):
    kill_at(10, tmp_path, short, saved=-1)
    run = tmp_path / "killed"
    assert not (run / "state").exists()
    with pytest.warns(Notice, match="killed: was stopped before its first save; it starts over"):
        learn(run, short, resume=True)
    assert_same_weights(run, uninterrupted)
    assert validated(run) == validated(uninterrupted)


def test_resuming_a_finished_training_changes_nothing(short: Settings, uninterrupted: Path, tmp_path: Path):
    shutil.copytree(uninterrupted, tmp_path / "run")
    for _ in range(2):
        learn(tmp_path / "run", short, resume=True)
    assert_same_weights(tmp_path / "run", uninterrupted)
    assert [line["step"] for line in read_metrics(tmp_path / "run")] == [
        line["step"] for line in read_metrics(uninterrupted)
    ]


def test_a_finished_training_continues_with_a_larger_budget(short: Settings, uninterrupted: Path, tmp_path: Path):
    shutil.copytree(uninterrupted, tmp_path / "run")
    longer = replace(short, steps=200, validations=20)
    end = learn(tmp_path / "run", longer, resume=True)
    assert end.step == 200  # all of it in the last phase
    steps = [line["step"] for line in validated(tmp_path / "run")]
    assert steps[:9] == [line["step"] for line in validated(uninterrupted)]
    assert steps[9:] == [130, 144, 158, 172, 186, 200]
    assert read_run_config(tmp_path / "run").settings == longer


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_training_is_saved_and_resumes_bitwise(
    number: signal.Signals, short: Settings, uninterrupted: Path, tmp_path: Path
):
    run = tmp_path / "run"
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match="interrupted at step 47; the same command with --resume goes on") as caught:
        learn(run, short, callbacks=[SignalAt(47, number)])
    assert caught.value.code == 128 + number
    assert signal.getsignal(number) is before
    assert read_tree(run / "state", "training")["position"]["step"] == 47
    learn(run, short, resume=True)
    assert_same_weights(run, uninterrupted)


@pytest.mark.parametrize("change", ["robot", "settings", "data"])
def test_resuming_something_else_is_refused(
    change: str, cartpole: Robot, plant_store: Store, short: Settings, uninterrupted: Path, tmp_path: Path
):
    run = tmp_path / "run"
    store, settings = plant_store, short
    shutil.copytree(uninterrupted, run)
    if change == "settings":
        settings = replace(short, clip=0.5)
    if change == "data":
        store = plant.make_store(seed=1)
    with pytest.raises(InputError, match=f"needs the {change}"):
        train(cartpole, "mine" if change == "robot" else "cartpole", "here", store, run, settings, resume=True)


def test_a_damaged_state_is_bad_input(short: Settings, uninterrupted: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(uninterrupted, run)
    for state in (run / "state").glob("*.safetensors"):
        state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(InputError, match="safetensors"):
        learn(run, short, resume=True)


# Refusals


def test_a_run_that_exists_is_refused_and_untouched(short: Settings, uninterrupted: Path):
    before = {p: p.read_bytes() for p in uninterrupted.rglob("*") if p.is_file()}
    with pytest.raises(InputError, match="already holds a run; add --resume"):
        learn(uninterrupted, short)
    assert {p: p.read_bytes() for p in uninterrupted.rglob("*") if p.is_file()} == before


def test_a_file_in_the_place_of_the_run_is_refused(short: Settings, tmp_path: Path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(InputError, match="give a folder"):
        learn(tmp_path / "run", short)
    assert (tmp_path / "run").read_text() == "mine"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"robot": "pendulum"}, "robot is 'pendulum' instead of 'cartpole'"),
        ({"dt": 0.01}, "dt is 0.01 s instead of 0.0166667 s"),
        ({"joints": plant.robot().spec.joints[::-1]}, r"joint order is \['hinge', 'slider'\]"),
        ({"controls": ("hinge",)}, r"controls are \['hinge'\]"),
    ],
)
def test_data_of_something_else_are_refused(
    changes: dict, words: str, plant_store: Store, short: Settings, trained_run: Path, tmp_path: Path
):
    header = replace(plant_store.header, spec=replace(plant_store.header.spec, **changes))
    other = dataclasses.replace(plant_store, header=header)
    with pytest.raises(MismatchError, match=words):
        learn(tmp_path / "run", short, other)
    assert not (tmp_path / "run").exists()
    if "robot" not in changes:
        with pytest.raises(MismatchError, match=words):
            finetune(str(trained_run), "here", other, tmp_path / "run", short)


def test_episodes_that_are_too_short_are_bad_input(short: Settings, tmp_path: Path):
    phases = (Phase(share=1, rate=1e-3, batch=4, forecast=30),)
    with pytest.raises(InputError, match="holds a window of 30 frames"):
        learn(tmp_path / "run", replace(short, phases=phases), plant.make_store(frames=20))
    assert not (tmp_path / "run").exists(), "what was refused can be started again with better input"


# Fine-tuning


@pytest.fixture(scope="module")
def tuning(quick: Settings, trained_run: Path) -> Settings:
    phases = (Phase(share=1, rate=2e-3, batch=64, forecast=6),)
    return replace(quick, phases=phases, steps=150)


@pytest.mark.trains
def test_finetuning_improves_on_other_data(trained_run: Path, tuning: Settings, quick: Settings, tmp_path: Path):
    shifted = plant.make_store(seed=5, gravity=5.0)
    finetune(str(trained_run), "shifted", shifted, tmp_path, tuning)
    errors = [
        beside_log(NEURAL.load(run), plant.robot(), shifted, split=Split.TEST, horizon=30).plain()["joint_rad"]
        for run in (trained_run, tmp_path)
    ]
    assert errors[1] < errors[0] / 2
    config = read_run_config(tmp_path)
    assert (config.base, config.robot) == (str(trained_run), "cartpole")


def test_finetuning_keeps_normalisation_and_encoding(trained_run: Path, tuning: Settings, tmp_path: Path):
    finetune(str(trained_run), "shifted", plant.make_store(seed=5, gravity=5.0), tmp_path, replace(tuning, steps=5))
    base, tuned = NEURAL.load(trained_run), NEURAL.load(tmp_path)
    assert tuned.encoding.config == base.encoding.config
    for name in ("normaliser", "denormaliser"):
        for key, tensor in getattr(base.predictor, name).state_dict().items():
            assert torch.equal(getattr(tuned.predictor, name).state_dict()[key], tensor)


@pytest.mark.trains
def test_finetuning_that_only_harms_leaves_the_base_model(
    trained_run: Path, plant_store: Store, tuning: Settings, tmp_path: Path
):
    ruinous = replace(tuning, phases=(Phase(share=1, rate=5.0, batch=8),), steps=20, warmup=0.0, clip=1e9)
    finetune(str(trained_run), "here", plant_store, tmp_path, ruinous)
    assert all(np.isnan(s) or s > 2 * scores(tmp_path)[0] for s in (s or np.nan for s in scores(tmp_path)[1:]))
    kept = [(run / "model" / "model.safetensors").read_bytes() for run in (trained_run, tmp_path)]
    assert kept[0] == kept[1]


def test_finetuning_keeps_the_last_weights_where_that_is_asked_for(
    trained_run: Path, plant_store: Store, tuning: Settings, tmp_path: Path
):
    harmful = replace(tuning, phases=(Phase(share=1, rate=1e-3, batch=8),), steps=4, warmup=0.0, keep="last")
    end = finetune(str(trained_run), "here", plant_store, tmp_path, harmful)
    assert end.best_step == 4
    kept = [(run / "model" / "model.safetensors").read_bytes() for run in (trained_run, tmp_path)]
    assert kept[0] != kept[1]


def test_finetuning_nothing_is_bad_input(plant_store: Store, tuning: Settings, tmp_path: Path):
    with pytest.raises(InputError, match="no such folder"):
        finetune(str(tmp_path / "nowhere"), "here", plant_store, tmp_path / "out", tuning)
    with pytest.raises(InputError, match="no pretrained model 'nothing'"):
        finetune("pretrained:nothing", "here", plant_store, tmp_path / "out", tuning)
