# SPDX-License-Identifier: Apache-2.0
"""Jacobians of a step against central differences along the degrees of freedom, in double precision."""

import dataclasses
import sys

import pytest
import torch

from neurodyn.core.description.scene import Plane, Scene
from neurodyn.core.errors import InputError
from neurodyn.dynamics import Environment, HybridDynamics, State, linearise, position_difference
from neurodyn.geometry import rotation
from neurodyn.multibody.engine import EngineConfig
from tests.multibody import machines

F64 = torch.float64


def hopper():
    mechanism = machines.hopper()
    config = EngineConfig(substeps=8, contact="force")
    return HybridDynamics(machines.spec(mechanism, ("knee",)), mechanism, config, scene=Scene(shapes=(Plane(),)))


def swing():
    """Two links that swing."""
    mechanism = machines.bare_pendulum()
    return HybridDynamics(machines.spec(mechanism, ("shoulder",)), mechanism, EngineConfig(substeps=2))


def moved(state, by):
    """Return states moved along their degrees of freedom: a floating base, then scalar joints."""
    nv = state.qd.shape[1]
    q = state.q.clone()
    if q.shape[1] > nv:
        q[:, :3] += by[:, :3]
        q[:, 3:7] = rotation.multiply(rotation.exponential(by[:, 3:6]), q[:, 3:7])
        q[:, 7:] += by[:, 6:nv]
    else:
        q += by[:, :nv]
    return State(q, state.qd + by[:, nv : 2 * nv])


def after(dynamics, state, torque, environment):
    path = dynamics.rollout(state, torque[:, None], environment)
    return State(path.q[:, 1].detach(), path.qd[:, 1].detach())


def hopping():
    generator = torch.Generator().manual_seed(4)
    turn = rotation.exponential(0.2 * torch.randn(3, 3, generator=generator, dtype=F64))
    place = torch.tensor([[0.1, 0.0, 0.13], [0.0, 0.2, 0.14], [0.0, 0.0, 0.6]], dtype=F64)
    q = torch.cat([place, turn, torch.tensor([[-1.1], [-1.2], [-1.3]], dtype=F64)], 1)
    return State(q, 0.3 * torch.randn(3, 7, generator=generator, dtype=F64)), torch.tensor(
        [[0.2], [-0.1], [0.0]], dtype=F64
    )


def swinging():
    generator = torch.Generator().manual_seed(5)
    q, qd = (torch.randn(2, 2, generator=generator, dtype=F64) for _ in range(2))
    return State(q, qd), torch.tensor([[0.3], [-0.5]], dtype=F64)


@pytest.mark.parametrize(("make", "given"), [(hopper, hopping), (swing, swinging)])
def test_jacobians_are_those_of_central_differences(make, given):
    dynamics, (state, torque) = make(), given()
    worlds, nv = state.worlds, dynamics.spec.nv
    gravity = torch.tensor([[0.0, 0.0, -9.81], [1.0, 0.0, -9.0], [0.0, 0.5, -3.7]], dtype=F64)[:worlds]
    environment = dataclasses.replace(dynamics.home, gravity=gravity)
    found = linearise(dynamics, state, torque, environment)
    plain = after(dynamics, state, torque, environment)
    torch.testing.assert_close(found.state.q, plain.q, rtol=1e-12, atol=1e-12)
    assert found.A.shape == (worlds, 2 * nv, 2 * nv)
    assert found.B.shape == (worlds, 2 * nv, 1)
    best = float("inf")
    for size in (1e-5, 1e-6):
        columns = []
        for i in range(2 * nv + 1):
            ends = []
            for sign in (size, -size):
                by = torch.zeros(worlds, 2 * nv + 1, dtype=F64)
                by[:, i] = sign
                ends.append(after(dynamics, moved(state, by), torque + by[:, -1:], environment))
            q = position_difference(dynamics.spec, ends[0].q, ends[1].q)
            columns.append(torch.cat([q, ends[0].qd - ends[1].qd], 1) / (2 * size))
        whole, ours = torch.stack(columns, -1), torch.cat([found.A, found.B], -1)
        best = min(best, float((whole - ours).abs().max() / whole.abs().max()))
    assert best < 1e-7
    assert float(found.A.abs().max()) > 0.5


@pytest.mark.parametrize(("make", "given"), [(hopper, hopping), (swing, swinging)])
def test_rows_in_lanes_are_those_of_autograd(monkeypatch, make, given):
    dynamics, (state, torque) = make(), given()
    compiled = linearise(dynamics, state, torque)
    monkeypatch.setattr(sys.modules["neurodyn.dynamics.linearisation"], "Compiled", str)  # what they are not
    other = linearise(dynamics, state, torque)
    for a, b in ((compiled.A, other.A), (compiled.B, other.B), (compiled.state.qd, other.state.qd)):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11 * float(b.abs().max()))


def test_what_does_not_differentiate_is_refused():
    dynamics, (state, torque) = swing(), swinging()
    with pytest.raises(InputError, match="torques"):
        linearise(dynamics, state, torque[:, :0])
    dynamics.differentiable = False
    with pytest.raises(InputError, match="cannot be linearised"):
        linearise(dynamics, state, torque)


def test_gradients_that_are_on_elsewhere_do_not_matter():
    dynamics, (state, torque) = swing(), swinging()
    with torch.no_grad():
        found = linearise(dynamics, state, torque, Environment())
    assert torch.equal(found.A, linearise(dynamics, state, torque).A)
    assert not found.A.requires_grad
