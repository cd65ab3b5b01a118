# SPDX-License-Identifier: Apache-2.0
"""Doubts about adaptations and logs: each names its cause, and sound ones have none."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.core.verdict import Finding, of_horizons
from neurodyn.data.header import CONTROL, Delay, Split, StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.identify import AdaptationSettings
from neurodyn.identify.doubts import log_columns
from neurodyn.identify.doubts.checks import DOUBTS, doubts_about, errors_last
from neurodyn.identify.doubts.evidence import Evidence, FitEvidence
from neurodyn.identify.doubts.log_columns import _changes, fits_with_other_columns
from neurodyn.identify.doubts.log_doubts import doubts_of, explaining
from neurodyn.identify.doubts.plausible_values import at_a_bound, beyond_the_robot, far_from_the_declaration
from neurodyn.identify.doubts.run_influence import decided_by_one_run, of_influences
from neurodyn.identify.fit.readings import Noise
from neurodyn.identify.fit.residuals import Normal
from neurodyn.identify.ladder.references import GRU, train_gru
from neurodyn.identify.ladder.rungs import DECLARED, IDENTIFIED, NETWORKS, Climb, Ladder
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.logs import check_log
from neurodyn.identify.motors import with_motors
from neurodyn.identify.result import (
    CoordinateErrors,
    HorizonErrors,
    IdentificationFigures,
    IdentifiedParameter,
    InPriorDeviations,
    LogDifference,
    NextMotion,
    OwnQuantities,
    Rung,
    TriedStructure,
)
from neurodyn.identify.sensors import behind_log
from neurodyn.identify.stages.lasting_errors import LastingError
from neurodyn.robots import load
from tests.identify.two_joint_arm import declared, plant, write_log

SETTINGS = AdaptationSettings(networks=False, rollouts_each=20, seconds=(0.05, 0.3))
Rows = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("arm")


@pytest.fixture(scope="module")
def sound(folder: Path) -> Store:
    return write_log(folder / "sound.h5", declared(folder), plant())


@pytest.fixture(scope="module")
def fitted(folder: Path, sound: Store) -> FitModel:
    robot = behind_log(with_motors(declared(folder), sound), sound.header, SETTINGS)
    return FitModel.declared(robot, str(folder), SETTINGS)


@pytest.fixture(scope="module")
def climb(sound: Store, fitted: FitModel) -> Climb:
    return Ladder(sound, 0, SETTINGS).climb({DECLARED: fitted.dynamics(sound, 1)})


def harmed(
    store: Store, path: Path, harm: Callable[[Rows], None], delay: Delay | None = None, *, frames: int | None = None
) -> Store:
    """Write a log, or its first frames, with changed columns q, qd and u, each [episodes, frames + 1, joints]."""
    rows = np.asarray(store.frames[0 : len(store.frames)]).reshape(len(store.lengths), -1, 6)[:, :frames].copy()
    columns = {"q": rows[..., :2], "qd": rows[..., 2:4], "u": rows[..., 4:]}
    harm(columns)
    header = StoreHeader(spec=store.header.spec, source="log")
    if delay is not None:
        header = msgspec.structs.replace(header, delays={CONTROL: delay})
    split = np.full(len(rows), Split.TRAIN, np.int8)
    split[-3:-1], split[-1:] = Split.VALIDATION, Split.TEST
    with StoreWriter(path, header) as writer:
        writer.append(
            columns["q"], columns["qd"], columns["u"][:, :-1], lengths=np.full(len(rows), rows.shape[1] - 1),
            split=split,
        )  # fmt: skip
    return Store.open(path)


def swap(*names: str) -> Callable[[Rows], None]:
    def harm(columns: Rows) -> None:
        for name in names:
            columns[name][:] = columns[name][..., ::-1].copy()

    return harm


def turn(columns: Rows) -> None:
    for name in ("q", "qd"):
        columns[name][..., 1] *= -1.0


def degrees(columns: Rows) -> None:
    for name in ("q", "qd"):
        columns[name] *= 180.0 / np.pi


def slow_clock(columns: Rows) -> None:
    columns["qd"] *= 0.8


def freeze(columns: Rows) -> None:
    columns["q"][2, 20:120, 1] = columns["q"][2, 20, 1]


def noisy(columns: Rows) -> None:
    columns["q"] += np.random.default_rng(1).normal(0.0, 0.03, columns["q"].shape)


def disorder(columns: Rows) -> None:
    rng = np.random.default_rng(1)
    rows = np.sort(rng.choice(columns["q"].shape[1], 40, replace=False))
    for values in columns.values():
        values[:, rows] = values[:, rng.permutation(rows)]


def other_commands(columns: Rows) -> None:
    columns["u"][:] = np.random.default_rng(1).normal(0.0, 0.3, columns["u"].shape)


def hold(columns: Rows) -> None:
    columns["q"][..., 1] = np.random.default_rng(1).normal(0.0, 2e-4, columns["q"].shape[:2])
    columns["qd"][..., 1] = 0.0


def late(frames: int) -> Callable[[Rows], None]:
    def harm(columns: Rows) -> None:
        columns["u"][:] = np.roll(columns["u"], frames, axis=1)

    return harm


def nothing(columns: Rows) -> None:
    pass


LOGS = {
    "sound": (nothing, None, set()),
    "slow clock": (slow_clock, None, {"clock"}),
    "frozen encoder": (freeze, None, {"frozen"}),
    "noise": (noisy, None, {"noise"}),
    "rows in disorder": (disorder, None, {"order"}),
    "commands of something else": (other_commands, None, {"commands"}),
    "readings swapped": (swap("q", "qd"), None, {"swapped"}),
    "velocities swapped": (swap("qd"), None, {"swapped"}),
    "a sign": (turn, None, {"sign"}),
    "degrees": (degrees, None, {"degrees"}),
    "a joint that is held": (hold, None, {"motion"}),
    "motion before commands": (nothing, Delay(seconds=-0.05, error=0.004), {"clock"}),
    "motion long after commands": (nothing, Delay(seconds=0.1, error=0.004), {"late"}),
    "a delay as robots have": (nothing, Delay(seconds=0.02, error=0.004), set()),
    "a delay that is not sure": (nothing, Delay(seconds=0.1, error=0.03), set()),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_doubted_by_its_cause(name: str, sound: Store, fitted: FitModel, tmp_path: Path):
    harm, delay, names = LOGS[name]
    store = harmed(sound, tmp_path / "log.h5", harm, delay)
    found = doubts_of(store, fitted.robot)
    assert {one.name for one in found} >= names
    assert bool(found) == bool(names)
    assert all(one.what and one.advice for one in found)


def test_a_fit_that_fails_says_what_is_doubtful(sound: Store, fitted: FitModel, tmp_path: Path):
    store = harmed(sound, tmp_path / "log.h5", degrees)
    with (
        pytest.raises(InputError, match=r"nothing fits; what is doubtful: .*degrees"),
        explaining(store, fitted.robot),
    ):
        raise InputError("nothing fits")


def evidence_of(
    store: Store, fitted: FitModel, climb: Climb, parameters: list[IdentifiedParameter] | None = None, **figures: Any
) -> Evidence:
    dynamics = fitted.dynamics(store, 1)
    rungs = [*climb.rungs, msgspec.structs.replace(climb.rungs[0], name=IDENTIFIED, share=0.1)]
    climb = replace(climb, errors={**climb.errors, DECLARED: worse(climb, 12.0), IDENTIFIED: climb.errors[DECLARED]})
    known = IdentificationFigures(
        robot="arm", parameters=parameters or [],
        **{"chosen": IDENTIFIED, "rungs": rungs, "horizons": list(climb.seconds), "references": climb.references}
        | figures,
    )  # fmt: skip
    noise = Noise(torch.full((2,), 2e-4).double(), torch.full((2,), 2e-3).double())
    return Evidence(known, fitted, store, climb, dynamics, dynamics, 0, noise)


def test_errors_that_last_are_doubted_under_networks_too(sound: Store, fitted: FitModel, climb: Climb):
    evidence = replace(evidence_of(sound, fitted, climb), lasting=[LastingError("elbow", 0.01, 5.0)])
    (found,) = errors_last(evidence)
    assert "networks on top may learn it (without --mechanism" in found.advice
    rungs = [*evidence.figures.rungs, msgspec.structs.replace(evidence.figures.rungs[0], name=NETWORKS)]
    chosen = msgspec.structs.replace(evidence.figures, rungs=rungs, chosen=NETWORKS)
    (found,) = errors_last(replace(evidence, figures=chosen))
    assert found.advice.endswith("networks on top predict it, and leave the values as they are")


COLUMNS = {
    "sound": (nothing, None),
    "readings": (swap("q", "qd"), "swapped"),
    "commands": (swap("u"), "crossed"),
    "a sign": (turn, "sign"),
    "degrees": (degrees, "degrees"),
    "late commands": (late(10), "shifted"),
    "early commands": (late(-10), "shifted"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_other_columns_fit_better_only_if_they_are_wrong(
    name: str, sound: Store, fitted: FitModel, climb: Climb, tmp_path: Path
):
    harm, cause = COLUMNS[name]
    store = harmed(sound, tmp_path / "log.h5", harm)
    found = list(fits_with_other_columns(evidence_of(store, fitted, climb)))
    assert [one.name for one in found] == ([] if cause is None else [cause])


def test_seconds_of_a_log_tell_nothing_of_its_columns(sound: Store, fitted: FitModel, climb: Climb, tmp_path: Path):
    store = harmed(sound, tmp_path / "log.h5", swap("q", "qd"), frames=61)
    assert list(fits_with_other_columns(evidence_of(store, fitted, climb))) == []


@pytest.mark.parametrize(("after", "found"), [(1.5, []), (0.5, ["degrees"])])
def test_a_model_that_predicts_worse_than_rest_does_not_judge_columns(
    after: float, found: list[str], sound: Store, fitted: FitModel, climb: Climb, monkeypatch: pytest.MonkeyPatch
):
    evidence = evidence_of(sound, fitted, climb)

    def shares(model: Any, evidence: Any, windows: Any, noise: torch.Tensor) -> torch.Tensor:
        return torch.full((3, 2), 3.0 if torch.equal(noise, evidence.noise.q) else after)

    monkeypatch.setattr(log_columns, "_shares", shares)
    assert [one.name for one in fits_with_other_columns(evidence)] == found


def test_metres_are_not_swapped_with_radians():
    spec = load("cartpole").spec
    changes = [one.what for one in _changes(spec, torch.ones(2), 20) if "swapped" in one.name]
    assert changes == []


def test_a_robot_without_joints_has_no_joint_in_degrees():
    spec = load("cube").spec
    assert {one.name for one in _changes(spec, torch.ones(spec.nv), 20)} <= {"shifted"}


def test_a_wrong_sign_has_one_cure_in_the_map():
    advice = {one.advice for one in _changes(load("cartpole").spec, torch.ones(2), 20) if one.name == "sign"}
    assert ["`sign: -1`" in one for one in advice] == [True]


def value(name: str, number: float, nominal: float, *, bound: bool = False) -> IdentifiedParameter:
    return IdentifiedParameter(
        name=name, value=number, interval=[0.95 * number, 1.05 * number], nominal=nominal, bound=bound
    )


VALUES = {
    "friction near the motor's limit": (value("shoulder.friction", 39.0, 0.0), beyond_the_robot, "fails"),
    "damping that stalls": (value("elbow.damping", 8.0, 0.1), beyond_the_robot, "fails"),
    "a rotor larger than the arm": (value("elbow.armature", 5.0, 0.02), beyond_the_robot, "fails"),
    "a payload beyond the arm": (value("payload.x", 3.0, 0.0), beyond_the_robot, "warning"),
    "masses": (value("elbow.mass_scale", 2.5, 1.0), beyond_the_robot, "warning"),
    "as an arm may be": (value("shoulder.friction", 1.0, 0.0), beyond_the_robot, None),
    "a bound": (value("actuator.elbow.bias", 0.16, 0.0, bound=True), at_a_bound, "warning"),
    "no friction": (value("elbow.friction", 0.0, 0.1, bound=True), at_a_bound, None),
    "another controller": (value("actuator.elbow.kp", 8.0, 80.0), far_from_the_declaration, "warning"),
    "a worn one": (value("actuator.elbow.kp", 60.0, 80.0), far_from_the_declaration, None),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_that_no_robot_has_are_doubted(name: str, sound: Store, fitted: FitModel, climb: Climb):
    one, check, grade = VALUES[name]
    found = list(check(evidence_of(sound, fitted, climb, [one])))
    assert [finding.grade for finding in found] == ([] if grade is None else [grade])
    assert all(one.name in finding.what for finding in found)


@pytest.mark.parametrize(("names", "doubted"), [
    (("shoulder.mass_scale", "elbow.com.x"), True), (("elbow.mass_scale", "elbow.com.x"), False),
    (("shoulder.armature", "elbow.com.x"), False),
])  # fmt: skip
def test_links_at_bounds_are_those_of_another_robot(
    names: tuple[str, ...], doubted: bool, sound: Store, fitted: FitModel, climb: Climb
):
    values = [value(name, 1.49, 1.0, bound=True) for name in names]
    found = [one.name for one in at_a_bound(evidence_of(sound, fitted, climb, values))]
    assert found == ["bound", "wrong-robot"][: 1 + doubted]


@pytest.mark.parametrize(("share", "doubted"), [(0.7, ["wrong-robot"]), (0.3, [])])
def test_a_payload_that_weighs_as_much_as_the_robot_is_another_robot(
    share: float, doubted: list[str], sound: Store, fitted: FitModel, climb: Climb
):
    load = share * sum(link.mass for link in fitted.mechanism.links)
    known = evidence_of(sound, fitted, climb, [value("payload.mass", load, 0.0)])
    assert [one.name for one in DOUBTS["payload"](known)] == doubted


@pytest.mark.parametrize(("deviations", "doubted"), [(-4.0, ["masses"]), (2.0, [])])
def test_masses_far_from_the_declared_ones_stand_in_for_something(
    deviations: float, doubted: list[str], sound: Store, fitted: FitModel, climb: Climb
):
    scaled = InPriorDeviations(value=deviations, interval=[deviations - 1.0, deviations + 1.0], bounds=[-8.0, 8.0])
    one = msgspec.structs.replace(value("elbow.mass_scale", 0.8, 1.0), in_prior=scaled)
    assert [one.name for one in DOUBTS["masses"](evidence_of(sound, fitted, climb, [one]))] == doubted


@pytest.mark.parametrize(("name", "deviations", "width", "doubted"), [
    ("elbow.armature", 2.7, 1.5, ["rotors"]), ("elbow.armature", -2.3, 1.0, ["rotors"]),
    ("elbow.armature", 2.7, 1.9, []), ("elbow.armature", 1.5, 0.1, []), ("elbow.friction", 3.5, 0.1, []),
])  # fmt: skip
def test_rotors_far_from_their_priors_are_doubted_where_intervals_are_far_too(
    name: str, deviations: float, width: float, doubted: list[str], sound: Store, fitted: FitModel, climb: Climb
):
    scaled = InPriorDeviations(value=deviations, interval=[deviations - width, deviations + width], bounds=[-8.0, 8.0])
    one = msgspec.structs.replace(value(name, 0.02, 0.001), in_prior=scaled)
    found = list(DOUBTS["rotors"](evidence_of(sound, fitted, climb, [one])))
    assert [each.name for each in found] == doubted
    assert all(f"{name} 0.02" in each.what and "0.001" in each.what for each in found)


def test_values_that_are_not_kept_are_not_doubted(sound: Store, fitted: FitModel, climb: Climb):
    one = value("actuator.elbow.bias", 0.16, 0.0, bound=True)
    assert not list(at_a_bound(evidence_of(sound, fitted, climb, [one], chosen=DECLARED)))


def test_a_sound_adaptation_is_not_doubted(sound: Store, fitted: FitModel, climb: Climb):
    assert doubts_about(evidence_of(sound, fitted, climb, log=check_log(fitted.robot, sound))) == []


def worse(climb: Climb, factor: float) -> RolloutErrors:
    """Return roll-outs with other errors than the declared model's."""
    errors = climb.errors[DECLARED]
    q = errors.truth.q + factor * (errors.predicted.q - errors.truth.q)
    return replace(errors, predicted=Trajectory(q, errors.predicted.qd))


