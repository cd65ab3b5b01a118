# SPDX-License-Identifier: Apache-2.0
"""Training of world models: it learns, resumes bitwise, keeps members apart, and refuses what it cannot learn from."""

import dataclasses
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from neurodyn import load
from neurodyn.core.artifacts import read_json, read_tree
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.data.mixture import Mixture
from neurodyn.data.store import Store
from neurodyn.data.training_range import training_range
from neurodyn.dynamics.world_model.model import WORLD_MODEL, WorldModel
from neurodyn.evaluate.run import training_log
from neurodyn.learn.metrics import read_metrics
from neurodyn.learn.world_model.settings import WorldPhase, WorldSettings, load_world_finetuning, load_world_settings
from neurodyn.learn.world_model.train import finetune_world_model, require_log, train_world_model
from neurodyn.learn.world_model.trainer import WorldModelLearner
from neurodyn.robots import Joint, Robot, names
from neurodyn.robots import load as load_robot
from tests import worlds
from tests.learn.callbacks import StopAt, Stopped

PHASES = (
    WorldPhase(share=0.5, rate=1e-2, batch=16, context=6, forecast=1, teach=1.0),
    WorldPhase(share=0.5, rate=3e-3, batch=16, context=6, forecast=5, loss="absolute"),
)
QUICK = WorldSettings(
    net=worlds.SMALL, phases=PHASES, steps=40, context=6, validations=4, validation_rollouts=16, validation_frames=20
)


@pytest.fixture(scope="module")
def robot() -> Robot:
    joints = tuple(Joint(name=j.name, kind=j.kind, continuous=j.continuous) for j in worlds.SPEC.joints)
    return Robot(name="spring", asset="none.urdf", joints=joints, actuated={"slide": 1.0, "wheel": 1.0}, dt=0.02)


def run(robot: Robot, store: Store, out: Path, settings: WorldSettings = QUICK, **options) -> WorldModel:
    train_world_model(robot, "spring", "spring.h5", store, out, settings, **options)
    return WORLD_MODEL.load(out)


@pytest.mark.trains
def test_training_learns_and_the_model_is_loaded_by_kind(robot: Robot, tmp_path: Path):
    model = run(robot, worlds.make_store(drag=5.0), tmp_path / "run", msgspec.structs.replace(QUICK, steps=120))
    lines = [line for line in read_metrics(tmp_path / "run") if "rollout_score" in line]
    # Seeds end at .70 to .84 of the best linear model, which the first is.
    assert min(line["rollout_score"] for line in lines) < 0.95 * lines[0]["rollout_score"]
    assert bool(model.fitted)
    assert model.terminates
    assert model.spec.context == 6
    assert (model.calibration_scales != 1).any()
    found = load(tmp_path / "run")
    assert isinstance(found, WorldModel)
    assert not any(p.requires_grad for p in found.parameters())
    assert read_json(tmp_path / "run" / "model" / "config.json")["kind"] == "world-model"


def test_a_model_that_was_never_trained_says_so(robot: Robot, tmp_path: Path):
    WORLD_MODEL.save(tmp_path / "run", worlds.make_model())
    assert not bool(WORLD_MODEL.load(tmp_path / "run").fitted)


@pytest.mark.parametrize(("step", "optimiser"), [(7, "soap"), (27, "soap"), (27, "adam")])
def test_a_stopped_training_resumes_bitwise(step: int, optimiser: str, robot: Robot, tmp_path: Path):
    settings, store = msgspec.structs.replace(QUICK, optimiser=optimiser), worlds.make_store()
    whole = run(robot, store, tmp_path / "whole", settings)
    with pytest.raises(Stopped):
        run(robot, store, tmp_path / "part", settings, callbacks=[StopAt(step)])
    again = run(robot, store, tmp_path / "part", settings, resume=True)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    with pytest.raises(InputError, match="settings that the run was started with"):
        run(robot, store, tmp_path / "part", msgspec.structs.replace(settings, seed=5), resume=True)
    with pytest.raises(InputError, match="already holds a run"):
        run(robot, store, tmp_path / "part", settings)


def test_a_phase_ends_early_without_improvement(robot: Robot, tmp_path: Path):
    # Rates at which nothing moves.
    phases = tuple(msgspec.structs.replace(phase, rate=1e-30) for phase in PHASES)
    settings = msgspec.structs.replace(QUICK, phases=phases, patience=1, validations=20, steps=100)
    train_world_model(robot, "spring", "spring.h5", worlds.make_store(), tmp_path / "run", settings)
    assert max(line["step"] for line in read_metrics(tmp_path / "run")) < 30


@pytest.mark.trains
def test_a_shared_trunk_and_a_net_without_memory_train_too(robot: Robot, tmp_path: Path):
    for name, change in (("shared", {"trunk": "shared"}), ("mlp", {"kind": "mlp"})):
        settings = msgspec.structs.replace(QUICK, net=msgspec.structs.replace(worlds.SMALL, **change), steps=120)
        run(robot, worlds.make_store(drag=5.0), tmp_path / name, settings)
        lines = [line for line in read_metrics(tmp_path / name) if "rollout_score" in line]
        assert min(line["rollout_score"] for line in lines) < 0.95 * lines[0]["rollout_score"]


