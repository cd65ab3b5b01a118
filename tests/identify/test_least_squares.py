# SPDX-License-Identifier: Apache-2.0
"""Residuals and their least squares: known parameters come back, with the intervals that noise leaves."""

import dataclasses
import threading
import time

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.data.windows import Origin
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.confidence.parameter_search import lbfgs
from neurodyn.identify.fit.intervals import identifiability, require_seen, warning
from neurodyn.identify.fit.least_squares import fitted, levenberg_marquardt
from neurodyn.identify.fit.population_search import cma_es
from neurodyn.identify.fit.readings import Noise, estimate_noise
from neurodyn.identify.fit.residuals import Point, ResidualOptions, Residuals, require_finite, without_jumps
from neurodyn.identify.settings import IdentificationSettings
from neurodyn.identify.unknowns.search_space import Coordinate, CoordinateSpace
from tests.identify import pendulum

ASKED = ("elbow.mass", "elbow.com.z", "*.damping", "*.friction")
TRUTH = {"elbow.mass": 1.3, "elbow.com.z": -0.2, "shoulder.damping": 0.2, "elbow.damping": 0.03, "elbow.friction": 0.1}


@pytest.fixture(scope="module")
def model():
    return pendulum.dynamics(*ASKED)


def start(residuals: Residuals) -> Point:
    return residuals.start(residuals.space.nominal[None])


def found_values(residuals: Residuals, point: Point) -> dict[str, float]:
    values = residuals.space.values(point.x)[0].tolist()
    return dict(zip(residuals.space.names, values, strict=True))


def solved(model, windows, **options) -> tuple[Residuals, Point]:
    residuals = Residuals(model, windows, pendulum.true_noise(), ResidualOptions(**options))
    residuals, solution = fitted(residuals, start(residuals), 40)
    return residuals, solution.point


