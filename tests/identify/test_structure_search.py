# SPDX-License-Identifier: Apache-2.0
"""What a declaration lacks is found where a fit asks for it; what the user knows is held."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import mujoco
import numpy as np
import pytest
import torch

from neurodyn.core.description.mechanism import INERTIA_ENTRIES
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split, StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.identify import AdaptationSettings
from neurodyn.identify.ladder.structures import FitModel, structures
from neurodyn.identify.motors import with_motors
from neurodyn.identify.stages import growing_windows, structure_search
from neurodyn.identify.stages.growing_windows import Fitting
from neurodyn.identify.stages.lasting_errors import LastingError
from neurodyn.identify.stages.structure_choice import best_structure
from neurodyn.identify.stages.structure_kinds import StructureCandidate
from neurodyn.identify.stages.structure_screening import Screened, candidates_for, describe
from neurodyn.identify.stages.structure_search import (
    StructureSearch,
    by_error,
    with_structure,
)
from neurodyn.identify.unknowns.bodies import BodyTensors, with_ball, with_moment
from neurodyn.identify.unknowns.delay_trades import delays_traded
from neurodyn.identify.unknowns.priors import parse_known
from neurodyn.robots import load
from neurodyn.sim import declare
from tests.identify import faulty_arm

pytest.importorskip("newton")

ARM = faulty_arm.ARM.replace('mass="3"', 'mass="2.973"').replace('mass="1.5"', 'mass="1.487"')
"""Round masses count as guessed, and get wide priors."""
LOAD, PLACE, DT, SETTINGS = 0.9, (0.03, 0.0, -0.25), faulty_arm.DT, faulty_arm.SETTINGS


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Store]:
    """A declared arm, and the log of one that carries something."""
    folder = tmp_path_factory.mktemp("arm")
    (folder / "arm.xml").write_text(ARM)
    declare(folder / "arm.xml", folder / "declared", name="arm", dt=DT)
    robot = load(folder / "declared")
    spec = mujoco.MjSpec.from_string(ARM)
    body = spec.body("lower").add_body(name="load", pos=PLACE)
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.03, 0, 0], mass=LOAD, contype=0, conaffinity=0)
    model = spec.compile()
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    episodes, frames = 6, 300
    q, qd = np.zeros((2, episodes, frames + 1, 2), np.float32)
    control = np.zeros((episodes, frames, 2), np.float32)
    for episode in range(episodes):
        mujoco.mj_resetData(model, data)
        rates, phases = rng.uniform(0.3, 1.2, (3, 2)), rng.uniform(0, 6, (3, 2))
        for frame in range(frames + 1):
            q[episode, frame], qd[episode, frame] = data.qpos, data.qvel
            if frame < frames:
                wave = 0.5 * np.sin(2 * np.pi * rates * frame * DT + phases).sum(0) * min(1.0, frame * DT / 0.5)
                control[episode, frame] = data.ctrl[:] = wave
                mujoco.mj_step(model, data, round(DT / model.opt.timestep))
    q += rng.normal(0, 1e-4, q.shape).astype(np.float32)
    qd += rng.normal(0, 2e-3, qd.shape).astype(np.float32)
    split = np.array([Split.TRAIN] * 4 + [Split.VALIDATION] * 2, np.int8)
    with StoreWriter(folder / "log.h5", StoreHeader(spec=robot.spec, source="log")) as writer:
        writer.append(q, qd, control, lengths=np.full(episodes, frames), split=split)
    return folder / "declared", Store.open(folder / "log.h5")


def fit_model(arm: tuple[Path, Store], settings: AdaptationSettings) -> FitModel:
    robot = with_motors(load(arm[0]), arm[1])
    return structures(FitModel.declared(robot, str(arm[0]), settings), settings)[0]


def test_a_payload_is_found_on_the_link_that_carries_it(arm: tuple[Path, Store]):
    fitting, _ = best_structure([fit_model(arm, SETTINGS)], arm[1], SETTINGS, 1)
    search = StructureSearch(fitting).run(fitting.run().stages)
    kept, tried = search.kept[0], search.tried[0]
    assert (kept.kind, kept.place) == ("payload", "elbow")
    assert search.unseen is None, "it is fitted"
    assert tried.kept
    assert tried.share < 1.0
    assert tried.asked_by
    space, x = search.fitting.space, search.fitting.x
    assert space.carrier == "elbow"
    assert float(space.value("payload.z", x)) < -0.1


@pytest.mark.parametrize(("deviations", "gain", "lasting", "rounds"), [
    (4.0, 0.0, [], ["nearer", []]), (1.0, 0.0, ["roll", "bend"], [[], ["roll"]]), (1.0, 0.0, [], []),
    (4.0, 0.0, ["roll"], ["nearer", [], ["roll"]]), (1.0, 50.0, [], [["wrist"]]),
])  # fmt: skip
def test_a_finished_fit_asks_again_for_masses_a_payload_and_errors_that_last(
    monkeypatch: pytest.MonkeyPatch, deviations: float, gain: float, lasting: list[str], rounds: list[Any]
):
    loads = [Screened(payload_on("elbow"), 0.01, gain=0.5 * gain), Screened(payload_on("wrist"), 0.01, gain=gain)]
    monkeypatch.setattr(structure_search, "screen", lambda *_, **__: loads)
    space = SimpleNamespace(names=("wrist.mass_scale",), has=lambda _: False)
    fitted = SimpleNamespace(
        space=space, x=torch.tensor([deviations]), scale=torch.ones(1), held_out_cost=lambda: 2.0, touches=False,
        stages=SETTINGS.stages, stage_of=lambda _: SETTINGS.stages[0], spec=SimpleNamespace(controls=lasting),
    )  # fmt: skip
    search, tried = StructureSearch(cast(Fitting, fitted), costs={"5 frames": 1.0}), list[Any]()
    fit = lambda chosen, *, nearer: tried.append([one.candidate.place for one in chosen]) or bool(chosen)  # noqa: E731
    monkeypatch.setattr(search, "_settle", lambda: None)
    monkeypatch.setattr(search, "_move_payload", lambda: False)
    monkeypatch.setattr(search, "_round", lambda *, nearer: tried.append("nearer") or False)
    monkeypatch.setattr(search, "_fit_best", fit)
    monkeypatch.setattr(search, "_round_of_springs", lambda joints: tried.append(joints) or True)
    errors = [LastingError(name, 1e-3, times) for name, times in (*((one, 2.0) for one in lasting), ("elbow", 1.2))]
    kept = search.look_again(cast(Fitting, fitted), errors)
    assert (tried, kept) == (rounds, bool(lasting) or gain > 0.0)


def test_a_payload_on_the_wrong_link_moves_to_another(arm: tuple[Path, Store]):
    bare = Fitting(fit_model(arm, SETTINGS), arm[1], SETTINGS, 1)
    wrong = with_structure(bare.model, payload_on("shoulder"), bare.space, SETTINGS)
    fitting = bare.with_model(wrong)
    search = StructureSearch(fitting, [payload_on("shoulder")], costs=fitting.run().stages)
    assert search._move_payload()
    assert [one.place for one in search.kept] == ["elbow"]
    assert search.fitting.model.structure == "a payload on the link of elbow"
    assert search.fitting.space.carrier == "elbow"
    assert float(search.fitting.space.value("payload.mass", search.fitting.x)) == pytest.approx(LOAD, rel=0.2)


@pytest.mark.parametrize(("deviations", "others"), [(-4.0, ["elbow", "wrist"]), (1.0, [])])
def test_a_payload_beside_implausible_masses_is_tried_on_the_other_links(deviations: float, others: list[str]):
    search = StructureSearch(cast(Fitting, None))
    search._loads = [Screened(payload_on(link), 0.0) for link in ("shoulder", "elbow", "wrist")]
    fitted = SimpleNamespace(space=SimpleNamespace(names=("wrist.mass_scale",)), x=torch.tensor([deviations]))
    told = SimpleNamespace(kept=True, share=0.9)
    tried = SimpleNamespace(candidate=payload_on("shoulder"), fitting=fitted, told=told)
    assert [one.candidate.place for one in search._other_places([cast(Any, tried)])] == others


def test_a_candidate_is_fitted_once_beside_the_same_fit(monkeypatch: pytest.MonkeyPatch):
    search, fits = StructureSearch(cast(Fitting, None)), []
    monkeypatch.setattr(search, "_fit_and_judge", lambda one, _: fits.append(one.candidate.place) or object())
    light, heavy = ({"payload.mass": mass} for mass in (0.5, 1.0))
    elbow, other = (Screened(payload_on("elbow"), 0.1, starts=(start,)) for start in (light, heavy))
    first = search._try(elbow)
    assert search._try(Screened(payload_on("elbow"), 0.2, starts=(dict(light),))) is first
    assert search._try(other) is not first
    search._try(Screened(payload_on("wrist"), 0.1, starts=(light,)))
    assert fits == ["elbow", "elbow", "wrist"]
    search._forget()  # of another fit
    assert search._try(elbow) is not first


def payload_on(link: str) -> StructureCandidate:
    return StructureCandidate("payload", link, ())


def test_only_structures_of_free_quantities_are_tried(arm: tuple[Path, Store]):
    names = {describe(one) for one in candidates_for(fit_model(arm, SETTINGS), SETTINGS)}
    assert "a payload on the link of elbow" in names
    assert "another centre of mass of the link of shoulder" in names
    few = AdaptationSettings(quantities=("*.damping",))
    assert candidates_for(fit_model(arm, few), few) == []


def test_what_is_known_is_held_exactly(arm: tuple[Path, Store]):
    with pytest.raises(InputError, match=r"known: 'payload.size' matches no quantity"):
        fit_model(arm, AdaptationSettings(known={"actuator.*.kp": 150.0, "payload.size": 0.5}))
    model = fit_model(arm, AdaptationSettings(known={"actuator.*.kp": 150.0}))
    assert model.space is not None
    assert not any(name.endswith(".kp") for name in model.space.names)
    values = dict(zip(model.space.quantities, model.space.values(model.space.nominal).tolist(), strict=True))
    assert values["actuator.elbow.kp"] == values["actuator.shoulder.kp"] == 150.0
    with pytest.raises(InputError, match=r"known: .*elbow\.mass"):
        fit_model(arm, AdaptationSettings(known={"elbow.mass": -1.0}))


@pytest.mark.parametrize("text", ["elbow.mass", "elbow.mass=heavy"])
def test_malformed_known_values_are_refused(text: str):
    assert parse_known(["elbow.mass=2"]) == parse_known({"elbow.mass": 2.0}) == {"elbow.mass": 2.0}
    with pytest.raises(InputError, match="valid: NAME=VALUE"):
        parse_known([text])


def test_gains_far_from_a_placeholder_get_a_wider_prior(arm: tuple[Path, Store]):
    space = fit_model(arm, SETTINGS).space
    assert space is not None
    k, x = space.names.index("actuator.elbow.kp"), space.nominal.clone()
    x[k] = -6.0
    wider, moved = space.widened(x, 3.0)
    assert abs(float(moved[k])) <= 1.0 + 1e-9
    assert float(wider.value("actuator.elbow.kp", moved)) == pytest.approx(float(space.value("actuator.elbow.kp", x)))
    assert wider.coordinates[k].of(120.0 / 100.0) > float(wider.lower[k])
    torch.testing.assert_close(wider.converted(x, space), moved)


def test_values_at_a_bound_are_exactly_that(arm: tuple[Path, Store]):
    space = fit_model(arm, SETTINGS).space
    assert space is not None
    lowest = space.lower.clone()
    for name in ("elbow.damping", "elbow.friction", "motors.delay"):
        assert float(space.value(name, lowest)) == 0.0


def test_a_delay_is_traded_for_damping_and_inertia(arm: tuple[Path, Store]):
    fitting = Fitting(fit_model(arm, SETTINGS), arm[1], SETTINGS, 1)
    space, x = fitting.space, fitting.space.nominal
    ((moved,),) = delays_traded(space, x, (0.002,))
    before, after = (float(space.value("actuator.elbow.kd", at)) for at in (x, moved))
    assert float(space.value("motors.delay", moved) - space.value("motors.delay", x)) == pytest.approx(0.002)
    assert after == pytest.approx(before - 120.0 * 0.002)


@pytest.mark.parametrize(("bottom", "stays"), [(0.004, False), (0.0, True)])
def test_a_fit_goes_on_from_the_delay_from_which_a_search_ends_lowest(
    arm: tuple[Path, Store], monkeypatch: pytest.MonkeyPatch, bottom: float, stays: bool
):
    fitting = Fitting(fit_model(arm, SETTINGS), arm[1], SETTINGS, 1)
    begin, searched = fitting.x, list[float]()

    def search(self: Fitting, *_: Any) -> float:
        searched.append(float(self.space.value("motors.delay", self.x)))
        return abs(searched[-1] - bottom)

    monkeypatch.setattr(Fitting, "_search", search)
    fitting.hop(fitting.stages[-1])
    assert searched[0] == float(fitting.space.value("motors.delay", begin))
    assert 1 < len(searched) <= 4
    assert (fitting.x is begin) == stays
    now = float(fitting.space.value("motors.delay", fitting.x))
    assert now == min(searched, key=lambda delay: abs(delay - bottom))


def test_coordinates_that_no_search_moves_do_not_keep_a_fit_from_its_own_derivatives(
    arm: tuple[Path, Store], monkeypatch: pytest.MonkeyPatch
):
    fitting = Fitting(fit_model(arm, SETTINGS), arm[1], SETTINGS, 1)
    monkeypatch.setattr(growing_windows, "_WIDE", len(fitting.x) - 1)
    assert not fitting.take_own_derivatives()
    monkeypatch.setattr(fitting, "_seen", torch.arange(len(fitting.x) - 1))  # as without limits that are not reached
    assert fitting.take_own_derivatives()


def test_bodies_with_something_added_are_those_of_both():
    value = lambda number: torch.tensor(number, dtype=torch.float64)  # noqa: E731
    entries = dict(zip(INERTIA_ENTRIES, map(value, (0.02, 0.03, 0.04, 0.0, 0.001, 0.0)), strict=True))
    body = BodyTensors(value(2.0), [value(0.1), value(0.0), value(-0.2)], entries)
    place = [value(0.3), value(0.1), value(0.0)]
    ball = with_ball(body, value(0.5), place, value(0.0))
    moment = with_moment(body, value(0.5), [0.5 * p for p in place])
    assert float(ball.mass) == float(moment.mass) == 2.5
    for one, other in zip(ball.centre, moment.centre, strict=True):
        assert float(one) == pytest.approx(float(other))
    # About the frame's origin the ball adds its own inertia, the moment nothing.
    far = {e: float(ball.inertia[e] - moment.inertia[e]) for e in INERTIA_ENTRIES}
    assert far["xx"] == pytest.approx(0.5 * (0.1**2))
    assert far["zz"] == pytest.approx(0.5 * (0.3**2 + 0.1**2))


def test_joints_of_a_floating_robot_are_ordered_by_their_own_errors():
    spec = load("ant").spec
    truth = torch.zeros(2, 4, spec.nq)
    truth[..., 6] = 1.0
    predicted = truth.clone()
    predicted[..., -1], predicted[..., 7] = 0.2, 0.1
    rates = torch.zeros(2, 4, spec.nv)
    order = by_error(spec.controls, RolloutErrors(spec, Trajectory(predicted, rates), Trajectory(truth, rates)))
    assert order[:2] == [spec.q_names[-1], spec.q_names[7]]
    assert sorted(order) == sorted(spec.controls)
