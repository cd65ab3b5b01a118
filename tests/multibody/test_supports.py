# SPDX-License-Identifier: Apache-2.0
"""Friction under a body that slides on a table, beside what mechanics says of it."""

import math

import msgspec
import pytest
import torch

from neurodyn.core import Mechanism, Support
from neurodyn.core.description.parameter import select_parameters
from neurodyn.dynamics import State
from tests.multibody.planar import F64, HALF, MASS, SQUARE, body, dynamics

FREE = ("support.under.*", "block.mass")
DT = 1e-4
NAMES = ("friction", "anisotropy", "slip_speed", "centre.x", "centre.y", "rim")


def sliding():
    support = Support(name="under", link="block", outline=SQUARE, friction=0.25)
    return Mechanism(links=body("block", 0), supports=(support,))


@pytest.fixture(scope="module")
def model():
    mechanism = sliding()
    parameters = select_parameters(mechanism.quantities(), FREE, mechanism.bounds())
    return dynamics(mechanism, None, parameters, substeps=1, dt=DT)


def slowed(model, qd, **changes):
    """Return accelerations of x, y and the angle of a block that slides, with other values of quantities."""
    names = [spec.name for spec in model.physical.specs]
    values = torch.tensor([spec.nominal for spec in model.physical.specs], dtype=F64)
    for name, value in changes.items():
        values[names.index(f"support.under.{name.replace('__', '.')}")] = value
    qd = torch.tensor([qd], dtype=F64)
    path = model.simulate(State(torch.zeros_like(qd), qd), torch.zeros(1, 1, 0, dtype=F64), values, model.weights)
    return (path.qd[0, 1] - qd[0]).detach() / DT


def test_a_block_that_slides_without_turning_is_slowed_by_mu_g(model):
    assert slowed(model, (0.3, -0.4, 0.0)).tolist() == pytest.approx([-0.25 * 9.81 * 0.6, 0.25 * 9.81 * 0.8, 0.0])


def test_a_block_that_spins_in_place_feels_the_moment_of_its_pressure(model):
    points = torch.tensor(sliding().supports[0].points, dtype=F64)
    mean = points.norm(dim=1).mean()
    expected = -0.25 * MASS * 9.81 * mean / 1e-3
    assert float(slowed(model, (0.0, 0.0, 50.0))[2]) == pytest.approx(float(expected), rel=1e-3)


def test_friction_along_the_grain_is_another(model):
    along, across = slowed(model, (0.3, 0, 0), anisotropy=1.6)[0], slowed(model, (0, 0.3, 0), anisotropy=1.6)[1]
    assert float(across / along) == pytest.approx(1.6, rel=1e-6)
    # Oblique friction lies on the ellipse, and its work is the greatest of all on it (Goyal et al. 1991).
    force = -slowed(model, (0.3, 0.2, 0.0), anisotropy=1.6)[:2] / (0.25 * 9.81)
    assert float(force[0] ** 2 + (force[1] / 1.6) ** 2) == pytest.approx(1.0, rel=1e-6)
    angle = torch.linspace(0, math.pi / 2, 2001, dtype=F64)
    works = 0.3 * angle.cos() + 0.2 * 1.6 * angle.sin()
    assert float(0.3 * force[0] + 0.2 * force[1]) == pytest.approx(float(works.max()), rel=1e-6)


def test_the_centre_of_pressure_is_as_declared_to_first_order(model):
    force = slowed(model, (0.0, 0.5, 0.0), centre__x=0.002)
    # The moment of a uniform slip is that of the friction at the centre of pressure.
    arm = force[2] * 1e-3 / (force[1] * MASS)
    assert float(arm) == pytest.approx(0.002, rel=0.02)


def test_more_pressure_at_the_rim_resists_turning_more(model):
    moments = [-float(slowed(model, (0.0, 0.0, 50.0), rim=rim)[2]) for rim in (-1.0, 0.0, 1.0, 3.0)]
    assert moments == sorted(moments)
    most = 0.25 * MASS * 9.81 * HALF * math.sqrt(2) / 1e-3
    assert moments[-1] < most


def test_a_block_at_rest_stays_and_one_that_slides_stops(model):
    assert slowed(model, (0.0, 0.0, 0.0)).tolist() == [0.0, 0.0, 0.0]
    mechanism = sliding()
    qd = torch.tensor([[0.2, 0.1, 3.0]], dtype=F64)
    path = dynamics(mechanism, None).rollout(State(torch.zeros_like(qd), qd), torch.zeros(1, 60, 0, dtype=F64))
    energies = path.qd[0].detach().square() @ torch.tensor([MASS, MASS, 1e-3], dtype=F64)
    assert (energies.diff() <= 1e-12).all()
    assert energies[-1] < 1e-6 * energies[0]


def test_quantities_return_into_the_mechanism():
    mechanism = sliding()
    named = {f"support.under.{name}": 0.1 * (index + 2) for index, name in enumerate(NAMES)}
    assert {**mechanism.quantities(), **named} == mechanism.with_quantities(named).quantities()


def test_numbers_stay_where_they_have_a_meaning():
    found = {one.name: one.lower for one in select_parameters(
        sliding().quantities(), ["support.*"], sliding().bounds())}  # fmt: skip
    assert found["support.under.friction"] == 0.0
    assert found["support.under.anisotropy"] > 0.0
    assert found["support.under.rim"] is None


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="one with at most 400 points"):
        Support(name="under", link="block", outline=SQUARE, spacing=1e-4)
    with pytest.raises(ValueError, match="link is 'blok'; valid: one of block_x, block_y, block"):
        msgspec.structs.replace(sliding(), supports=(Support(name="under", link="blok", outline=SQUARE),))
