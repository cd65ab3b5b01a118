# SPDX-License-Identifier: Apache-2.0
"""Drag and disturbances of a free body (`core.description.elements`): equations on paper, gradients, a hidden push."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.actuation import BodyWrench
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.elements import Attachment, ForceElement
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.description.parameter import select_parameters
from neurodyn.dynamics.batch import State, Window
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody.engine import EngineConfig, nominal
from tests.multibody import machines

COM, INERTIA, MASS, POINT = (0.05, -0.03, 0.02), (0.02, 0.03, 0.025, 0.0, 0.0, 0.0), 2.0, (0.01, 0.02, -0.03)
VALUES = {"x": 0.3, "y": 0.5, "z": 0.1, "turn_x": 0.02, "turn_y": 0.01, "turn_z": 0.03, "at_x": 0.04, "at_z": 0.1}
TURN = np.array([0.1825741858, 0.3651483717, 0.0, 0.9128709292])


def dragged(child=machines.IDENTITY) -> Mechanism:
    body = Link(joint=machines.joint("base", "free", child=child), mass=MASS, com=COM, inertia=INERTIA)
    air = ForceElement(name="air", kind="drag", attachments=(Attachment(joint="base", point=POINT),), values=VALUES)
    return Mechanism(links=(body,), elements=(air,), gravity=(0.0, 0.0, 0.0))


def modelled(mechanism: Mechanism, names: tuple[str, ...] = ()) -> HybridDynamics:
    free = select_parameters(nominal(mechanism, None), names, mechanism.bounds()) if names else ()
    return HybridDynamics(machines.spec(mechanism, dt=1e-4), mechanism, EngineConfig(substeps=1), free)


def test_drag_is_that_of_paper():
    model, rotation = modelled(dragged()), np.array(quaternion_matrix(TURN.tolist()))
    v, w = np.array([0.4, -0.7, 0.2]), np.array([0.5, 0.3, -0.8])  # of the centre of mass, world axes
    q = torch.tensor([[0.1, 0.2, 0.3, *TURN]], dtype=torch.float64)
    with torch.no_grad():
        path = model.rollout(State(q, torch.tensor(np.array([[*v, *w]]))), torch.zeros(1, 1, 0, dtype=torch.float64))
    found = (path.qd[0, 1].numpy() - [*v, *w]) / 1e-4

    spin, arm = rotation.T @ w, np.add(POINT, (0.04, 0.0, 0.1)) - COM
    force = -np.array([0.3, 0.5, 0.1]) * (rotation.T @ v + np.cross(spin, arm))
    moment = np.cross(arm, force) - np.array([0.02, 0.01, 0.03]) * spin
    inertia = np.diag(INERTIA[:3])
    turned = np.linalg.solve(inertia, moment - np.cross(spin, inertia @ spin))
    assert found == pytest.approx([*(rotation @ force / MASS), *(rotation @ turned)], abs=2e-4)


def test_gradients_of_drag():
    model = modelled(dragged(machines.TURNED), ("element.air.*",))
    values = model.physical.nominal.detach().clone().double()
    state = State(torch.tensor([[0.1, 0.2, 0.3, *TURN]], dtype=torch.float64), torch.full((1, 6), 0.4).double())

    def ended(x: torch.Tensor) -> torch.Tensor:
        path = model.simulate(state, torch.zeros(1, 5, 0, dtype=torch.float64), x, model.weights.detach())
        return 1e3 * path.qd[:, -1]

    assert torch.autograd.gradcheck(ended, [values.requires_grad_()], eps=1e-6, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("child", [machines.IDENTITY, machines.TURNED])
def test_a_push_that_nobody_declared_is_foreseen_after_a_past(child):
    """A wrench that is fixed in the body, which spins, of commands that the model does not see."""
    push = BodyWrench(link="base", point=POINT, force=(0.3, -0.2, 0.1), moment=(0.002, 0.003, -0.001))
    air = ForceElement(name="push", kind="disturbance", attachments=(Attachment(joint="base"),), values={"time": 0.1})
    mechanism = msgspec.structs.replace(
        dragged(child), elements=(air,), drives={"push": Drive(kind="affine", per_command=1.0, wrench=push)}
    )
    model = HybridDynamics(machines.spec(mechanism, ("push",), kind="command"), mechanism, EngineConfig(substeps=2))
    assert model.spec.context == 20
    q = torch.tensor([[0.1, 0.2, 0.3, *TURN]], dtype=torch.float64)
    qd = torch.tensor([[0.1, 0.0, 0.0, 0.3, -0.2, 1.5]], dtype=torch.float64)
    none, pushed = torch.zeros(1, 70, 1, dtype=torch.float64), torch.ones(1, 70, 1, dtype=torch.float64)
    with torch.no_grad():
        truth = model.rollout(State(q, qd), pushed)
        past = Window(truth.q[:, :51], truth.qd[:, :51], none[:, :50])
        found, blind = (model.rollout(one, none[:, :20]) for one in (past, State(past.q[:, -1], past.qd[:, -1])))
    apart, lost = ((one.qd[:, -1] - truth.qd[:, -1]).abs()[0] for one in (found, blind))
    assert float((apart / lost).max()) < 0.05