def test_what_a_network_or_a_baseline_does_better_is_said(sound: Store, fitted: FitModel, climb: Climb):
    good = replace(climb, errors={**climb.errors, GRU: worse(climb, 0.5)})
    found = list(DOUBTS["gru"](evidence_of(sound, fitted, good)))
    assert [one.name for one in found] == [GRU]
    assert "50% more of" in found[0].what
    same = replace(climb, errors={**climb.errors, GRU: worse(climb, 0.95)})
    assert not list(DOUBTS["gru"](evidence_of(sound, fitted, same)))
    assert not [one for one in DOUBTS["baselines"](evidence_of(sound, fitted, climb)) if one.grade != "ok"]
    bad = Rung(name=IDENTIFIED, kept=True, reason="", errors={"joints [rad or m]": [1e-3, 1.0]}, share=0.1)
    rungs = [climb.rungs[0], bad]
    lost = [one for one in DOUBTS["baselines"](evidence_of(sound, fitted, climb, rungs=rungs)) if one.grade != "ok"]
    assert {one.name for one in lost} == {"persistence", "constant-velocity", "declaration"}


def test_a_large_rest_and_a_robot_that_nothing_fits_are_said(sound: Store, fitted: FitModel, climb: Climb):
    errors = climb.errors[DECLARED]
    large = replace(errors, predicted=Trajectory(errors.predicted.q + 0.05, errors.predicted.qd))

    def found(name: str, one: RolloutErrors) -> list[str]:
        known = evidence_of(sound, fitted, climb)
        known = replace(
            known, climb=replace(climb, errors={DECLARED: one if name == "robot" else large, IDENTIFIED: one})
        )
        return [finding.name for finding in DOUBTS[name](known)]

    assert found("rest", large) == ["rest"]
    assert found("rest", replace(errors, predicted=Trajectory(errors.truth.q + 2e-3, errors.truth.qd))) == []  # little
    assert found("rest", replace(errors, predicted=errors.truth)) == []
    still = errors.baseline("hold_last")
    assert found("robot", still) == ["wrong-robot"]
    assert found("robot", errors) == []


