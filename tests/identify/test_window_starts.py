# SPDX-License-Identifier: Apache-2.0
"""Starts of windows where a log's velocities are noise: a joint that friction holds is found at rest."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
import torch

from neurodyn.core.description.parameter import select_parameters
from neurodyn.data.header import StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.windows import Origin, Windows
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.measures import displace
from neurodyn.identify.fit.residuals import Point, ResidualOptions, Residuals
from neurodyn.identify.fit.window_starts import NEARLY_LINEAR, settle_starts, smoothed_starts, with_likely_starts
from neurodyn.identify.ladder.initial_states import of_positions
from neurodyn.multibody.engine import EngineConfig, nominal
from neurodyn.robots import load
from tests.identify import pendulum

NOISE = (5e-4, 0.5)
"""Of positions, and of velocities that are differences of these."""


@pytest.fixture(scope="module")
def held() -> tuple[Residuals, Point]:
    """Windows in which dry friction holds a pendulum that a log lets start at half a radian per second."""
    built = pendulum.mechanism()
    links = tuple(msgspec.structs.replace(link, friction=8.0) for link in built.links)
    built = msgspec.structs.replace(built, links=links)
    model = HybridDynamics(
        pendulum.SPEC,
        built,
        EngineConfig(substeps=2, contact="soft"),
        select_parameters(nominal(built, None), ["elbow.damping"]),
    )
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    control = 0.3 * draw(20, 1, 2).expand(20, 25, 2)
    with torch.no_grad():
        begin = State(0.4 * draw(20, 2), torch.zeros(20, 2, dtype=torch.float64))
        path = model.simulate(begin, control, pendulum.values(model, {}), model.weights)
    q, qd = path.q + NOISE[0] * draw(20, 26, 2), path.qd + NOISE[1] * draw(20, 26, 2)
    windows = Windows(q, qd, control, origin=Origin.of_logs(torch.arange(20) % 2, ["a", "b"]))
    residuals = Residuals(model, windows, pendulum.true_noise(NOISE), ResidualOptions(velocities=False))
    return residuals, residuals.start(residuals.space.nominal[None])


def test_starts_at_rest_are_found_that_no_slope_leads_to(held: tuple[Residuals, Point]):
    residuals, point = held
    ends = [
        residuals.window_costs(settle_starts(residuals, begin, 4, NEARLY_LINEAR)[0])[0]
        for begin in (with_likely_starts(residuals, point), point)
    ]
    expected = residuals.windows.frames * len(ends[0])  # half of the squares of two positions a frame
    assert float(ends[0].sum()) < 1.1 * expected
    assert float(ends[1].sum()) > 2.0 * expected


def test_no_window_starts_where_it_costs_more(held: tuple[Residuals, Point]):
    residuals, point = held
    before = replace(point, initial=0.1 * torch.ones_like(point.initial))
    after = with_likely_starts(residuals, before)
    costs = [residuals.window_costs(one) for one in (before, after)]
    moved = (after.initial != before.initial).any(-1)
    assert bool(moved.any())
    assert bool((costs[1] <= costs[0]).all())
    assert bool((costs[1] < costs[0])[moved].all())


@pytest.mark.parametrize(
    ("rate", "map_", "own"),
    [
        (50.0, {}, True), (100.3, {}, True), (125.0, {}, False), (62.5, {}, False), (625.0, {}, True),
        (50.0, {"qd": "differentiate"}, False), (None, {}, True),
    ],
)  # fmt: skip
def test_velocities_tell_of_a_motion_where_they_are_logged_in_its_frames(
    rate: float | None, map_: dict[str, str], own: bool
):
    """Frames are 20 ms long."""
    rates = {} if rate is None else {"rates_hz": {"all": {"median": rate}}}
    header = StoreHeader(spec=pendulum.SPEC, source="log", notes={"column_map": map_, **rates})
    assert of_positions(cast(Store, SimpleNamespace(header=header))) != own


def test_windows_too_short_for_a_parabola_stay_as_they_are(held: tuple[Residuals, Point]):
    residuals, point = held
    assert with_likely_starts(residuals.within(4), point) is point


def test_a_floating_base_starts_with_the_slope_of_the_poses_around_the_start():
    """A base that accelerates and turns, whose poses are known to 1 mm and 3 mrad."""
    spec, count, before, after = load("cube").spec, 200, 6, 12
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    time = spec.dt * torch.arange(-before, after + 1, dtype=torch.float64)[None, :, None]
    speed, faster = draw(count, 1, spec.nv), draw(count, 1, spec.nv)
    speed[..., 3:], faster[..., 3:] = 0.3 * speed[..., 3:], 0.0
    origin = torch.tensor([0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5], dtype=torch.float64).expand(count, 1, 7)
    noise = torch.tensor([1e-3] * 3 + [3e-3] * 3, dtype=torch.float64)
    true = displace(spec, origin, speed * time + 0.5 * faster * time**2)
    q = displace(spec, true, noise * draw(count, before + after + 1, spec.nv))
    qd = torch.zeros(count, before + after + 1, spec.nv, dtype=torch.float64)
    windows = Windows(q, qd, torch.zeros(count, before + after, len(spec.controls), dtype=torch.float64)).after(before)
    smoothed = smoothed_starts(spec, windows)
    off = (smoothed.qd[:, 0] - speed[:, 0]).std(0)
    sides = min(before, round(0.04 / spec.dt))
    expected = noise / (spec.dt * (2.0 * sum(k * k for k in range(1, sides + 1))) ** 0.5)
    assert off.tolist() == pytest.approx(expected.tolist(), rel=0.2)
    near = position_difference(spec, smoothed.q[:, 0], true[:, before])
    assert bool((near.std(0) < 0.8 * noise).all())
    assert torch.equal(smoothed.q[:, 1:], windows.q[:, 1:])
    alone = windows.until(5)
    assert smoothed_starts(spec, Windows(alone.q, alone.qd, alone.control)).qd.eq(0.0).all()
