# SPDX-License-Identifier: Apache-2.0
"""Members of neural dynamics are trained side by side as each would be alone, and disagree where there were no data."""

import dataclasses
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor

from neurodyn.core.artifacts import read_tree
from neurodyn.core.config import to_yaml
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.mixture import Mixture
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.learn import finetune, train
from neurodyn.learn.metrics import read_metrics
from neurodyn.learn.neural.settings import Phase, Settings
from neurodyn.learn.neural.train import read_run_config
from neurodyn.learn.neural.train import train as train_neural
from neurodyn.learn.neural.trainer import NeuralLearner
from neurodyn.learn.samplers import MemberSampler
from neurodyn.nets.networks import NetConfig
from tests import plant
from tests.learn.callbacks import StopAt, Stopped

replace = msgspec.structs.replace


def weights(run: Path) -> dict[str, Tensor]:
    """The last weights, not the best ones: which are best is decided for all members together."""
    return read_tree(run / "state", "training")["model"]


@pytest.fixture(scope="module")
def short(quick: Settings) -> Settings:
    phases = (
        Phase(share=0.5, rate=5e-3, batch=32, loss="absolute", balance=0.1),
        Phase(share=0.5, rate=2e-3, batch=16, forecast=3, loss="absolute"),
    )
    return replace(quick, phases=phases, steps=30, validations=2, validation_rollouts=16, members=2)


def run(store: Store, out: Path, settings: Settings, **options: object) -> dict[str, Tensor]:
    train_neural(plant.robot(), "cartpole", "plant.h5", store, out, settings, **options)  # type: ignore[arg-type]
    return weights(out)