def constant(store: Store, column: int) -> Store:
    rows = store.frames.copy()
    rows[:, column] = 2.5
    return dataclasses.replace(store, frames=rows)


def test_columns_that_never_change_are_refused_by_name_or_held(robot: Robot, tmp_path: Path):
    store = constant(worlds.make_store(), 6)
    with pytest.raises(InputError, match=r"1 columns that never change \('force'\)"):
        run(robot, store, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    model = run(robot, store, tmp_path / "held", msgspec.structs.replace(QUICK, constant="hold"))
    assert model.varying.tolist() == [True] * 4 + [False]
    x = torch.from_numpy(store.frames[:8])
    from neurodyn.dynamics.batch import State

    path = model.rollout(State(x[:, :2], x[:, 2:4], x[:, 6:7] + 1.0), torch.zeros(8, 30, 2))
    assert path.channels is not None
    assert torch.isfinite(path.q).all()
    torch.testing.assert_close(path.channels, torch.full_like(path.channels, 3.5))


def test_a_control_that_never_changes_is_named_too(robot: Robot, tmp_path: Path):
    with pytest.raises(InputError, match="'wheel control'"):
        run(robot, constant(worlds.make_store(), 5), tmp_path / "run")


def test_logs_that_are_too_short_are_refused(robot: Robot, tmp_path: Path):
    with pytest.raises(InputError, match=r"has 10 frames; warm-up and forecast need 11"):
        run(robot, worlds.make_store(frames=10), tmp_path / "run")


def test_data_of_another_robot_are_refused(robot: Robot):
    store = worlds.make_store()
    require_log(robot, store)
    other = msgspec.structs.replace(worlds.SPEC, controls=("slide",))
    header = msgspec.structs.replace(store.header, spec=other)
    with pytest.raises(InputError, match="controls are"):
        require_log(robot, dataclasses.replace(store, header=header))


def test_members_learn_from_episodes_of_their_own():
    from neurodyn.learn.samplers import MemberSampler

    store = worlds.make_store()
    make = lambda phase, batch=400: MemberSampler(  # noqa: E731
        store, 5, members=3, bootstrap=True, batch=batch, seed=0, phase=phase, device=torch.device("cpu")
    )
    seen = []
    for phase in (0, 1):
        batch = make(phase).draw()
        starts = batch.q[:, :, 0].numpy()
        rows = [{r.tobytes() for r in starts[m]} for m in range(3)]
        lookup = {store.q[i].tobytes(): e for e in range(32) for i in range(store.offsets[e], store.offsets[e + 1])}
        seen.append([{lookup[r] for r in member} for member in rows])
    assert all(a == b for a, b in zip(*seen, strict=True))  # the same in every phase
    assert seen[0][0] != seen[0][1]
    assert all(12 <= len(s) <= 28 for s in seen[0])  # a bootstrap of 32 leaves out about a third


@pytest.mark.parametrize("size", ["small", "paper"])
def test_general_settings_are_those_of_the_literature(size: str):
    settings = load_world_settings(load_robot("pendulum"), size)
    assert settings.net.members == 5
    assert any(phase.context == 32 and phase.forecast == 8 for phase in settings.phases)


@pytest.mark.parametrize("name", names())
def test_settings_that_ship_are_readable(name: str):
    assert load_world_settings(load_robot(name), "small").phases


def test_unknown_settings_are_refused(cartpole: Robot):
    with pytest.raises(InputError, match="unknown size 'huge'; valid: long, online, paper, short, small"):
        load_world_settings(cartpole, "huge")
    with pytest.raises(ValueError, match="forecast is 0; valid: at least 1"):
        WorldPhase(share=1.0, rate=1.0, batch=1, forecast=0)


def test_positive_labels_weigh_the_root_of_how_rare_they_are(robot: Robot):
    from neurodyn.learn.world_model.train import event_weights

    store = worlds.make_store()
    model = WorldModel(store.header.spec, worlds.SMALL, terminates=True)
    found = event_weights(model, store, QUICK)
    failures = np.sum(store.status[:32] == 4)
    rate = failures / (32 * 60)
    torch.testing.assert_close(found.positive[1], torch.tensor(((1 - rate) / rate) ** 0.5).float())


def test_sizes_differ_in_their_memory():
    robot = load_robot("pendulum")
    contexts = {size: load_world_settings(robot, size) for size in ("short", "small", "long")}
    assert [found.context for found in contexts.values()] == [4, 32, 64]
    for found in contexts.values():
        assert {phase.context for phase in found.phases} == {found.context}
        assert found.net == contexts["small"].net


def test_settings_that_come_with_a_robot_are_taken_before_the_general_ones():
    assert load_world_settings(load_robot("dfki-c1"), "small").context == 16


def test_several_logs_train_one_model_and_their_ranges_are_joined(robot: Robot, tmp_path: Path):
    calm, rough = worlds.make_store(failures=False), worlds.make_store(seed=5, noise=0.05)
    mixture = Mixture.of([calm, rough], [0.5, 0.5], ["calm.h5", "rough.h5"])
    settings = msgspec.structs.replace(QUICK, steps=12, validations=2)
    train_world_model(robot, "spring", mixture.names, mixture, tmp_path / "run", settings)
    model = WORLD_MODEL.load(tmp_path / "run")
    assert model.terminates  # one of the logs knows failures
    joined, own = model.training_range, training_range(calm)
    assert joined is not None
    assert joined == own.union(training_range(rough))
    assert joined != own
    assert len(joined.channels) == model.spec.nx == 1
    with pytest.raises(InputError, match=r"was trained on the log calm.h5, which is gone; name one with --data"):
        training_log(tmp_path / "run")
    with pytest.raises(Stopped):
        train_world_model(robot, "spring", mixture.names, mixture, tmp_path / "half", settings, callbacks=[StopAt(7)])
    train_world_model(robot, "spring", mixture.names, mixture, tmp_path / "half", settings, resume=True)
    whole, half = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("run", "half"))
    assert whole == half


