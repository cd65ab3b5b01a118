# SPDX-License-Identifier: Apache-2.0
"""Free quantities as numbers without bounds: there and back, and never out of what can be."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neurodyn.core.description.parameter import Parameter
from neurodyn.core.errors import InputError
from neurodyn.dynamics.hybrid.parameters import Parameters, size_of

ENTRIES = ("xx", "yy", "zz", "xy", "xz", "yz")
BODY = (0.012, 0.011, 0.003, 0.001, -0.0005, 0.0002)
ROD = (0.08, 0.08, 0.0, 0.0, 0.0, 0.0)
SINGLE = (
    Parameter("mass", 2.0, 0.0),
    Parameter("damping", 0.1, 0.0, 0.5),
    Parameter("rest", -0.3),
    Parameter("ceiling", -1.0, None, 0.5),
    Parameter("stiffness", 1e5, 10.0),
    Parameter("zero", 0.0, 0.0),
)
ON_BOUNDS = (Parameter("floor", 0.0, 0.0), Parameter("low", 0.0, 0.0, 2.0), Parameter("high", 2.0, 0.0, 2.0))


def inertia(link="arm", values=BODY):
    return tuple(
        Parameter(f"{link}.inertia.{entry}", value, 0.0 if entry in ("xx", "yy", "zz") else None)
        for entry, value in zip(ENTRIES, values, strict=True)
    )


def matrix(entries):
    xx, yy, zz, xy, xz, yz = entries.unbind(-1)
    rows = [torch.stack(row, -1) for row in ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))]
    return torch.stack(rows, -2)


def second_moment(entries):
    """Return the integral of r r^T over the mass, which must be positive semi-definite."""
    i = matrix(entries)
    return 0.5 * i.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None] * torch.eye(3).double() - i


MIXED = (*SINGLE[:2], *inertia(), *SINGLE[2:])


def test_zeros_are_nominal():
    found = Parameters(MIXED)
    assert found.raw.dtype == torch.float64
    assert not found.raw.any()
    torch.testing.assert_close(found()[:-1], found.nominal[:-1], rtol=1e-10, atol=1e-15)
    assert found.nominal[-1] == 0.0  # on its bound; here it begins 1e-6 above it
    torch.testing.assert_close(found()[-1], torch.tensor(1e-6).double())


def test_a_start_on_a_bound_is_moved_inside():
    found = Parameters(ON_BOUNDS)()
    assert (found > torch.tensor([0.0, 0.0, 1.9])).all()
    assert (found < torch.tensor([1e-5, 3e-3, 2.0])).all()
    # And can be moved away from there.
    gradient = torch.autograd.functional.jacobian(Parameters(ON_BOUNDS).forward, torch.zeros(3).double()).diagonal()
    assert (gradient > 1e-7).all()


def test_raw_and_values_are_one_anothers_inverse():
    found = Parameters(MIXED)
    raw = torch.randn(50, len(MIXED), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = found(raw)
    assert values.shape == raw.shape
    torch.testing.assert_close(found(found.raw_of(values)), values, rtol=1e-9, atol=1e-12)
    single = [i for i, spec in enumerate(MIXED) if "inertia" not in spec.name]
    torch.testing.assert_close(found.raw_of(values)[:, single], raw[:, single], rtol=1e-9, atol=1e-9)


def test_values_on_a_bound_come_back_to_within_rounding():
    found = Parameters(ON_BOUNDS)
    torch.testing.assert_close(found(found.raw_of(found.nominal)), found.nominal, rtol=1e-11, atol=1e-11)


def test_bounds_are_never_left():
    found = Parameters((*SINGLE, *ON_BOUNDS))
    for raw in (-50.0, -1.0, 0.0, 1.0, 50.0):
        for spec, value in zip(found.specs, found(torch.full((len(found.specs),), raw).double()), strict=True):
            assert value.isfinite()
            assert spec.lower is None or value >= spec.lower, (spec, raw)
            assert spec.upper is None or value <= spec.upper, (spec, raw)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=6, max_size=6), st.sampled_from([BODY, ROD]))
def test_no_raw_breaks_the_triangle_inequality(raw, nominal):
    """However far they are moved: a body's moments are positive, and none exceeds the sum of the others."""
    found = Parameters(inertia(values=nominal))(torch.tensor(raw, dtype=torch.float64))
    x, y, z = found[:3].tolist()
    assert found.isfinite().all()
    assert min(x, y, z) > 0
    assert x <= y + z
    assert y <= x + z
    assert z <= x + y
    # To rounding: of a body that is thinner than that, a computer cannot tell.
    assert torch.linalg.eigvalsh(second_moment(found)).min() >= -1e-12 * (x + y + z)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.floats(-2, 2), min_size=6, max_size=6))
def test_every_raw_of_a_usual_size_is_the_inertia_of_a_body(raw):
    found = Parameters(inertia())(torch.tensor(raw, dtype=torch.float64))
    assert torch.linalg.eigvalsh(second_moment(found)).min() > 0
    assert torch.linalg.eigvalsh(matrix(found)).min() > 0


