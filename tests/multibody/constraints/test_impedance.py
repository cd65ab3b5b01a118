# SPDX-License-Identifier: Apache-2.0
"""Compliance of constraints: MuJoCo's formulas on plain numbers."""

import numpy as np
import pytest

from neurodyn.multibody.constraints.impedance import compliance_of, tangent

DEFAULT = {
    "r.timeconst": 0.02, "r.dampratio": 1.0,
    "i.d0": 0.9, "i.dwidth": 0.95, "i.width": 0.001, "i.midpoint": 0.5, "i.power": 2.0,
}  # fmt: skip


def compliance(dt=0.002, **changes):
    return compliance_of((DEFAULT | changes).__getitem__, "r", "i", dt)


@pytest.mark.parametrize(
    ("changes", "dt", "damping", "stiffness"),
    [
        ({}, 0.002, 2 / (0.95 * 0.02), 1 / (0.95 * 0.02) ** 2),
        ({}, 0.02, 2 / (0.95 * 0.04), 1 / (0.95 * 0.04) ** 2),  # time constants stay above two steps
        ({"r.dampratio": 0.5}, 0.002, 2 / (0.95 * 0.02), 1 / (0.95 * 0.02 * 0.5) ** 2),
        ({"r.timeconst": -100.0, "r.dampratio": -5.0}, 0.002, 5 / 0.95, 100 / 0.95**2),  # given directly
    ],
)
def test_stiffness_and_damping(changes, dt, damping, stiffness):
    one = compliance(dt, **changes)
    assert one.damping == pytest.approx(damping)
    assert one.stiffness == pytest.approx(stiffness)


@pytest.mark.parametrize(
    ("violation", "impedance"),
    [(-1.0, 0.9), (0.0, 0.9), (0.00025, 0.90625), (0.0005, 0.925), (0.001, 0.95), (1.0, 0.95)],
)
def test_the_impedance_rises_over_its_width(violation, impedance):
    one = compliance()
    assert one.impedance(violation) == pytest.approx(impedance)
    assert one.weight(violation, 2.0) == pytest.approx(impedance / (1 - impedance) / 2.0)
    assert one.reference(violation) == pytest.approx(-one.stiffness * impedance * violation)


@pytest.mark.parametrize("normal", [(0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (0.6, 0.0, 0.8), (0.0, 0.8, 0.6)])
def test_tangents_are_unit_vectors_across_the_normal(normal):
    for axis in (None, np.array([0.8, 0.36, 0.48])):
        first = tangent(np.array(normal), axis, always=axis is not None)
        assert float(first @ first) == pytest.approx(1.0)
        assert float(first @ normal) == pytest.approx(0.0, abs=1e-12)