@pytest.mark.trains
def test_fine_tuning_continues_from_a_model_and_is_never_worse(robot: Robot, tmp_path: Path):
    first = run(robot, worlds.make_store(drag=5.0), tmp_path / "first", msgspec.structs.replace(QUICK, steps=120))
    other, out = worlds.make_store(drag=2.0), tmp_path / "second"
    settings = msgspec.structs.replace(load_world_finetuning("finetune", first.net.config, 6), minutes=None, steps=40)
    settings = msgspec.structs.replace(settings, validation_rollouts=16, validation_frames=20)
    assert [phase.context for phase in settings.phases] == [6]
    finetune_world_model(str(tmp_path / "first"), "other.h5", other, out, settings)
    found, scores = load(out), [line["rollout_score"] for line in read_metrics(out) if "rollout_score" in line]
    assert isinstance(found, WorldModel)
    assert min(scores) < scores[0]  # of the first model
    for name in ("shift", "scale", "state_scale"):
        assert torch.equal(getattr(found, name), getattr(first, name))
    assert not torch.equal(found.net.mean.weight, first.net.mean.weight)
    still = tuple(msgspec.structs.replace(phase, rate=1e-30) for phase in settings.phases)
    finetune_world_model(
        str(tmp_path / "first"), "other.h5", other, tmp_path / "third", msgspec.structs.replace(settings, phases=still)
    )
    assert load(tmp_path / "third").trained
    with pytest.raises(InputError, match="already holds a run"):
        finetune_world_model(str(tmp_path / "first"), "other.h5", other, out, settings)


def test_fine_tuning_refuses_another_robot(robot: Robot, tmp_path: Path):
    run(robot, worlds.make_store(), tmp_path / "first")
    store = worlds.make_store()
    spec = msgspec.structs.replace(store.header.spec, dt=0.5)
    other = dataclasses.replace(store, header=msgspec.structs.replace(store.header, spec=spec))
    settings = load_world_finetuning("online", worlds.SMALL, 6)
    assert {phase.context for phase in settings.phases} == {6}
    with pytest.raises(MismatchError, match="not the robot that the model of 'spring' was trained on"):
        finetune_world_model(str(tmp_path / "first"), "other.h5", other, tmp_path / "second", settings)
    assert not (tmp_path / "second").exists()


def test_lengths_may_be_in_seconds(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("extends: world-model-small\ncontext: 0.2 s\nvalidation_frames: 1 s\n")
    robot = load_robot("cartpole")
    assert load_world_settings(robot, str(path)).context == round(0.2 / robot.dt)
    assert load_world_finetuning(str(path), worlds.SMALL, 6, dt=0.1).validation_frames == 10


@pytest.mark.parametrize("late", [False, True])
def test_a_poisoned_window_is_left_out_and_the_gradient_is_that_of_the_others(
    late: bool, robot: Robot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In a window within its episode, or in one that a failure cuts off."""
    settings = msgspec.structs.replace(QUICK, phases=(PHASES[1],), steps=1)
    store, draw = worlds.make_store(), WorldModelLearner.draw
    size = settings.phases[0].batch
    place = size + 1 if late else 5

    def poisoned(self: WorldModelLearner) -> None:
        draw(self)
        windows, at = (self._batch[1].windows, place - size) if late else (self._batch[0], place)
        windows.qd[-1, at, 2] = torch.nan  # of one member

    def without(self: WorldModelLearner) -> None:
        draw(self)
        self.keep_windows(torch.tensor([i for i in range(self.windows()) if i != place]))

    found = {}
    for name, changed in (("poisoned", poisoned), ("without", without)):
        monkeypatch.setattr(WorldModelLearner, "draw", changed)
        train_world_model(robot, "spring", "spring.h5", store, tmp_path / name, settings)
        found[name] = read_tree(tmp_path / name / "state", "training")["model"]
    assert all(torch.equal(found["poisoned"][key], found["without"][key]) for key in found["without"])
    verdict = read_metrics(tmp_path / "poisoned")[-1]["verdict"]
    assert "1 windows were left out of their batches" in verdict