def test_a_rod_without_any_width_gets_a_millionth():
    found = Parameters(inertia(values=ROD))
    torch.testing.assert_close(found(), found.nominal, rtol=0.0, atol=4e-6 * 0.08)
    assert torch.linalg.eigvalsh(second_moment(found().detach())).min() == pytest.approx(1e-6 * 0.08, rel=1e-4)


def test_every_inertia_of_a_body_can_be_reached():
    found = Parameters(inertia())
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(30, 8, 3, generator=generator, dtype=torch.float64)  # eight unit masses each
    moment = points.mT @ points
    trace = moment.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]
    i = trace * torch.eye(3).double() - moment
    entries = torch.stack([i[:, a, b] for a, b in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))], -1)
    torch.testing.assert_close(found(found.raw_of(entries)), entries, rtol=1e-9, atol=1e-9)


def test_raw_moves_small_and_large_bodies_alike():
    """A step of an optimiser means the same share of the inertia, whatever the size of the link."""
    generator = torch.Generator().manual_seed(2)
    raw = 0.1 * torch.randn(20, 6, generator=generator, dtype=torch.float64)
    small, large = (Parameters(inertia(values=tuple(s * x for x in BODY)))(raw) / s for s in (1e-4, 1e2))
    torch.testing.assert_close(small, large, rtol=1e-9, atol=1e-12)


def test_parts_of_an_inertia_are_numbers_as_others_are():
    found = Parameters(inertia()[:5])
    assert found.blocks == []
    torch.testing.assert_close(found(), found.nominal, rtol=1e-12, atol=1e-15)


def test_two_links_have_inertias_of_their_own():
    specs = (*inertia("arm"), SINGLE[0], *inertia("leg", ROD))
    found = Parameters(specs)
    assert found.blocks == [list(range(6)), list(range(7, 13))]
    raw = torch.randn(13, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    alone = torch.cat([Parameters(inertia("arm"))(raw[:6]), Parameters(inertia("leg", ROD))(raw[7:])])
    assert torch.equal(found(raw)[[*range(6), *range(7, 13)]], alone)


def test_derivatives():
    found = Parameters(MIXED)
    raw = torch.randn(3, len(MIXED), generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    raw[:, -2] = 0.0  # of a stiffness of 1e5 differences have no more digits
    scale = torch.tensor([max(abs(spec.nominal), 1e-3) for spec in MIXED], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: found(x) / scale, [raw.requires_grad_()], atol=1e-7)


def test_any_batch_of_raws():
    found = Parameters(MIXED)
    raw = torch.randn(2, 3, len(MIXED), generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    together = found(raw)
    for a in range(2):
        for b in range(3):
            torch.testing.assert_close(found(raw[a, b]), together[a, b], rtol=1e-13, atol=1e-15)


def test_nothing_free():
    found = Parameters(())
    assert found().shape == (0,)
    assert found(torch.zeros(4, 0).double()).shape == (4, 0)
    assert found.raw_of(torch.zeros(0).double()).shape == (0,)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (1e-3, None)])
def test_bounds_in_an_inertia_that_is_free_as_a_whole_are_refused(bounds):
    specs = (Parameter("arm.inertia.xx", BODY[0], *bounds), *inertia()[1:])
    with pytest.raises(InputError, match=r"'arm\.inertia\.xx': has bounds, .* of link 'arm' is free.*valid: no bounds"):
        Parameters(specs)
    Parameters(specs[:5])


def test_an_inertia_of_no_body_is_refused():
    with pytest.raises(InputError, match=r"link 'arm': its inertia is that of no body.*; valid: moments"):
        Parameters(inertia(values=(1.0, 1.0, 3.0, 0.0, 0.0, 0.0)))


def test_a_value_of_zero_moves_on_the_scale_of_its_range():
    assert size_of(Parameter("slider.damping", 0.0, 0.0, 500.0)) == 5.0
    assert size_of(Parameter("slider.damping", 0.0, 0.0)) == 1e-3
    assert size_of(Parameter("slider.damping", 20.0, 0.0, 500.0)) == 20.0


def test_values_follow_every_change_of_raw_and_are_computed_once_between():
    found = Parameters(MIXED)
    with torch.no_grad():
        assert found.values() is found.values()
        found.raw[0] += 0.5
        torch.testing.assert_close(found.values(), found(), rtol=0.0, atol=0.0)
    optimiser = torch.optim.Adam([found.raw], fused=True)
    assert found.values().requires_grad
    found.values().sum().backward()
    optimiser.step()
    other = Parameters(MIXED)
    for change in (lambda: None, lambda: found.set_values(other().detach()), lambda: found.to(torch.float32)):
        change()
        with torch.no_grad():
            torch.testing.assert_close(found.values(), found(), rtol=0.0, atol=0.0)
