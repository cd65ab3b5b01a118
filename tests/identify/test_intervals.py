# SPDX-License-Identifier: Apache-2.0
"""Intervals: blocks against refits without them, moves that are no noise, initial states of windows."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from neurodyn.core.description.parameter import select_parameters, student_t
from neurodyn.data.windows import Blocks
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.confidence.parameter_search import kept_stage
from neurodyn.identify.fit.intervals import (
    NormalSystem,
    doubted_scale,
    identifiability,
    inward_deviations,
    shift_towards,
    unexplained,
)
from neurodyn.identify.fit.least_squares import fitted, levenberg_marquardt
from neurodyn.identify.fit.readings import Noise
from neurodyn.identify.fit.residuals import Point, ResidualOptions, Residuals
from neurodyn.identify.stages.growing_windows import Fitting, settled
from neurodyn.identify.unknowns.priors import UnitPrior
from neurodyn.identify.unknowns.search_space import BoxedSpace
from neurodyn.multibody.engine import EngineConfig, nominal
from tests.identify import pendulum

ASKED = ("elbow.mass", "elbow.com.z", "*.damping")
TRUTH = {"elbow.mass": 1.3, "elbow.com.z": -0.2, "shoulder.damping": 0.2}
LOGS = 12


@pytest.fixture(scope="module")
def solution() -> tuple[Residuals, Point]:
    model = pendulum.dynamics(*ASKED)
    residuals = Residuals(model, pendulum.windows(model, TRUTH, logs=LOGS), pendulum.true_noise())
    residuals, found = fitted(residuals, residuals.start(residuals.space.nominal[None]), 40)
    return residuals, found.point


def test_deviations_are_those_of_refits_without_a_block(solution: tuple[Residuals, Point]):
    residuals, point = solution
    ends = []
    for log in range(LOGS):
        rows = torch.nonzero(residuals.windows.log != log)[:, 0]
        kept = Point(point.x, point.local, point.initial[:, rows])
        ends.append(residuals.values(levenberg_marquardt(residuals.of_windows(rows), kept, 20).point.x)[0])
    values = torch.stack(ends)
    jackknife = ((LOGS - 1) / LOGS * (values - values.mean(0)).square().sum(0)).sqrt()
    ratio = identifiability(residuals, point).deviations / jackknife
    assert ((ratio > 0.6) & (ratio < 2.0)).all(), ratio


def test_a_move_is_that_of_a_fit_with_the_other_model(solution: tuple[Residuals, Point]):
    residuals, point = solution
    built = pendulum.mechanism()
    specs = select_parameters(nominal(built, None), ASKED)
    other = residuals.with_dynamics(HybridDynamics(pendulum.SPEC, built, EngineConfig(substeps=8), specs))
    moved = levenberg_marquardt(other, point, 30).point.x[0] - point.x[0]
    found = shift_towards(residuals, point, other.errors(point))
    assert float(moved.abs().max()) > 3e-3, "the test needs a model whose steps are too long"
    torch.testing.assert_close(found, moved, rtol=0.15, atol=3e-4)


def test_no_error_moves_what_no_motion_tells(solution: tuple[Residuals, Point]):
    residuals, point = solution
    other = residuals.errors(point) + 0.01

    class Scaled(BoxedSpace):
        def __init__(self) -> None:
            own = residuals.space
            self.names, self.lower, self.upper, self.nominal = own.names, own.lower, own.upper, own.nominal

        def values(self, x: torch.Tensor) -> torch.Tensor:
            return residuals.space.values(x)

        def unseen(self, x: torch.Tensor) -> torch.Tensor:
            return torch.eye(x.shape[-1], dtype=x.dtype)[0].expand_as(x)

    moved = shift_towards(residuals.with_space(Scaled()), point, other)
    assert abs(float(moved[0])) < 1e-9
    assert float(moved.abs().max()) > 1e-3


def test_what_priors_alone_tell_is_doubted_where_they_disagree():
    """A direction that no motion tells is known from priors, with the Birge ratio of their residuals."""

    class Scaled(BoxedSpace):
        def unseen(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tensor([3.0, 4.0, 0.0], dtype=x.dtype)

    def found(*x: float, bound: tuple[bool, ...] = (False,) * 3) -> list[float]:
        point = Point(torch.tensor([x]).double(), torch.zeros(1, 1, 0), torch.zeros(1, 1, 0))
        residuals = SimpleNamespace(
            physical=False, locals=0, parameters=3, space=Scaled(), prior=UnitPrior(), off_prior=lambda x: x
        )
        return doubted_scale(residuals, point, torch.tensor(bound)).tolist()  # type: ignore[arg-type]

    assert found(0.5, -1.0, 9.0) == [0.0] * 3
    ratio = (9 * 4.0**2 + 16 * 3.0**2) / 25
    root = (ratio - 1.0) ** 0.5 / 5.0
    assert found(4.0, -3.0, 9.0) == pytest.approx([3.0 * root, 4.0 * root, 0.0])
    assert found(0.5, -1.0, 9.0, bound=(True, False, False)) == pytest.approx([0.0, 0.8, 0.0])


def test_moves_widen_deviations_but_not_at_bounds(solution: tuple[Residuals, Point]):
    analysis = identifiability(*solution)
    moves = torch.stack([3.0 * analysis.deviations, 4.0 * analysis.deviations])
    wider = analysis.widened(moves)
    torch.testing.assert_close(wider.deviations, 26.0**0.5 * analysis.deviations)
    assert analysis.widened(None) is analysis


def test_what_noise_does_not_explain_may_err_alike_in_all_blocks(solution: tuple[Residuals, Point]):
    residuals, point = solution
    analysis = identifiability(residuals, point)
    rest = residuals.robust(point)
    for times, share in ((1.0, 0.0), (2.0, 0.0), (0.5, 1.0 - 0.55**2)):
        noise = residuals.with_scale(residuals.scale, Noise(*(times * rest).chunk(2)))
        same = Point(point.x, point.local, point.initial * residuals.noise.joined / noise.noise.joined)
        assert unexplained(noise, same) == pytest.approx(share, abs=0.01)
    wider = analysis.inflated(0.75)
    torch.testing.assert_close(wider.deviations, (1.0 + 0.75 * (LOGS - 1)) ** 0.5 * analysis.deviations)
    assert torch.equal(analysis.inflated(0.0).deviations, analysis.deviations)


@pytest.mark.parametrize(("costs", "kept"), [
    ({"short": 100.0, "middle": 103.0, "long": 104.0}, "middle"),
    ({"short": 100.0, "middle": 90.0, "long": 92.0}, "long"),
    ({"short": 80.0, "middle": 90.0, "long": 92.0}, "short"),
])  # fmt: skip
def test_the_longest_of_stages_that_predict_alike_is_kept(costs: dict[str, float], kept: str):
    assert kept_stage(costs) == kept


@pytest.mark.parametrize(("coordinates", "own"), [(100, True), (101, False)])
def test_only_fits_of_few_quantities_end_with_their_own_derivatives(coordinates: int, own: bool):
    fitting = SimpleNamespace(
        _seen=torch.zeros(coordinates), dynamics="short steps", doubled="doubled steps", tangent="long steps"
    )
    assert Fitting.take_own_derivatives(fitting) is own  # type: ignore[arg-type]
    assert fitting.tangent == ("doubled steps" if own else "long steps")


def test_initial_states_are_fitted_at_given_values(solution: tuple[Residuals, Point]):
    residuals, point = solution
    start = residuals.start(point.x)
    found = settled(residuals, start)
    assert torch.equal(found.x, point.x)
    assert float(residuals.cost(found)) < 0.7 * float(residuals.cost(start))
    assert float(residuals.cost(found)) == pytest.approx(float(residuals.cost(point)), rel=1e-3)
    logged = Residuals(residuals.dynamics, residuals.windows, residuals.noise, ResidualOptions(initial=False))
    nothing = logged.start(point.x)
    assert settled(logged, nothing) is nothing


def test_at_a_bound_intervals_reach_inwards_as_far_as_the_profile_of_the_cost():
    """Of two parameters, the first is kept at 0 from below; the second moves along with it."""
    rows = torch.randn(40, 5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) @ torch.tensor(
        [[1.0, 0.6], [0.0, 1.0]], dtype=torch.float64
    )
    noise = torch.randn(40, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    target = rows @ torch.tensor([-0.05, 0.3], dtype=torch.float64) + noise
    flat, wanted = rows.flatten(0, 1), target.flatten()
    second = float(flat[:, 1] @ wanted / (flat[:, 1] @ flat[:, 1]))
    residual = rows @ torch.tensor([0.0, second], dtype=torch.float64) - target
    scores, by_window = (rows.mT @ residual[..., None])[..., 0], rows.mT @ rows
    system = NormalSystem(by_window.sum(0), torch.zeros(2, 2, dtype=torch.float64), scores.sum(0), scores, by_window)
    blocks = Blocks(torch.arange(40), 40, logs=True)
    deviations = inward_deviations(system, torch.tensor([True, False]), 1.0, blocks)
    reach = student_t(39, 0.9) * float(deviations[0])

    def rise(t: float) -> float:
        rest = wanted - t * flat[:, 0]
        other = flat[:, 1] @ rest / (flat[:, 1] @ flat[:, 1])
        return 0.5 * float((rest - other * flat[:, 1]).square().sum() - residual.square().sum())

    level = replace(system, gradient=torch.zeros(2, dtype=torch.float64))
    freed = inward_deviations(level, torch.tensor([True, False]), 1.0, blocks)
    curvature = (rise(1e-3) + rise(-1e-3)) / 1e-6
    assert rise(reach) == pytest.approx(0.5 * curvature * (student_t(39, 0.9) * float(freed[0])) ** 2, rel=1e-3)
    assert 0.0 < float(deviations[0]) < float(freed[0])
    assert float(deviations[1]) == 0.0
