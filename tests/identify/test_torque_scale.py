# SPDX-License-Identifier: Apache-2.0
"""Steps of a fit along straight lines of values, and the common scale of masses and torques that no motion tells."""

import msgspec
import pytest
import torch

from neurodyn.core.description.drive import Drive
from neurodyn.dynamics.batch import State
from neurodyn.identify import AdaptationSettings
from neurodyn.identify.confidence.certainty import deviations_of_ratios
from neurodyn.identify.fit.intervals import Identifiability
from neurodyn.identify.fit.least_squares import forgetting
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.motors import with_lag
from neurodyn.identify.unknowns.search_space import CoordinateSpace, PartOfSpace
from neurodyn.robots import load


@pytest.fixture(scope="module")
def model() -> FitModel:
    settings = AdaptationSettings()
    return FitModel.declared(with_lag(load("cartpole")), "cartpole", settings).in_prior_deviations(settings)


def worn(space: CoordinateSpace) -> torch.Tensor:
    values = {"hinge.damping": 0.4, "slider.damping": 3.0, "actuator.slider.gain": 0.8, "slider.mass_scale": 1.04}
    x = space.declared.clone()
    for name, value in values.items():
        x[space.names.index(name)] = space.coordinates[space.names.index(name)].of(value)
    return x


def test_masses_and_torques_that_grow_together_leave_motion_as_it_is(model: FitModel):
    space = model.space
    assert space is not None
    dynamics, x = model.dynamics(None, 1), worn(space)
    more = space.scaled(x, 1.25)
    assert float(space.value("actuator.slider.gain", more)) == pytest.approx(1.0)
    state = State(torch.tensor([[0.1, 0.4]]).double(), torch.tensor([[0.3, -0.5]]).double())
    push = 20.0 * torch.sin(torch.arange(30.0).double())[None, :, None]
    one, other = (dynamics.simulate(state, push, space.values(y).detach(), dynamics.weights) for y in (x, more))
    assert torch.allclose(one.q, other.q, atol=1e-9)
    direction = space.unseen(x)
    assert direction is not None
    step = 1e-6
    assert torch.allclose((space.scaled(x, 1.0 + step) - x) / step, direction, atol=1e-4)


def test_the_scale_follows_what_is_declared(model: FitModel):
    space = model.space
    assert space is not None
    back = space.with_likely_scale(space.scaled(space.declared, 1.3))
    assert float((back - space.declared).abs().max()) < 0.05


def test_coordinates_that_are_held_keep_their_values_while_the_scale_of_others_changes(model: FitModel):
    space = model.space
    assert space is not None
    drifted = space.scaled(worn(space), 1.3)
    among = torch.tensor(["damping" not in name for name in space.names])
    found = space.with_likely_scale(drifted, among)
    torch.testing.assert_close(found[~among], drifted[~among], rtol=0.0, atol=0.0)
    torch.testing.assert_close(found[among], space.with_likely_scale(drifted)[among])
    assert (found != drifted).any()


def test_a_velocity_servo_has_one_gain():
    """Its torque is gain kd (command - qd), of which a log tells the product; it carries the scale of torques."""
    servo = Drive(kind="velocity_servo", kd=3.0)
    robot = with_lag(msgspec.structs.replace(load("cartpole"), drives={"slider": servo}))
    settings = AdaptationSettings()
    space = FitModel.declared(robot, "cartpole", settings).in_prior_deviations(settings).space
    assert space is not None
    assert "actuator.slider.kd" in space.names
    assert "actuator.slider.gain" not in space.names
    direction = space.unseen(space.declared)
    assert direction is not None
    assert float(direction[space.names.index("actuator.slider.kd")]) > 0.0


def test_masses_and_torques_are_as_well_known_as_their_ratios(model: FitModel):
    """A log that tells all but the scale holds none of them as declared, which would give that one's scale to all."""
    space = model.space
    assert space is not None
    x = worn(space)
    scale = space.unseen(x)
    assert scale is not None
    count = len(space.names)
    covariance = 1e-4 * torch.eye(count, dtype=torch.float64) + torch.outer(scale, scale) / float(scale @ scale)
    deviations = covariance.diagonal().sqrt()
    zeros = torch.zeros(count, dtype=torch.float64)
    analysis = Identifiability(
        names=space.names, singular_values=(), condition=1.0, insensitive=(), without_effect=(), unseen=(), combined=(),
        bound=zeros.bool(), deviations=2.0 * deviations, white=deviations,
        correlation=covariance / torch.outer(deviations, deviations), newton=zeros, degrees=100, variance=1.0,
        information=covariance.inverse(),
    )  # fmt: skip
    scaled = scale.abs() > 1e-6
    assert float(analysis.deviations[scaled].max()) > 0.3
    ratios = deviations_of_ratios(space, x, analysis)
    assert float(ratios.max()) < 0.03
    torch.testing.assert_close(ratios[~scaled], analysis.deviations[~scaled])


def test_what_is_known_fixes_the_scale(model: FitModel):
    known = model.in_prior_deviations(AdaptationSettings(known={"slider.mass_scale": 1.0})).space
    assert known is not None
    assert known.unseen(known.declared) is None
    space = model.space
    assert space is not None
    held = PartOfSpace(space, torch.arange(1, len(space.names)), space.declared)
    assert held.unseen(held.nominal) is None


def test_information_along_a_direction_is_left_out():
    root = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    information, direction = root @ root.mT, torch.tensor([1.0, 2.0, 0.0, -1.0]).double()
    only = forgetting(information, direction)
    left = only @ information @ only.mT
    assert float((left @ direction).abs().max()) < 1e-12
    across = torch.linalg.inv(information) @ torch.tensor([0.0, 1.0, 2.0, 2.0]).double()  # I across is normal to it
    assert torch.allclose(left @ across, information @ across)


def test_steps_are_straight_in_values_and_end_at_bounds_or_within_reach(model: FitModel):
    space = model.space
    assert space is not None
    x = worn(space)
    low, high = space.reach(x, 2.0)
    for end, bound in ((low, space.lower), (high, space.upper)):
        moved = space.moved(x, end)
        assert torch.allclose(moved, torch.maximum(torch.minimum(bound, x + 2.0), x - 2.0), atol=1e-9)
    k = space.names.index("hinge.damping")
    part = torch.zeros_like(x)
    values = []
    for share in (0.0, 0.5, 1.0):
        part[k] = share * 0.4
        values.append(float(space.value("hinge.damping", space.moved(x, part))))
    assert values[2] - values[1] == pytest.approx(values[1] - values[0])
