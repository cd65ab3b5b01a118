# SPDX-License-Identifier: Apache-2.0
"""Delay and lag of motors: where their search begins, how finely they are told, and when only their sum is known."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.data.header import CONTROL, Delay, Split, StoreHeader
from neurodyn.data.store import Store
from neurodyn.identify.confidence.delays import delay_figures
from neurodyn.identify.fit.intervals import Identifiability
from neurodyn.identify.ladder.structures import FitModel, structures
from neurodyn.identify.motors import LONGEST_DELAY, longest_delay, with_motors
from neurodyn.identify.run import open_logs
from neurodyn.identify.settings import AdaptationSettings
from neurodyn.identify.stages.growing_windows import Fitting
from neurodyn.identify.unknowns.delay_trades import dampings_traded
from neurodyn.identify.unknowns.quantities import DELAY
from neurodyn.identify.unknowns.search_space import Coordinate, CoordinateSpace
from neurodyn.identify.unknowns.search_start import first_coordinates
from neurodyn.robots import load
from tests.identify.stand_ins import cartpole_log, worn_cartpole

LAG = "actuator.slider.lag"
FREE = ("motors.delay", LAG, "actuator.slider.gain", "*.damping")
FRAME = load("cartpole").dt


def late_by(store: Store, frames: int, path: Path) -> Store:
    """The same log with its commands given `frames` earlier than they acted."""
    robot = load("cartpole")
    width = robot.spec.nq + robot.spec.nv
    rows = np.asarray(store.frames).copy()
    for start, length in zip(store.offsets[:-1], store.lengths, strict=True):
        own = rows[start : start + length, width:]
        rows[start : start + length, width:] = np.concatenate((own[frames:], own[-1:].repeat(frames, axis=0)))
    return replace(store, frames=rows)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return cartpole_log(tmp_path_factory.mktemp("log") / "log.h5", worn_cartpole(lag=0.02))


def fitting(store: Store, measured: Delay | None = None) -> Fitting:
    if measured is not None:
        store = replace(store, header=msgspec.structs.replace(store.header, delays={CONTROL: measured}))
    settings = AdaptationSettings(quantities=FREE, structures=False)
    robot = with_motors(load("cartpole"), store)
    (model,) = structures(FitModel.declared(robot, "cartpole", settings), settings)
    return Fitting(model, store, settings, 1)


def told(fit: Fitting, name: str) -> float:
    return float(fit.space.value(name, fit.x))


@pytest.mark.parametrize("frames", [0, 1])
@pytest.mark.parametrize("measured", [None, Delay(seconds=0.015, error=0.002, usable=True)])
def test_delay_and_lag_are_told_apart_from_any_start(log: Store, frames: int, measured: Delay | None, tmp_path: Path):
    fit = fitting(late_by(log, frames, tmp_path / "late.h5"), measured)
    fit.screen()
    fit.run()
    assert told(fit, LAG) == pytest.approx(0.02, abs=0.003)
    assert told(fit, DELAY) == pytest.approx(frames * FRAME, abs=0.0025)


@pytest.mark.parametrize("delay", [0.0037, 0.0111, 0.0213])
def test_the_gradient_by_a_delay_agrees_with_differences(log: Store, delay: float):
    fit = fitting(log, Delay(seconds=0.03, error=0.01, usable=True))
    residuals = fit.residuals(fit.windows(Split.TRAIN, fit.stages[0]), one_sided=False)
    k = residuals.space.names.index(DELAY)
    x = fit.x.clone()
    x[k] = fit.space.coordinates[fit.space.names.index(DELAY)].of(delay)
    _, gradient = residuals.gradients(residuals.start(x[None]))
    step = torch.zeros_like(x)
    step[k] = 1e-5
    above, below = (float(residuals.cost(residuals.start((x + sign * step)[None]))) for sign in (1.0, -1.0))
    assert float(gradient.x[0, k]) == pytest.approx((above - below) / 2e-5, rel=1e-3, abs=1e-6)
    assert abs(above - below) > 0.0  # fractions of a frame matter


@pytest.mark.parametrize(("measured", "longest"), [
    (None, LONGEST_DELAY),
    (Delay(seconds=0.012, error=0.002, usable=True), LONGEST_DELAY),
    (Delay(seconds=0.03, error=0.002, usable=True), 0.05),
    (Delay(seconds=0.03, error=0.002, applied=0.03, usable=True), LONGEST_DELAY),
    (Delay(seconds=0.5, error=0.002, usable=True), 0.06),
    (Delay(seconds=0.05, error=0.002), LONGEST_DELAY),
])  # fmt: skip
def test_room_for_a_delay_grows_with_the_measured_one(measured: Delay | None, longest: float):
    assert longest_delay(measured) == pytest.approx(longest)


def space(*names: str) -> CoordinateSpace:
    coordinates = [Coordinate(name, 0.0, 1.0, 0.005, quantities=(name,), unit="s") for name in names]
    mechanism = FitModel.declared(load("cartpole"), "cartpole", AdaptationSettings()).mechanism
    return CoordinateSpace(mechanism, coordinates, {}, dict.fromkeys(names, 0.0))


def test_a_measured_delay_is_shared_by_delay_and_lag_at_the_start():
    both, alone = space(DELAY, LAG), space(DELAY)
    known = Delay(seconds=0.016, error=0.002, applied=0.004, usable=True)
    x = first_coordinates(both, known)
    assert float(both.value(DELAY, x)) == pytest.approx(0.006)
    assert float(both.value(LAG, x)) == pytest.approx(0.006)
    assert float(alone.value(DELAY, first_coordinates(alone, known))) == pytest.approx(0.012)
    assert float(alone.value(DELAY, first_coordinates(alone, msgspec.structs.replace(known, usable=False)))) == 0.0
    assert float(both.value(LAG, first_coordinates(both))) == pytest.approx(0.01)


def test_the_damping_of_a_joint_is_given_back_to_its_servo():
    names = ("hinge.damping", "actuator.hinge.kd", "slider.damping")
    where = space(*names)
    x = torch.tensor([one.of(value) for one, value in zip(where.coordinates, (0.3, 0.5, 0.2), strict=True)]).double()
    (moved,) = dampings_traded(where, x)
    values = [float(where.value(name, moved)) for name in names]
    declared = float(where.value("hinge.damping", where.declared))
    assert values == pytest.approx([declared, 0.8 - declared, 0.2], abs=1e-6)
    assert len(dampings_traded(space(DELAY, LAG), x[:2])) == 0


def known(names: tuple[str, ...], deviations: list[float], correlation: float) -> Identifiability:
    n = len(names)
    matrix = torch.full((n, n), correlation, dtype=torch.float64).fill_diagonal_(1.0)
    size, none = torch.tensor(deviations, dtype=torch.float64), torch.zeros(n, dtype=torch.bool)
    return Identifiability(
        names, (1.0,) * n, 1.0, (), (), (), (), none, size, size, matrix, size, 1000, 1.0, torch.eye(n)
    )  # fmt: skip


@pytest.mark.parametrize(("correlation", "split"), [(-0.999, False), (0.0, True)])
def test_only_the_sum_is_said_where_only_it_is_known(correlation: float, split: bool):
    names = (DELAY, LAG)
    where = space(*names)
    x = torch.tensor([where.coordinates[0].of(0.013), where.coordinates[1].of(0.0083)], dtype=torch.float64)
    analysis = known(names, [0.2, 0.2 * 18 / 13.3], correlation)
    header = StoreHeader(
        spec=load("cartpole").spec, source="log", delays={CONTROL: Delay(seconds=0.02, error=0.003, usable=True)}
    )
    found = delay_figures(where, x, analysis, load("cartpole"), header)
    assert found is not None
    assert found.split is split
    assert found.total == pytest.approx(0.0213)
    assert found.parts == "delay + lag"
    assert found.measured == 0.02
    if split:
        assert found.text.startswith("delay 13 +- ")
        assert ", lag 8.3 +- " in found.text
    else:
        assert found.text.startswith("delay + lag = 21.3 +- ")
        assert found.text.endswith("how it splits is not known")
        assert found.total_error < 0.2 * found.delay_error


def test_a_shift_that_the_map_declares_is_said_beside_the_rest():
    where = space(DELAY)
    shifted = StoreHeader(
        spec=load("cartpole").spec, source="log", delays={CONTROL: Delay(seconds=0.01, error=0.001, applied=0.004)}
    )
    x = torch.tensor([where.coordinates[0].of(0.006)], dtype=torch.float64)
    found = delay_figures(where, x, known((DELAY,), [0.01], 0.0), load("cartpole"), shifted)
    assert found is not None
    assert "shifts commands by 4 ms" in found.text
    assert delay_figures(space(LAG), x, known((LAG,), [0.01], 0.0), load("cartpole"), shifted) is None


def test_a_log_that_an_older_import_shifted_is_identified_as_if_it_had_not(log: Store, tmp_path: Path):
    notes = {"alignment": {"chosen": 2 * FRAME, "reason": "measured: it fits best"}}
    header = msgspec.structs.replace(log.header, notes=notes)
    width = log.header.spec.nq + log.header.spec.nv
    rows = np.asarray(log.frames).copy()
    for start, length in zip(log.offsets[:-1], log.lengths, strict=True):
        own = rows[start : start + length, width:].copy()
        rows[start : start + length, width:] = np.concatenate((own[:1].repeat(2, axis=0), own[:-2]))
    opened = open_logs(load("cartpole"), replace(log, header=header, frames=rows))
    q, _, control = opened.episode(0)
    first, _, commands = log.episode(0)
    assert len(q) == len(first) - 2
    assert np.array_equal(control, commands[:-2])
