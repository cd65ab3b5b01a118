# SPDX-License-Identifier: Apache-2.0
"""Networks of energies: the equations of motion are Lagrange's, and energy behaves as it must whatever the weights."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from neurodyn.core import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.interface import State
from neurodyn.dynamics.neural.artifact import NEURAL, ModelConfig, ModelSpec, build_model
from neurodyn.dynamics.neural.encoding import EncodingConfig
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.nets import NetConfig, build_predictor
from neurodyn.nets.lagrangian import LagrangianNet

JOINTS = (
    JointSpec(name="cart", kind="prismatic"),
    JointSpec(name="upper", kind="revolute", continuous=True),
    JointSpec(name="lower", kind="revolute", continuous=True),
)
SPEC = StateSpec(robot="crane", joints=JOINTS, controls=("cart", "lower"), dt=0.01)


def model(kind: str, invariant: tuple[int, ...] = (), kappa: float = 0.6) -> NeuralDynamics:
    """Return a model of a crane with strong energies, in float64."""
    torch.manual_seed(0)
    encoding = EncodingConfig(invariant=invariant, limits=(), kappa=(0.5, 0.5, kappa), velocity_products=True)
    config = ModelConfig(kind="neural", net=NetConfig(kind=kind, width=16, depth=2), encoding=encoding, robot="crane")
    found = build_model(config, ModelSpec(state=SPEC, fingerprint=None)).double()
    inputs, outputs = found.encoding.inputs, found.encoding.outputs
    found.predictor.fit(torch.randn(500, inputs).double() + 0.2, 0.1 * torch.randn(500, outputs).double())
    with torch.no_grad():
        for weight in found.predictor.parameters():
            weight.mul_(3.0)
    return found


def net_of(dynamics: NeuralDynamics) -> LagrangianNet:
    assert isinstance(dynamics.predictor.net, LagrangianNet)
    return dynamics.predictor.net


def energy(dynamics: NeuralDynamics, q: Tensor, qd: Tensor) -> Tensor:
    torque = q.new_zeros(*q.shape[:-1], SPEC.nu)
    inputs = dynamics.encoding.encode(dynamics.encoding.predict_base(q, qd, torque), torque)
    return net_of(dynamics).energy(dynamics.predictor.normalise_input(inputs))


def states(worlds: int) -> State:
    return State(q=torch.randn(worlds, 3).double(), qd=torch.randn(worlds, 3).double())


def test_accelerations_are_lagranges():
    dynamics, at = model("conservative", kappa=0.5), states(1)
    torque = torch.randn(1, SPEC.nu).double()
    q, v = at.q[0], at.qd[0]

    def lagrangian(q: Tensor, v: Tensor) -> Tensor:
        whole, still = energy(dynamics, q, v), energy(dynamics, q, torch.zeros_like(v))
        return whole - 2.0 * still  # T - V, with V the energy at rest

    hessian = torch.func.hessian(lagrangian, argnums=1)(q, v)
    force = torch.func.grad(lagrangian, argnums=0)(q, v)
    mixed = torch.func.jacrev(torch.func.grad(lagrangian, argnums=1), argnums=0)(q, v)
    pushed = torch.stack([torque[0, 0], torch.zeros(()).double(), torque[0, 1]])
    wanted = torch.linalg.solve(hessian, force + pushed - mixed @ v)
    net = net_of(dynamics)
    raw = dynamics.encoding.encode(dynamics.encoding.predict_base(q, v, torque[0]), torque[0])
    seen = net._seen(dynamics.predictor.normalise_input(raw), raw, v)
    found = net._acceleration(seen, v, pushed)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


def test_energy_stays_without_damping_and_falls_with_it():
    torque = torch.zeros(4, 200, SPEC.nu).double()
    with torch.no_grad():
        for kind in ("conservative", "lagrangian"):
            dynamics = model(kind)
            path = dynamics.rollout(states(4), torque)
            along = energy(dynamics, path.q, path.qd)
            spread = (along.amax() - along.amin()).item()
            if kind == "conservative":
                assert (along - along[:, :1]).abs().max() < 1e-6 * spread
            else:
                assert (along[:, -1] < along[:, 0] - 1e-3 * spread).all()
                assert (along[:, 1:] - along[:, :-1]).max() < 1e-9 * spread


def test_gradients_agree_with_differences():
    dynamics, at = model("lagrangian"), states(2)
    dynamics.requires_grad_(True)
    torque = torch.randn(2, 3, SPEC.nu).double().requires_grad_()
    weights = list(dynamics.parameters())

    def end(q: Tensor, qd: Tensor, torque: Tensor, *weights: Tensor) -> Tensor:
        path = dynamics.rollout(State(q, qd), torque)
        return torch.cat([path.q[:, -1], path.qd[:, -1]], -1)

    given = (at.q.requires_grad_(), at.qd.requires_grad_(), torque, *weights)
    assert torch.autograd.gradcheck(end, given, eps=1e-6, atol=1e-7, rtol=1e-5, fast_mode=True)


def test_nothing_depends_on_what_is_invariant():
    dynamics, at = model("lagrangian", invariant=(0,)), states(3)
    torque = torch.randn(3, 20, SPEC.nu).double()
    moved = replace(at, q=at.q + torch.tensor([5.0, 0.0, 0.0]).double())
    with torch.no_grad():
        here, there = dynamics.rollout(at, torque), dynamics.rollout(moved, torque)
    torch.testing.assert_close(there.qd, here.qd)


def test_files_hold_it(tmp_path):
    dynamics, at = model("lagrangian").float(), states(3)
    at = State(at.q.float(), at.qd.float())
    NEURAL.save(tmp_path / "run", dynamics)
    torque = torch.randn(3, 5, SPEC.nu)
    with torch.no_grad():
        wanted, found = dynamics.rollout(at, torque), NEURAL.load(tmp_path / "run").rollout(at, torque)
    assert torch.equal(wanted.q, found.q)


@pytest.mark.parametrize(
    ("changes", "text"), [({"activation": "relu"}, "valid: silu, tanh"), ({"clip": 5.0}, "valid: none")]
)
def test_networks_without_slopes_are_refused(changes, text):
    with pytest.raises(InputError, match=text):
        NetConfig(kind="lagrangian", **changes)


def test_inputs_that_nobody_knows_are_refused():
    with pytest.raises(InputError, match="hinges and slides"):
        build_predictor(NetConfig(kind="lagrangian"), 5, 4)
