# SPDX-License-Identifier: Apache-2.0
"""Parameters from torques: found where torques show them, plausible everywhere, and refused where they do not apply."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.errors import InputError
from neurodyn.dynamics.hybrid.parameters import Parameters
from neurodyn.identify import inverse_dynamics
from neurodyn.identify.inverse_dynamics import TorqueModel, TorqueSamples, fit_torques
from tests.multibody.machines import TURNED, joint

ALL = ("*.mass", "*.com", "*.inertia", "*.armature", "*.damping", "*.friction")


def arm() -> Mechanism:
    """Three links about axes in different directions, with friction and rotors."""
    axes = ((0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (0.0, 0.8, 0.6))
    links = tuple(
        Link(
            joint=joint(name, "revolute", k - 1, (0.0, 0.05 * k, 0.3 * k), axis, child=TURNED), mass=3.0 - k,
            com=(0.02, 0.01 * k, 0.15), inertia=(0.05, 0.04, 0.02, 0.002, -0.001, 0.003), armature=0.2,
            damping=2.0 - 0.5 * k, friction=3.0 - k,
        )
        for k, (name, axis) in enumerate(zip("abc", axes, strict=True))
    )  # fmt: skip
    return Mechanism(links=links)


def nominal() -> Mechanism:
    """What a declaration knows of it: other masses and centres, no friction."""
    links = tuple(
        msgspec.structs.replace(
            link, mass=1.3 * link.mass, com=(0.0, 0.0, 0.1), inertia=(0.03, 0.03, 0.03, 0.0, 0.0, 0.0), armature=0.0,
            damping=0.0, friction=0.0,
        )
        for link in arm().links
    )  # fmt: skip
    return Mechanism(links=links)


def motion(seed: int, count: int = 1500) -> TorqueSamples:
    """Sums of sines, with torques of the true arm and .1 N m of noise."""
    rng = np.random.default_rng(seed)
    time = 0.01 * np.arange(count)[:, None, None]
    rate, phase = rng.uniform(0.5, 6.0, (3, 5)), rng.uniform(0, 6, (3, 5))
    size, angle = rng.uniform(0.2, 0.5, (3, 5)), rate * time + phase
    q, qd = (size * np.sin(angle)).sum(-1), (size * rate * np.cos(angle)).sum(-1)
    qdd = -(size * rate**2 * np.sin(angle)).sum(-1)
    still = TorqueSamples(q, qd, qdd, np.zeros_like(q), 0.01)
    torque = TorqueModel(arm()).torque(still, torch.zeros(0, dtype=torch.float64), ())
    return TorqueSamples(q, qd, qdd, torque + 0.1 * rng.normal(size=q.shape), 0.01)


def test_torques_of_an_unseen_motion_follow_and_friction_is_found():
    specs = select_parameters(nominal().quantities(), ALL)
    fit = fit_torques(nominal(), Parameters(specs), motion(0), prior=1.0)
    assert fit.converged
    unseen = motion(1)
    error = unseen.torque - TorqueModel(nominal()).torque(unseen, fit.values, specs)
    assert np.sqrt(np.square(error).mean(0)).max() < 0.11
    found = dict(zip((spec.name for spec in specs), fit.values.tolist(), strict=True))
    for name, value in arm().quantities().items():
        if name.endswith((".damping", ".friction")):
            assert found[name] == pytest.approx(value, rel=0.03)


def test_every_link_is_a_body_that_can_exist_and_what_torques_do_not_tell_is_said():
    specs = select_parameters(nominal().quantities(), ALL)
    fit = fit_torques(nominal(), Parameters(specs), motion(0))
    found = dict(zip((spec.name for spec in specs), fit.values.tolist(), strict=True))
    for name in "abc":
        xx, yy, zz, xy, xz, yz = (found[f"{name}.inertia.{entry}"] for entry in ("xx", "yy", "zz", "xy", "xz", "yz"))
        inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        assert np.linalg.eigvalsh(0.5 * np.trace(inertia) * np.eye(3) - inertia).min() > 0
        assert found[f"{name}.mass"] > 0
    assert "a.mass" in fit.analysis.combined  # its axis is upright: no torque shows the first link's mass
    assert "b.damping" not in fit.analysis.combined


def test_derivatives_are_those_of_finite_differences():
    specs = select_parameters(nominal().quantities(), ALL)
    model, space = TorqueModel(nominal()), inverse_dynamics.SearchSpace(Parameters(specs))
    x = space.nominal + 0.1 * torch.rand(len(specs), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = inverse_dynamics._rows(lambda at: model.coefficients(space.values(at), specs), x, model.size)
    steps = 1e-6 * torch.eye(len(x), dtype=torch.float64)
    with torch.no_grad():
        ahead, behind = (model.coefficients(space.values(x + sign * steps), specs) for sign in (1, -1))
    torch.testing.assert_close(found, ((ahead - behind) / 2e-6).mT, rtol=1e-6, atol=1e-8)


def test_a_polynomial_of_the_fifth_degree_is_smoothed_exactly():
    dt, half = 0.01, 5
    time = dt * (np.arange(2 * half) - half + 0.5)
    value, slope, curvature = inverse_dynamics._polynomial(half, dt) @ (2.0 + 3 * time - 4 * time**2 + 50 * time**5)
    assert (value, slope, curvature) == pytest.approx((2.0, 3.0, -8.0), rel=1e-9)


def test_a_quantity_in_which_torques_are_not_linear_is_refused():
    specs = select_parameters(nominal().quantities(), ("b.origin.x",))
    with pytest.raises(InputError, match=r"'b.origin.x' cannot be found by inverse dynamics; valid: armature"):
        fit_torques(nominal(), Parameters(specs), motion(0, 50))
