# SPDX-License-Identifier: Apache-2.0
"""Screw joints: a nut that runs down a spindle, and a compiled step beside differences; see also the random trees."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.contacts import ChainJoint
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.multibody.engine import Engine, EngineConfig
from neurodyn.multibody.link_kinematics import LinkKinematics
from tests.multibody import machines
from tests.multibody.reference import Configuration, matrix, random_mechanism, random_motion

F64 = torch.float64
PITCH, MASS, ARM = 0.2, 1.5, (0.3, 0.1, -0.05)
TILTED = (0.5, -0.2, 0.1, 0.1825741858, 0.3651483717, 0.0, 0.9128709292)


def spindle(pitch=PITCH):
    """A body with an off-centre mass on a tilted spindle."""
    joint = ChainJoint(
        name="nut", kind="screw", parent=-1, parent_frame=TILTED, child_frame=machines.TURNED, axis=(0.0, 0.0, 1.0),
        pitch=pitch,
    )  # fmt: skip
    link = Link(joint=joint, mass=MASS, com=ARM, inertia=(0.02, 0.03, 0.04, 0.002, -0.001, 0.003))
    down = tuple(float(x) for x in -9.81 * matrix(TILTED[3:])[:, 2])  # along the spindle
    return Mechanism(links=(link,), gravity=down)


@pytest.mark.parametrize("integrator", ["semi-implicit-euler", "rk4"])
def test_a_nut_runs_down_its_spindle_with_constant_acceleration(integrator):
    mechanism = spindle()
    turn = matrix(machines.TURNED[3:])
    axis = turn @ (0.0, 0.0, 1.0)
    across = np.cross(axis, np.array(ARM) - machines.TURNED[:3])
    xx, yy, zz, xy, xz, yz = mechanism.links[0].inertia
    inertia = axis @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ axis + MASS * across @ across
    acceleration = -MASS * 9.81 * PITCH / (inertia + MASS * PITCH**2)
    steps, dt = 10, 0.01
    made = Engine(
        mechanism, machines.spec(mechanism, dt=steps * dt), EngineConfig(substeps=steps, integrator=integrator)
    )
    after = made.program.rollout(torch.zeros(1, 2, dtype=F64), frames=1, substeps=steps)[0, -1]
    exact = 0.5 * acceleration * (steps * dt) ** 2
    assert float(after[1]) == pytest.approx(acceleration * steps * dt, rel=1e-9)
    assert float(after[0]) == pytest.approx(exact if integrator == "rk4" else exact * (1 + 1 / steps), rel=1e-9)


def test_a_screw_without_pitch_is_a_hinge():
    screw = spindle(0.0)
    hinge = msgspec.structs.replace(screw.links[0].joint, kind="revolute", pitch=msgspec.UNSET)
    hinged = msgspec.structs.replace(screw, links=(msgspec.structs.replace(screw.links[0], joint=hinge),))
    state = torch.tensor([[0.3, -2.0]], dtype=F64)
    paths = [
        Engine(one, machines.spec(one), EngineConfig()).program.rollout(state, frames=3) for one in (screw, hinged)
    ]
    assert torch.equal(*paths)


def test_derivatives_of_a_step_are_those_of_differences():
    rng = np.random.default_rng(0)
    mechanism = random_mechanism(rng, ("free", "screw", "revolute", "screw"), (-1, 0, 1, 2))
    made = Engine(mechanism, machines.spec(mechanism), EngineConfig(substeps=2))
    q, qd, _ = random_motion(rng, mechanism)
    state = torch.tensor([[*q, *qd]], dtype=F64, requires_grad=True)
    weights = torch.from_numpy(rng.normal(size=state.shape[1]))

    def value(x):
        return made.program.rollout(x, frames=2, substeps=2)[0, -1] @ weights

    (gradient,) = torch.autograd.grad(value(state), state)
    for _ in range(3):
        way = torch.from_numpy(rng.normal(size=state.shape))
        slope = (value(state.detach() + 1e-6 * way) - value(state.detach() - 1e-6 * way)) / 2e-6
        assert float((gradient * way).sum()) == pytest.approx(float(slope), rel=1e-6)


def test_kinematics_on_plain_arrays():
    rng = np.random.default_rng(1)
    mechanism = random_mechanism(rng, ("revolute", "screw", "screw"), (-1, 0, 1))
    q, _, _ = random_motion(rng, mechanism)
    known = Configuration(mechanism, q)
    found = LinkKinematics(mechanism.links, q[None])
    np.testing.assert_allclose(found.origins[0], known.origins, atol=1e-12)
    np.testing.assert_allclose(found.rotations[0], known.turns, atol=1e-12)
    np.testing.assert_allclose(found.mass_matrix()[0], known.mass_matrix(), atol=1e-12)


@pytest.mark.parametrize(("kind", "pitch"), [("screw", msgspec.UNSET), ("revolute", 0.1)])
def test_pitch_is_for_screws_alone(kind, pitch):
    with pytest.raises(ValueError, match="joint 'a': pitch is for screw joints, and required there"):
        ChainJoint(
            name="a", kind=kind, parent=-1, parent_frame=TILTED, child_frame=TILTED, axis=(1.0, 0.0, 0.0), pitch=pitch
        )