def test_a_run_that_is_predicted_much_worse_is_said(sound: Store, fitted: FitModel, climb: Climb):
    errors, windows = climb.errors[DECLARED], climb.windows
    logs = torch.arange(windows.count) % 4
    origin = replace(windows.source, log=logs, logs=("a", "b", "c", "d"))
    q = errors.truth.q + (errors.predicted.q - errors.truth.q) * torch.where(logs == 2, 8.0, 1.0)[:, None, None]
    worse_in_c = replace(errors, predicted=Trajectory(q, errors.predicted.qd))

    def found(one: RolloutErrors) -> list[str]:
        known = evidence_of(sound, fitted, climb)
        own = replace(climb, errors={DECLARED: one, IDENTIFIED: one}, windows=replace(windows, origin=origin))
        return [finding.what for finding in DOUBTS["run"](replace(known, climb=own))]

    assert found(errors) == []
    assert found(worse_in_c)[0].startswith("c is predicted ")


def test_nothing_better_and_logs_that_disagree_are_said(sound: Store, fitted: FitModel, climb: Climb):
    rungs = [climb.rungs[0], msgspec.structs.replace(climb.rungs[0], name=IDENTIFIED, share=0.9)]
    (nothing,) = DOUBTS["declared"](evidence_of(sound, fitted, climb, chosen=DECLARED))
    assert nothing.name == "declared"
    assert "the page proposes" not in nothing.advice
    motion = NextMotion(file="next-motion.csv", seconds=9.0, amplitude=0.5, deviations={})
    (nothing,) = DOUBTS["declared"](evidence_of(sound, fitted, climb, chosen=DECLARED, next=motion))
    assert "(the page proposes one)" in nothing.advice
    assert [one.name for one in DOUBTS["declared"](evidence_of(sound, fitted, climb, rungs=rungs))] == ["poor"]
    diverged = [climb.rungs[0], msgspec.structs.replace(rungs[1], share=None)]
    assert not list(DOUBTS["declared"](evidence_of(sound, fitted, climb, rungs=diverged)))