def test_a_difference_across_a_jump_is_cut():
    plain = torch.rand(1, 40, 3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    jumped = plain.clone()
    jumped[0, 7] *= 1e6
    found = without_jumps(jumped)
    assert torch.equal(found[0, :7], plain[0, :7])
    assert torch.equal(without_jumps(plain), plain)
    ratio = float(found[0, 7].norm() / plain[0].square().sum((1, 2)).sqrt().quantile(0.95))
    assert 5.0 < ratio < 20.0


@pytest.mark.parametrize(
    "options", [{}, {"one_sided": True}, {"rough": True}], ids=["central", "forward", "near contacts"]
)
@pytest.mark.parametrize("damping", [0.0, 0.25])
def test_at_a_bound_derivatives_are_those_to_the_inside(options: dict, damping: float):
    name = "elbow.damping"
    coordinate = Coordinate(name, 0.0, 1.0, 0.1, quantities=(name,), most=0.25)
    space = CoordinateSpace(pendulum.mechanism(), [coordinate], {}, {name: 0.1})
    windows = pendulum.windows(pendulum.dynamics(name), {name: 0.1})
    model = pendulum.dynamics(name)
    residuals = Residuals(
        model, windows, pendulum.true_noise(), ResidualOptions(huber=None, initial=False, **options), space=space
    )
    x, step = torch.tensor([[coordinate.of(damping)]], dtype=torch.float64), 1e-5 if damping == 0.0 else -1e-5
    cost, moved = (float(residuals.cost(residuals.start(at))) for at in (x, x + step))
    slope = float(residuals.normal(residuals.start(x)).gradient[0, :, 0].sum())
    outlying = 0.3 if "rough" in options else 0.02  # windows that are scaled down (`without_jumps`)
    assert slope == pytest.approx((moved - cost) / step, rel=outlying)
    assert slope * step < 0.0  # the damping of the motion lies inside


def test_near_contacts_more_windows_are_limited_by_those_in_which_a_coordinate_matters():
    derivatives = torch.ones(1, 20, 1, 1, dtype=torch.float64)
    derivatives[0, :12] = 0.0
    derivatives[0, 12] = 500.0
    found = without_jumps(derivatives, near=True)
    assert found[0, 12].item() == pytest.approx(3.0)
    assert torch.equal(found[0, 13:], derivatives[0, 13:])


def test_parameters_come_back_from_motion_without_noise(model):
    windows = pendulum.windows(model, TRUTH, noise=(0.0, 0.0), count=8)
    residuals = Residuals(model, windows, pendulum.true_noise(), ResidualOptions(initial=False))
    point = levenberg_marquardt(residuals, start(residuals), 60, tolerance=1e-14).point
    truth = dict(zip(residuals.space.names, pendulum.values(model, TRUTH).tolist(), strict=True))
    assert found_values(residuals, point) == pytest.approx(truth, rel=1e-5, abs=1e-6)


def test_angles_that_wrap_in_the_log_make_no_difference(model):
    windows = pendulum.windows(model, TRUTH, turn=True)
    assert (windows.q.diff(dim=1).abs() > 3).any(), "the test needs an angle that wraps"
    unwrapped = pendulum.windows(model, TRUTH)
    one, other = (found_values(*solved(model, w)) for w in (windows, unwrapped))
    assert one == pytest.approx(other, rel=1e-4, abs=1e-6)


def test_threads_change_no_bit_of_a_linearisation(monkeypatch):
    model = pendulum.dynamics(*ASKED)
    windows = pendulum.windows(model, TRUTH, count=6, logs=2)
    residuals, others = (Residuals(model, windows, pendulum.true_noise(), ResidualOptions(huber=2.0)) for _ in range(2))
    alone = residuals.normal(start(residuals))
    where = set()
    difference = Residuals._difference

    def noted(self, *given, **named):
        where.add(threading.get_ident())
        time.sleep(0.01)  # so that no thread makes all calls
        return difference(self, *given, **named)

    monkeypatch.setattr(Residuals, "_difference", noted)
    model.threads, model.compute_device = 3, "cpu"
    shared = others.normal(start(others))
    assert len(where) == 3
    for one, other in zip(vars(alone).values(), vars(shared).values(), strict=True):
        assert torch.equal(one, other)


def test_the_adjoint_and_differences_give_the_same_gradient(model):
    windows = pendulum.windows(model, TRUTH, count=6, logs=2)
    options = ResidualOptions(huber=2.0, torque_offset=0.1, per_log={"elbow.mass": 0.2})
    residuals = Residuals(model, windows, pendulum.true_noise(), options)
    point = start(residuals)
    generator = torch.Generator().manual_seed(1)
    point = Point(
        point.x + 0.1,
        torch.randn(point.local.shape, generator=generator, dtype=torch.float64),
        torch.randn(point.initial.shape, generator=generator, dtype=torch.float64),
    )
    cost, gradient = residuals.gradients(point)
    normal = residuals.normal(point)
    n, locals_ = residuals.parameters, residuals.locals
    assert float(cost) == pytest.approx(float(normal.cost), rel=1e-12)
    by_x = normal.gradient[0, :, :n].sum(0)
    torch.testing.assert_close(gradient.x[0], by_x, rtol=1e-5, atol=1e-5 * float(by_x.abs().max()))
    torch.testing.assert_close(gradient.initial, normal.gradient[..., n + locals_ :], rtol=1e-5, atol=1e-3)
    for log in range(2):
        here = normal.gradient[0, residuals.windows.log == log, n : n + locals_].sum(0) + point.local[0, log]
        torch.testing.assert_close(gradient.local[0, log], here, rtol=1e-5, atol=1e-3)


def test_lbfgs_and_levenberg_marquardt_agree(model):
    windows = pendulum.windows(model, TRUTH, count=8)
    residuals = Residuals(model, windows, pendulum.true_noise(), ResidualOptions(initial=False, huber=3.0))
    one = levenberg_marquardt(residuals, start(residuals), 60).cost
    other = lbfgs(residuals, start(residuals), 400, tolerance=1e-12).cost
    assert float(other[0]) == pytest.approx(float(one[0]), rel=1e-3)


def test_a_population_finds_what_least_squares_find(model):
    windows = pendulum.windows(model, TRUTH, count=8)
    residuals = Residuals(model, windows, pendulum.true_noise(), ResidualOptions(initial=False, huber=3.0))
    one = levenberg_marquardt(residuals, start(residuals), 60).cost
    found = cma_es(residuals, start(residuals), 400)
    assert float(found.cost[0]) == pytest.approx(float(one[0]), rel=1e-2)
    again = cma_es(residuals, start(residuals), found.iterations)
    assert torch.equal(again.point.x, found.point.x)
    assert torch.equal(residuals.space.clip(found.point.x), found.point.x)


def test_a_population_leaves_starting_states_alone():
    with pytest.raises(ValueError, match="cma-es searches the parameters alone; valid with it: initial: logged"):
        IdentificationSettings(optimiser="cma-es")
    IdentificationSettings(optimiser="cma-es", initial="logged")


def test_a_parameter_on_its_bound_stays_there_and_leaves_it_again(model):
    """Friction is zero where it starts; where there is none, it ends there too."""
    residuals, point = solved(model, pendulum.windows(model, TRUTH))
    found = found_values(residuals, point)
    assert found["elbow.friction"] == pytest.approx(0.1, abs=0.01)
    assert 0.0 <= found["shoulder.friction"] < 0.02


def test_many_starts_at_once_end_as_one_by_one(model):
    windows = pendulum.windows(model, TRUTH, count=8)
    residuals = Residuals(model, windows, pendulum.true_noise())
    starts = residuals.space.nominal + torch.tensor([[0.0], [0.3], [-0.3]], dtype=torch.float64)
    starts = residuals.space.clip(starts)
    together = levenberg_marquardt(residuals, residuals.start(starts), 6)
    for k in range(3):
        alone = levenberg_marquardt(residuals, residuals.start(starts[k : k + 1]), 6)
        assert float(alone.cost[0]) == pytest.approx(float(together.cost[k]), rel=1e-6)


@pytest.mark.parametrize("logs", [1, 12])
def test_intervals_cover_the_truth_as_often_as_they_should(model, logs: int):
    covered, studies = [], 8
    for seed in range(studies):
        windows = pendulum.windows(model, TRUTH, seed=10 + seed, logs=logs)
        residuals, point = solved(model, windows)
        found = identifiability(residuals, point)
        free = torch.full((residuals.parameters,), torch.inf, dtype=torch.float64)
        values, truth = residuals.space.values(point.x)[0], pendulum.values(model, TRUTH)
        intervals = found.intervals(values, -free, free)
        covered.append([low <= t <= high for (low, high), t in zip(intervals, truth.tolist(), strict=True)])
    share = np.mean(covered)
    assert 0.88 <= share <= 1.0, share
    # Nor are they wider than noise makes them: twenty-four windows of half a second know a mass to within a percent.
    mass = residuals.space.names.index("elbow.mass")
    assert float(found.deviations[mass]) < 0.01


def test_noise_is_found_in_the_log(model):
    windows = pendulum.windows(model, TRUTH, noise=(5e-3, 0.2), torque=0.0)
    noise = estimate_noise(pendulum.SPEC, windows)
    torch.testing.assert_close(noise.q, torch.full((2,), 5e-3, dtype=torch.float64), rtol=0.1, atol=0)
    torch.testing.assert_close(noise.qd, torch.full((2,), 0.2, dtype=torch.float64), rtol=0.15, atol=0)


def test_scales_are_those_of_the_residuals_even_where_the_noise_is_estimated_wrongly(model):
    windows = pendulum.windows(model, TRUTH)
    wrong = Noise(*(torch.full((2,), size, dtype=torch.float64) for size in (0.02, 0.5)))
    residuals = Residuals(model, windows, wrong)
    residuals, _ = fitted(residuals, start(residuals), 40)
    expected = torch.tensor([2e-3, 2e-3, 2e-2, 2e-2], dtype=torch.float64)
    torch.testing.assert_close(residuals.scale, expected, rtol=0.2, atol=0)


def test_a_constant_torque_of_a_log_is_told_apart_from_friction(model):
    windows = pendulum.windows(model, TRUTH, logs=2)
    offset = torch.tensor([[0.0, 0.0], [0.3, -0.2]], dtype=torch.float64)
    shifted = dataclasses.replace(windows, control=windows.control - offset[windows.log][:, None])
    residuals, point = solved(model, shifted, torque_offset=0.5)
    torch.testing.assert_close(0.5 * point.local[0], offset, rtol=0, atol=0.02)
    assert found_values(residuals, point)["elbow.mass"] == pytest.approx(1.3, rel=0.02)


def test_a_payload_of_one_log_is_found(model):
    light, heavy = (
        pendulum.windows(model, {**TRUTH, "elbow.mass": mass}, seed=seed, count=12)
        for seed, mass in ((0, 1.2), (1, 1.4))
    )
    both = dataclasses.replace(
        light, q=torch.cat([light.q, heavy.q]), qd=torch.cat([light.qd, heavy.qd]),
        control=torch.cat([light.control, heavy.control]),
        origin=Origin.of_logs(torch.arange(24) // 12, ("light", "heavy")),
    )  # fmt: skip
    residuals, point = solved(model, both, per_log={"elbow.mass": 0.1})
    masses = found_values(residuals, point)["elbow.mass"] + 0.1 * point.local[0, :, 0]
    assert masses.tolist() == pytest.approx([1.2, 1.4], rel=0.02)


def test_masses_of_an_arm_without_gravity_and_friction_are_known_as_ratios_only():
    """Point masses, all times one factor, move in the same way where nothing pulls at them."""
    model = of_point_masses(pendulum.dynamics("*.mass", gravity=0.0))
    windows = pendulum.windows(model, {}, torque=0.0)
    residuals = Residuals(model, windows, pendulum.true_noise())
    found = identifiability(residuals, start(residuals))
    (direction,) = found.insensitive
    assert dict(direction.parts) == pytest.approx({"shoulder.mass": 0.5**0.5, "elbow.mass": 0.5**0.5}, rel=1e-4)
    assert found.condition > 1e6
    text = warning(found)
    assert text is not None
    assert direction.text in text
    assert found.intervals(torch.ones(2), -torch.ones(2), torch.ones(2)) == [None, None]


def of_point_masses(model):
    """The same model without inertias of its links, and without damping."""
    none = (1e-12, 1e-12, 1e-12, 0.0, 0.0, 0.0)
    links = tuple(msgspec.structs.replace(link, damping=0.0, inertia=none) for link in model.mechanism.links)
    still = msgspec.structs.replace(model.mechanism, links=links)
    config = msgspec.structs.replace(model.config, free=())
    return HybridDynamics(model.spec, still, config, model.physical.specs)


def test_a_parameter_that_no_roll_out_depends_on_is_refused_by_name():
    model = pendulum.dynamics("elbow.mass", "elbow.inertia.xx", "elbow.com.y")
    residuals = Residuals(model, pendulum.windows(model, {}), pendulum.true_noise())
    found = identifiability(residuals, start(residuals))
    assert set(found.unseen) == {"elbow.inertia.xx", "elbow.com.y"}
    with pytest.raises(InputError, match=r"cannot identify elbow\.com\.y, elbow\.inertia\.xx"):
        require_seen(found, "double-pendulum")


def test_a_roll_out_that_is_not_finite_names_the_world_the_step_and_the_quantity(model):
    windows = pendulum.windows(model, TRUTH, count=4)
    broken = windows.control.clone()
    broken[2, 5] = 1e300
    residuals = Residuals(model, dataclasses.replace(windows, control=broken), pendulum.true_noise())
    with pytest.raises(InputError, match=r"world 2 \(episode 2, from state 0 on\) is not finite: qd?\.\w+ at step 6"):
        require_finite(residuals, start(residuals))
