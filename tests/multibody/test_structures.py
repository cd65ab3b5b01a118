# SPDX-License-Identifier: Apache-2.0
"""What structures keep of physics, for random weights and states."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from neurodyn.core.description.blueprint import STRUCTURES, Augmentation, Blueprint
from neurodyn.core.errors import InputError
from neurodyn.multibody.engine import Engine, EngineConfig
from neurodyn.multibody.scope import Scope, StepMemory
from neurodyn.multibody.structures import FORMS
from neurodyn.multibody.trace import Graph
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramInputs, ProgramSizes
from tests.multibody import machines
from tests.multibody.reference import Configuration

F64 = torch.float64
JOINTS = ("a", "b", "c")
WRENCH = ("wrench.a.force.x", "wrench.a.force.y", "wrench.a.moment.z")
ACTIVATIONS = ("tanh", "elu", "silu", "softplus", "softsign")


def network(structure, prefix="torque", joints=JOINTS, **options):
    """A network from positions, and of forces also from velocities, to the torques of joints."""
    inputs = [text.format(name) for name in joints for text in ("sin(q.{})", "cos(q.{})", "q.{}")]
    if structure in ("dissipative", "gyroscopic", "passive"):
        inputs += [f"qd.{name}" for name in joints]
    scales = tuple(0.5 + 0.25 * k for k in range(len(joints)))
    options = {"output_scale": scales, "hidden": (7, 5), **options}
    return Augmentation(tuple(f"{prefix}.{name}" for name in joints), tuple(inputs), structure=structure, **options)


def traced(inputs, net):
    """A scope after positions, velocities and what the network acts on; the increments."""
    scope = Scope(inputs.graph, {}, Blueprint((net,)), StepMemory(inputs.graph, 0), 0.01)
    for k, name in enumerate(JOINTS):
        scope.define(f"q.{name}", inputs.state[k])
        scope.define(f"qd.{name}", inputs.state[3 + k])
    for name, value in zip(("velocity.a.x", "velocity.a.y", "spin.a.z"), inputs.state[3:6], strict=True):
        scope.define(name, value)
    return scope, [scope.define(name, 0.0) for name in net.quantities]


def program_of(net):
    """From q and qd to the network's forces, and to the rows of what it adds to the mass matrix and the bias."""

    def step(inputs):
        scope, forces = traced(inputs, net)
        added = [x for one in scope.inertias for row in (*one.matrix, one.bias) for x in row]
        found = [*forces, *added]
        return [*inputs.state[:6], *found, *[0.0] * (15 - len(found))]

    return TracedProgram(ProgramSizes(state=6 + 3 + 12, weights=net.weights), step)


def drawn(net, worlds=64, seed=0):
    random = torch.Generator().manual_seed(seed)
    state = torch.cat([2.0 * torch.randn(worlds, 6, dtype=F64, generator=random), torch.zeros(worlds, 15)], 1)
    return state, 2.0 * torch.randn(net.weights, dtype=F64, generator=random)


def applied(program, state, weights):
    return program.rollout(state, frames=1, weights=weights)[:, 1, 6:]


def test_every_structure_has_a_form():
    assert set(STRUCTURES) == set(FORMS)


@pytest.mark.parametrize("structure", ["dissipative", "gyroscopic", "passive"])
@pytest.mark.parametrize("wrench", [False, True])
def test_the_power_of_forces_is_never_positive(structure, wrench):
    net = network(structure)
    if wrench:
        net = Augmentation(WRENCH, ("velocity.a.x", "q.a"), structure=structure, input_scale=(0.2, 3.0), hidden=(6,))
    program = program_of(net)
    for seed in range(20):
        state, weights = drawn(net, seed=seed)
        forces = applied(program, state, weights)[:, :3]
        power, size = (forces * state[:, 3:6]).sum(1), (forces * state[:, 3:6]).abs().sum(1)
        assert forces.abs().max() > 0.1
        if structure == "gyroscopic":
            assert (power.abs() <= 1e-13 * size).all()
        else:
            assert (power <= 1e-13 * size).all()
            assert power.min() < -0.1


@pytest.mark.parametrize("activation", ["tanh", "elu"])
def test_conservative_torques_are_the_slope_of_an_energy(activation):
    """Their Jacobian by q is symmetric, and they do not depend on velocities."""
    net = network("conservative", activation=activation)
    program = program_of(net)
    state, weights = drawn(net, worlds=3)
    weights = 0.3 * weights
    for row in state:
        found = torch.autograd.functional.jacobian(lambda x: applied(program, x[None], weights)[0, :3], row)
        torch.testing.assert_close(found[:, :3], found[:, :3].T, rtol=1e-9, atol=1e-12)
        assert found[:, :3].abs().max() > 1e-3
        assert not found[:, 3:6].any()