def test_parts_of_a_run_that_differ_are_doubted_and_named_groups_are_not(sound: Store, fitted: FitModel, climb: Climb):
    other = LogDifference(
        name="lower.mass_scale", logs=("part 1", "part 2"), values=(1.0, 2.0), errors=9.0, deviation=0.5
    )

    def found(*groups: str) -> list[str]:
        own = OwnQuantities(by="group", names=[], groups={one: [] for one in groups}, scale=[], noise=[])
        return [
            one.name for one in DOUBTS["agreement"](evidence_of(sound, fitted, climb, differences=[other], own=own))
        ]

    assert found("log, part 1", "log, part 2") == ["logs-disagree"]
    assert found("left", "right") == []


def test_a_structure_that_held_out_windows_leave_open_is_doubted(sound: Store, fitted: FitModel, climb: Climb):
    tried = TriedStructure(
        name="a payload on the link of lower", kept=False, share=0.9, expected=0.3, doubted=True,
        reason="0.90 of the error, not better beyond the spread",
    )  # fmt: skip
    (found,) = DOUBTS["structure"](evidence_of(sound, fitted, climb, tried=[tried]))
    assert (found.name, found.grade) == ("structure", "warning")
    assert "whether there is a payload on the link of lower" in found.what
    settled = msgspec.structs.replace(tried, doubted=False)
    assert not list(DOUBTS["structure"](evidence_of(sound, fitted, climb, tried=[settled])))


