# SPDX-License-Identifier: Apache-2.0
"""Quantities with values of their own in each group of runs: fitted, rolled out, and told by a run's first second."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.errors import Notice
from neurodyn.data.header import Split, Status, StoreHeader, episode_table
from neurodyn.data.mixture import join_stores
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.rollout_errors import Judgement, RolloutErrors
from neurodyn.evaluate.run import open_along_log
from neurodyn.identify import AdaptationSettings, adapt
from neurodyn.identify.ladder.own_quantities import with_groups, with_own
from neurodyn.identify.ladder.references import TrainedReference
from neurodyn.identify.ladder.rungs import Ladder, held_out_errors, held_out_windows
from neurodyn.identify.result import OwnQuantities, read_adaptation
from neurodyn.identify.stages.agreement import shared_groups
from tests.identify.pendulum import SPEC, dynamics, true_noise, values, windows
from tests.identify.stand_ins import DAMPING, cartpole_log, worn_cartpole
from tests.identify.test_agreement import OTHER, SETTINGS

DAMPINGS = {"left": 0.05, "right": 0.4}
OWN = OwnQuantities(
    by="group", names=["elbow.damping"], groups={name: [value] for name, value in DAMPINGS.items()},
    scale=[2e-3] * 2 + [2e-2] * 2,
    noise=[2e-3] * 2 + [2e-2] * 2,
)  # fmt: skip


def pendulum_log(dampings: dict[str, float], frames: int = 120) -> Store:
    """Two runs of each group of pendulums with another damping in the elbow, one for the fit, one held out."""
    model, parts = dynamics("elbow.damping"), []
    for seed, damping in enumerate(dampings.values()):
        parts.append(windows(model, {"elbow.damping": damping}, count=2, frames=frames, seed=seed))
    rows = [
        np.concatenate([part.q[k], part.qd[k], np.concatenate([part.control[k], part.control[k, -1:]])], 1)
        for part in parts
        for k in range(2)
    ]
    group = np.repeat(np.arange(len(dampings)), 2)
    table = episode_table(
        [frames] * len(rows), group=group, run=np.arange(len(rows)), split=[Split.TRAIN, Split.VALIDATION] * len(parts),
        status=Status.LOG,
    )  # fmt: skip
    header = StoreHeader(
        spec=SPEC, source="log", groups=tuple(dampings), runs=tuple(f"run {k}" for k in range(len(rows)))
    )
    return Store(header, np.concatenate(rows).astype(np.float32), table)


def errors(store: Store) -> float:
    model = dynamics("elbow.damping")
    model.physical.set_values(values(model, {"elbow.damping": OWN.usual[0]}))
    held_out, frames = held_out_windows(store, Split.VALIDATION, 0, (0.5,), 20)
    return float(held_out_errors(model, store, held_out).errors[:, frames[0] - 1].mean())


def test_each_group_rolls_out_with_its_own_values():
    store = pendulum_log(DAMPINGS)
    known = with_groups(store, OWN)
    assert known.header.parameters == {"elbow.damping": pytest.approx(0.225)}
    assert known.parameters is not None
    assert known.parameters[:, 0].tolist() == pytest.approx([0.05, 0.05, 0.4, 0.4])
    assert errors(known) < 0.2 * errors(store)


def test_a_run_of_no_known_group_begins_after_the_second_that_tells_its_values():
    store = pendulum_log({"left": 0.05, "other": 0.3})
    known, fitted = with_own(store, OWN, dynamics("elbow.damping"))
    assert list(fitted) == ["run 2", "run 3"]
    assert known.parameters is not None
    assert known.parameters[:2, 0].tolist() == pytest.approx([0.05, 0.05])
    assert known.parameters[2:, 0].tolist() == pytest.approx([0.3, 0.3], abs=0.06)
    assert known.lengths.tolist() == [120, 120, 70, 70]
    assert np.array_equal(known.episode(2)[0], store.episode(2)[0][50:])
    three = msgspec.structs.replace(OWN, groups=OWN.groups | {"third": [0.25]})
    again = with_own(store, three, dynamics("elbow.damping"))[0].parameters
    assert again is not None
    assert again[2:, 0].tolist() == pytest.approx([0.3, 0.3], abs=0.06)
    short, nothing = with_own(pendulum_log({"other": 0.3}, frames=80), OWN, dynamics("elbow.damping"))
    assert nothing == {}
    assert short.parameters is not None
    assert short.parameters[:, 0].tolist() == pytest.approx([0.225, 0.225])


def test_one_of_several_logs_of_a_fit_is_no_new_one():
    own = msgspec.structs.replace(OWN, by="run")
    store = pendulum_log({"left": 0.4})  # whose header knows nothing of the fit's names
    known, fitted = with_own(store, own, dynamics("elbow.damping"), "right")
    assert fitted == {}
    assert known.parameters is not None
    assert known.parameters[:, 0].tolist() == pytest.approx([0.4, 0.4])


def test_groups_are_shared_if_fit_and_validation_hold_all_of_them():
    store = pendulum_log(DAMPINGS)
    assert shared_groups(store) == ("left", "right")
    assert shared_groups(store.select([0, 1, 2])) == ()
    assert shared_groups(replace(store, header=msgspec.structs.replace(store.header, groups=()))) == ()
    played = msgspec.structs.replace(store.header, notes={"policies": ["left", "right"]})
    assert shared_groups(replace(store, header=played)) == ()


@pytest.mark.parametrize("fitted", [0, 2, 3])
def test_training_episodes_settle_what_validation_leaves_open_of_few_quantities(fitted: int):
    store = pendulum_log(dict.fromkeys(("a", "b", "c", "d"), 0.05))
    below, above = dynamics("elbow.damping"), dynamics("elbow.damping")
    for model, damping in ((below, 0.2), (above, 0.05)):
        model.physical.set_values(values(model, {"elbow.damping": damping}))
    left = Judgement(False, 0.99, "0.99 of the error", open=True)
    ladder = Ladder(store, 0, AdaptationSettings(seconds=(0.2, 0.5), rollouts_each=10), None, fitted)
    settled = ladder._judged_on_more(left, below, above, 0, (0.2, 0.5))
    assert settled.kept == (fitted == 2)  # four training episodes
    assert settled.reason.startswith(left.reason)
    assert ("on training episodes" in settled.reason) == settled.kept


def test_states_are_fitted_to_few_frames_where_a_model_errs_and_to_many_where_it_does_not():
    store = pendulum_log({"a": 0.05, "b": 0.05})
    ladder = Ladder(store, 0, AdaptationSettings(seconds=(0.2, 0.5), rollouts_each=40, context=20), true_noise())
    contexts = []
    for damping in (0.05, 0.8):
        model = dynamics("elbow.damping")
        model.physical.set_values(values(model, {"elbow.damping": damping}))
        contexts.append(ladder.with_best_context(model).context)
    assert contexts[0] == 20
    assert contexts[1] in (2, 3, 5)
    as_logged = replace(ladder, noise=None)
    assert as_logged.with_best_context(dynamics("elbow.damping")) is as_logged


def test_measured_velocities_are_filtered_where_roll_outs_then_err_less():
    store, model = pendulum_log(dict.fromkeys("abcd", 0.05)), dynamics("elbow.damping")
    model.physical.set_values(values(model, {"elbow.damping": 0.05}))
    frames = np.array(store.frames)
    frames[:, 2:4] += np.random.default_rng(0).normal(0.0, 0.3, (len(frames), 2))
    noise = true_noise((2e-3, 0.3))
    ladder = Ladder(replace(store, frames=frames), 0, AdaptationSettings(seconds=(0.1, 0.5), rollouts_each=20))
    found = ladder.with_best_starts(model, noise)
    assert found.start == "filtered"
    before, after = (float(one.held_out(model, 10).errors.errors[:, 9].mean()) for one in (ladder, found))
    assert after < 0.6 * before
    asked = msgspec.structs.replace(ladder.settings, start="logged")
    assert replace(ladder, settings=asked).with_best_starts(model, noise).start == "logged"
    exact = true_noise((1e-6, 1e-6))  # states of a simulator
    assert ladder.with_best_starts(model, exact).start == "logged"


class _Beside:
    """A model beside the ladder, which is a pendulum, too."""

    name, context, cpu_seconds = "gru", 0, 0.0

    def __init__(self, damping: float):
        self.model = dynamics("elbow.damping")
        self.model.physical.set_values(values(self.model, {"elbow.damping": damping}))

    def errors(self, store: Store, windows: Windows) -> RolloutErrors:
        return held_out_errors(self.model, store, windows)


def test_networks_are_asked_for_where_a_model_beside_is_better():
    store = pendulum_log({"a": 0.05})
    ladder = Ladder(store, 0, AdaptationSettings(seconds=(0.2, 0.5), rollouts_each=10))
    good, bad = _Beside(0.06), _Beside(0.2)
    assert ladder.behind(bad.model, [cast(TrainedReference, good)])
    assert not ladder.behind(good.model, [cast(TrainedReference, bad)])
    assert not ladder.behind(bad.model, [])


@pytest.mark.slow
def test_adapt_gives_groups_of_runs_values_of_their_own(tmp_path: Path):
    stores = [
        cartpole_log(tmp_path / f"{name}.h5", worn_cartpole(damping=damping), seed=seed)
        for seed, (name, damping) in enumerate({"left": DAMPING, "right": OTHER}.items())
    ]
    joined = join_stores(stores, ["left", "right"])
    table = joined.table.copy()
    table["group"], table["run"] = table["run"], np.arange(len(table))
    runs = tuple(f"run {k}" for k in range(len(table)))
    header = msgspec.structs.replace(joined.header, groups=("left", "right"), runs=runs)
    log = replace(joined, header=header, table=table)
    log.write(tmp_path / "log.h5")
    out = tmp_path / "run"
    adapt("cartpole", tmp_path / "log.h5", out, settings=SETTINGS, threads=1)
    figures = read_adaptation(out)
    assert figures is not None
    own = figures.own
    assert isinstance(own, OwnQuantities)
    k = own.names.index("hinge.damping")
    assert own.groups["right"][k] / own.groups["left"][k] == pytest.approx(OTHER / DAMPING, rel=0.15)
    _, _, _, along = open_along_log(out, tmp_path / "log.h5")
    assert along.parameters is not None
    assert along.parameters[0].tolist() == pytest.approx(own.groups["left"])

    renamed = replace(log, header=msgspec.structs.replace(header, groups=("left", "another")))
    renamed.write(tmp_path / "renamed.h5")
    with pytest.warns(Notice, match=r"which told their own values: run 16 \(.*hinge\.damping "):
        along = open_along_log(out, tmp_path / "renamed.h5")[3]
    model = HYBRID.load(out)
    assert set(own.names) <= set(model.own_quantities)
    assert along.parameters is not None
    assert torch.tensor(along.parameters[16:, k]).median() == pytest.approx(own.groups["right"][k], rel=0.25)