def test_a_member_learns_the_same_whoever_learns_beside_it(plant_store: Store, short: Settings, tmp_path: Path):
    two = run(plant_store, tmp_path / "two", short)
    three = run(plant_store, tmp_path / "three", replace(short, members=3))
    for name, tensor in two.items():
        if name.startswith("predictor.") and "normaliser" not in name:
            assert not torch.equal(three[name][1], three[name][2]), name
            torch.testing.assert_close(tensor, three[name][:2], rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("kind", ["mlp", "gru"])
def test_a_stopped_training_of_members_resumes_bitwise(kind: str, plant_store: Store, short: Settings, tmp_path: Path):
    settings = replace(short, net=plant.NETS[kind])
    whole = run(plant_store, tmp_path / "whole", settings)
    with pytest.raises(Stopped):
        run(plant_store, tmp_path / "part", settings, callbacks=[StopAt(20)])
    again = run(plant_store, tmp_path / "part", settings, resume=True)
    assert all(torch.equal(again[name], tensor) for name, tensor in whole.items())
    with pytest.raises(InputError, match="settings that the run was started with"):
        run(plant_store, tmp_path / "part", replace(settings, members=3), resume=True)


def test_members_draw_from_episodes_of_their_own_and_keep_each_files_share(plant_store: Store):
    mixture = Mixture.of([plant_store, plant.make_store(seed=1)], [0.25, 0.75])
    sampler = MemberSampler(
        mixture, 4, members=3, bootstrap=True, batch=40, seed=0, phase=0, device=torch.device("cpu")
    )
    parts = sampler.draw_rows()
    assert [number for number, _, _ in parts] == [0, 1]
    assert [[int((m == k).sum()) for k in range(3)] for _, _, m in parts] == [[10, 10, 10], [30, 30, 30]]
    assert all(len(batch.q) == len(members) for _, batch, members in parts)
    starts = [{tuple(q) for q in parts[1][1].q[parts[1][2] == k][:, 0].tolist()} for k in range(3)]
    assert starts[0] != starts[1]


def still(store: Store) -> Store:
    """The episodes of a store in which the pendulum turns slowly, each of them twice or more."""
    rows = store.frames.reshape(len(store.table), -1, store.frames.shape[1])
    slow = np.abs(rows[..., 3]).max(1) < np.median(np.abs(rows[..., 3]).max(1))
    kept = np.flatnonzero(slow)
    table = store.table[kept].copy()
    table["start"] = np.arange(len(kept)) * rows.shape[1]
    table["split"] = np.where(np.arange(len(kept)) % 5 == 0, int(Split.VALIDATION), int(Split.TRAIN))
    return dataclasses.replace(store, frames=np.ascontiguousarray(rows[kept].reshape(-1, rows.shape[-1])), table=table)


@pytest.mark.trains
def test_members_disagree_where_there_were_no_data(plant_store: Store, short: Settings, tmp_path: Path):
    net = NetConfig(kind="mlp", width=24, depth=2)
    run(still(plant_store), tmp_path / "run", replace(short, members=4, net=net, steps=400))
    model = NEURAL.load(tmp_path / "run")
    q = torch.rand(64, 2) - 0.5
    usual, beyond = (
        model.rollout(State(q, speed * torch.ones(64, 2)), torch.zeros(64, 20, 1)).epistemic[:, -1, :].median(0).values
        for speed in (0.5, 12.0)
    )
    assert (beyond[2:] > 4.0 * usual[2:]).all(), (usual, beyond)


def test_fine_tuning_keeps_the_members_and_their_files(plant_file: Path, short: Settings, tmp_path: Path):
    size = tmp_path / "short.yaml"
    size.write_text(to_yaml(short))
    train("cartpole", str(plant_file), tmp_path / "base", size=str(size), members=3)
    assert read_run_config(tmp_path / "base").settings.members == 3
    base = NEURAL.load(tmp_path / "base")
    assert (base.calibration_scales != 1).any()
    spread = torch.from_numpy(plant.make_store().frames[:, :4]).std(0)
    torch.testing.assert_close(base.state_scale, spread, rtol=0.25, atol=0.0)
    finetune(tmp_path / "base", str(plant_file), tmp_path / "tuned", steps=10)
    tuned = NEURAL.load(tmp_path / "tuned")
    assert tuned.members == 3
    assert read_run_config(tmp_path / "tuned").settings.members == 3
    assert weights(tmp_path / "tuned")["predictor.skip.weight"].shape == base.predictor.skip.weight.shape


@pytest.mark.parametrize(("given", "message"), [
    ({"members": 0}, "members is 0; valid: at least 1"),
    ({"members": 2, "net": "transformer"}, "a transformer has only one; valid: 1"),
    ({"members": 0, "kind": "world-model"}, "members is 0; valid: a whole number of at least 1"),
])  # fmt: skip
def test_members_that_cannot_be_are_refused(given: dict, message: str, plant_file: Path, tmp_path: Path):
    with pytest.raises(InputError, match=message):
        train("cartpole", str(plant_file), tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("phase", [0, 1])
def test_a_poisoned_window_is_left_out_and_the_gradient_is_that_of_the_others(
    phase: int, plant_store: Store, short: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = replace(short, phases=(short.phases[phase],), steps=1)
    draw, place = NeuralLearner.draw, 5

    def poisoned(self: NeuralLearner) -> None:
        draw(self)
        (part,) = self._batch
        part.batch.q[settings.phases[0].batch + place, 1] = torch.nan  # of the second member

    def without(self: NeuralLearner) -> None:
        draw(self)
        self.keep_windows(torch.tensor([i for i in range(self.windows()) if i != place]))

    found = {}
    for name, changed in (("poisoned", poisoned), ("without", without)):
        monkeypatch.setattr(NeuralLearner, "draw", changed)
        found[name] = run(plant_store, tmp_path / name, settings)
    assert all(torch.equal(found["poisoned"][key], found["without"][key]) for key in found["without"])
    lines = read_metrics(tmp_path / "poisoned")
    assert "1 windows were left out of their batches" in lines[-1]["verdict"]