def test_a_network_trains_beside_the_ladder_in_seconds(sound: Store, fitted: FitModel, folder: Path):
    gru = train_gru(declared(folder), str(folder), sound, steps=10, seed=0)
    assert gru is not None
    climb = Ladder(sound, 0, SETTINGS).climb({DECLARED: fitted.dynamics(sound, 1)}, [gru])
    assert [one.name for one in climb.references] == [GRU, "persistence", "constant velocity"]
    assert all(len(one.errors["joints [rad or m]"]) == len(climb.seconds) for one in climb.references)
    assert climb.references[0].cpu_seconds > 0.0
    assert list(climb.shown) == [DECLARED, GRU]


def test_episodes_without_room_train_no_network():
    lengths = SimpleNamespace(lengths=np.array([6, 6]), episodes=lambda split: np.array([0]))
    assert train_gru(cast(Any, None), "", cast(Store, lengths), 1, 0) is None


def test_horizons_at_which_a_rival_is_better_are_named():
    def judged(mine: list[float | None]) -> Finding:
        return of_horizons(mine, [0.1, 0.2, 0.3], [0.05, 0.5, 1.0], rival="the declaration", what="error")

    assert judged([0.05, 0.2, 0.31]).grade == "ok"
    assert str(judged([0.05, 0.4, 0.3])).startswith(
        "warning: the declaration is better 0.5 s ahead: error 0.2 instead of 0.4"
    )
    assert judged([0.2, 0.4, None]).grade == "fails"