@pytest.mark.parametrize(
    ("structure", "activation"),
    [*(("conservative", x) for x in ACTIVATIONS), ("inertial", "silu"), ("passive", "tanh")],
)
def test_gradients_are_those_of_finite_differences(structure, activation):
    net = network(structure, "mass_matrix" if structure == "inertial" else "torque", activation=activation)
    program = program_of(net)
    state, weights = drawn(net, worlds=2)
    inputs = [state.requires_grad_(), (0.4 * weights).requires_grad_()]
    assert torch.autograd.gradcheck(lambda *a: applied(program, *a), inputs, eps=1e-6, atol=1e-6, rtol=1e-6)


def test_added_inertia_is_symmetric_and_never_negative():
    net = network("inertial", "mass_matrix")
    program = program_of(net)
    for seed in range(20):
        matrix = applied(program, *drawn(net, seed=seed))[:, 3:12].view(-1, 3, 3)
        assert torch.equal(matrix, matrix.mT)
        assert torch.linalg.eigvalsh(matrix).min() > -1e-12 * matrix.abs().max()
        assert matrix.abs().max() > 0.1


SWINGING = ("shoulder", "elbow")


def swung(structure, prefix, substeps):
    """A frictionless double pendulum with a network, from rest: its path, and the weights."""
    mechanism = machines.bare_pendulum()
    net = network(structure, prefix, SWINGING, activation="silu")
    engine = Engine(mechanism, machines.spec(mechanism), EngineConfig(substeps=substeps, blueprint=Blueprint((net,))))
    weights = 0.4 * drawn(net, seed=3)[1]
    state = torch.tensor([[1.5, 0.5, 0.0, 0.0]], dtype=F64)
    path = engine.program.rollout(state, frames=100, substeps=substeps, weights=weights)[0]
    return mechanism, path, weights


def test_added_inertia_makes_no_energy():
    """The energy of a pendulum with a heavier mass matrix drifts in proportion to the step, and so not by itself."""
    drifts = []
    for substeps in (4, 8, 16):
        mechanism, path, weights = swung("inertial", "mass_matrix", substeps)
        renamed = network("inertial", "mass_matrix", JOINTS[:2], activation="silu")
        state = torch.zeros(len(path), 21, dtype=F64)
        state[:, :2] = path[:, :2]
        added = applied(program_of(renamed), state, weights)[:, 2:6].view(-1, 2, 2)
        kinetic = 0.5 * (path[:, None, 2:] @ added @ path[:, 2:, None]).flatten().numpy()
        own = [sum(Configuration(mechanism, x[:2]).energy(x[2:])) for x in path.numpy()]
        energy = np.array(own) + kinetic
        assert np.ptp(kinetic) > 0.5
        drifts.append(np.abs(energy - energy[0]).max())
    for coarse, fine in pairwise(drifts):
        assert coarse / fine == pytest.approx(2.0, rel=0.25)


def test_damped_pendulums_lose_energy():
    for structure in ("dissipative", "passive"):
        mechanism, path, _ = swung(structure, "torque", 8)
        energy = [sum(Configuration(mechanism, x[:2]).energy(x[2:])) for x in path[::10].numpy()]
        assert all(after < before for before, after in pairwise(energy))


@pytest.mark.parametrize(
    ("net", "contact", "message"),
    [
        (network("inertial", "mass_matrix", SWINGING), "soft", "structure inertial does not work with contact: soft"),
        (network("free", "mass_matrix", SWINGING), None, "mass_matrix.shoulder takes networks of structure inertial"),
    ],
)
def test_a_mass_matrix_that_would_be_ignored_is_refused(net, contact, message):
    mechanism = machines.pendulum()
    config = EngineConfig(contact=contact, blueprint=Blueprint((net,)))
    with pytest.raises(InputError, match=message):
        Engine(mechanism, machines.spec(mechanism), config)


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (network("dissipative", "acceleration"), "'acceleration.a' is no force, whose power could be bounded; valid:"),
        (network("conservative", "passive"), "structure conservative does not act on 'passive.a'; valid: torque.JOINT"),
        (network("inertial"), "structure inertial does not act on 'torque.a'; valid: mass_matrix.JOINT"),
        (
            Augmentation(("torque.a",), ("q.a", "q.b"), structure="conservative"),
            "structure conservative is of positions alone, without a memory; 'q.b' is no valid input, but q.a, sin",
        ),
    ],
)
def test_what_a_structure_cannot_act_on_is_refused(net, message):
    graph = Graph()
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        traced(ProgramInputs(graph, graph.inputs("x", 6), [], [], []), net)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"structure": "holy"}, "structure 'holy'"),
        ({"structure": "gyroscopic"}, "structure gyroscopic is of at least 2 quantities, not 1"),
        (
            {"structure": "dissipative", "mode": "scale"},
            "mode is 'scale' with structure dissipative; valid with it: add",
        ),
    ],
)
def test_settings_that_no_structure_has_are_refused(options, message):
    with pytest.raises((ValueError, InputError), match=message):
        Augmentation(("torque.a",), ("q.a",), **options)