def test_what_one_run_decides_alone_is_said():
    """Both quantities are seen in all of four runs, but the second one hundred times better in the third."""
    matrix = torch.diag_embed(torch.tensor([[4.0, 1.0], [4.0, 1.0], [4.0, 1e4], [4.0, 1.0]], dtype=torch.float64))
    runs = torch.arange(4)
    residuals = SimpleNamespace(
        windows=SimpleNamespace(log=runs, logs=("a", "b", "c", "d"), episode=runs), parameters=2, initials=0,
        space=SimpleNamespace(names=("mass", "bias")),
    )  # fmt: skip
    analysis = SimpleNamespace(bound=torch.zeros(2, dtype=torch.bool), variance=1.0)
    normal = Normal(matrix[None], torch.zeros(1, 4, 2), torch.zeros(1))
    found = decided_by_one_run(cast(Any, residuals), normal, cast(Any, analysis))
    assert [(one.quantity, one.run) for one in found] == [("bias", "c")]
    assert found[0].wider == pytest.approx(50.0, rel=0.01)
    assert of_influences([]) == []
    assert "bias (c: 50 times)" in of_influences(found)[0].what


def test_a_fit_without_a_ladder_is_doubted_too(sound: Store, fitted: FitModel):
    def errors(value: float) -> HorizonErrors:
        own = CoordinateErrors(q_mean=value)
        return HorizonErrors(errors=own, moving=own, finite_fraction=1.0)

    def found(**figures: Any) -> list[str]:
        known = IdentificationFigures(robot="arm", parameters=[], **figures)
        return [one.name for one in doubts_about(FitEvidence(known, fitted, sound))]

    floor, sizes = {"0.1": errors(0.01)}, {"nominal": 0.2, "persistence": 0.3, "constant-velocity": 0.25}
    rivals = {name: {"0.1": errors(size)} for name, size in sizes.items()}
    assert found(errors=rivals | {"identified": {"0.1": errors(0.02)}}, noise_floor=floor) == []
    assert found(errors=rivals | {"identified": {"0.1": errors(0.1)}}, noise_floor=floor) == ["rest"]
    worse = found(errors=rivals | {"identified": {"0.1": errors(0.27)}}, noise_floor=floor)
    assert worse == ["declaration", "constant-velocity", "rest"]
    assert found(converged=False, reason="no step was accepted") == ["converged"]
