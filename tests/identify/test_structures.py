# SPDX-License-Identifier: Apache-2.0
"""Links that bend are physical bodies."""

import numpy as np
import pytest
import torch

from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.hybrid.model import HybridCarry
from neurodyn.dynamics.linearisation import frame_after, velocity_gradients
from neurodyn.identify import AdaptationSettings
from neurodyn.identify.ladder.structures import FitModel, bending, structures, with_springs
from neurodyn.identify.motors import with_lag
from neurodyn.robots import load

pytest.importorskip("newton")


@pytest.fixture(scope="module")
def ant() -> FitModel:
    return FitModel.declared(with_lag(load("ant")), "ant", AdaptationSettings())


def test_the_last_links_of_an_ant_bend_and_stay_what_they_were(ant: FitModel):
    mechanism = ant.mechanism
    names = bending(mechanism)
    assert names == ("ankle_1", "ankle_2", "ankle_3", "ankle_4")
    bent = with_springs(mechanism)
    assert bent.hidden == len(names)
    assert sum(link.mass for link in bent.links) == pytest.approx(sum(link.mass for link in mechanism.links))
    for name in names:
        whole = mechanism.links[mechanism.names.index(name)]
        near, far = bent.links[bent.names.index(name)], bent.links[bent.names.index(f"{name}_spring")]
        place = np.array(far.joint.parent_frame[:3])
        centre = (near.mass * np.array(near.com) + far.mass * (place + np.array(far.com))) / whole.mass
        assert centre == pytest.approx(np.array(whole.com), abs=1e-9)
        assert far.stiffness > 0.0
        assert far.damping > 0.0
    assert len(bent.points) == len(mechanism.points)


def test_structures_are_cones_and_springs_with_the_same_names(ant: FitModel):
    rigid, cones, springs, both = structures(ant, AdaptationSettings())
    assert [one.structure != "" for one in (rigid, cones, springs, both)] == [False, True, True, True]
    assert rigid.mechanism.constraints.cone != cones.mechanism.constraints.cone
    assert springs.space is not None
    assert rigid.space is not None
    assert set(springs.space.names) - set(rigid.space.names) == {
        f"ankle_{leg}_spring.{what}" for leg in (1, 2, 3, 4) for what in ("stiffness", "damping")
    }
    (plain,) = structures(ant, AdaptationSettings(structures=False))
    assert plain.space is not None
    assert plain.space.names == rigid.space.names
    assert set(plain.space.quantities) == set(rigid.space.acting)


@pytest.mark.slow
def test_frames_of_a_robot_that_bends_have_derivatives_beside_its_springs(ant: FitModel):
    springs = structures(ant, AdaptationSettings())[2]
    model = springs.dynamics(None, 1)
    rng = torch.Generator().manual_seed(3)

    def drawn(*shape: int) -> torch.Tensor:
        return 0.2 * torch.randn(shape, generator=rng, dtype=torch.float64)

    q = torch.zeros(2, model.spec.nq, dtype=torch.float64)
    q[:, 2], q[:, 6] = torch.tensor([0.75, 3.0], dtype=torch.float64), 1.0  # on its feet, and in the air
    q[:, 7:] = torch.tensor([0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0]) + 0.1 * drawn(2, 8)
    state, torque = State(q, drawn(2, model.spec.nv)), 50.0 * drawn(2, model.spec.nu)
    memory = 0.05 * drawn(2, model.memory)
    carry, step = model.step(HybridCarry(model.resolve_environment(None), memory), state, Control(torque=torque))
    after, gradient = velocity_gradients(model, state, torque, None, memory)
    assert torch.allclose(after.q, step.state.q, atol=1e-12)
    assert torch.allclose(after.qd, step.state.qd, atol=1e-10)
    assert float((carry.memory - memory).abs().max()) > 1e-4  # the springs move
    for column in range(model.spec.nv):
        change = torch.zeros_like(state.qd)
        change[:, column] = 1e-6
        above, below = (
            frame_after(model, State(q, state.qd + sign * change), torque, None, memory).qd for sign in (1.0, -1.0)
        )
        slope = (above - below) / 2e-6
        assert torch.allclose(gradient[..., model.spec.nv + column], slope, rtol=1e-4, atol=1e-4)


def test_motors_store_no_more_commands_than_the_delay_needs(ant: FitModel):
    model = ant.in_prior_deviations(AdaptationSettings(quantities=("motors.delay",)))
    assert model.space is not None
    (delay,) = model.space.coordinates
    trimmed = model.trim(torch.tensor([delay.of(0.004)], dtype=torch.float64))
    for drive in trimmed.mechanism.drives.values():
        assert drive.longest_delay == pytest.approx(0.004)


def test_the_declared_robot_acts_on_commands_at_once():
    settings, start = AdaptationSettings(), State(q=torch.zeros(1, 2).double(), qd=torch.zeros(1, 2).double())
    control = 300.0 * torch.randn(1, 20, 1, generator=torch.Generator().manual_seed(0)).double()
    plain = FitModel.declared(load("cartpole"), "cartpole", settings)
    roomy = FitModel.declared(with_lag(load("cartpole")), "cartpole", settings).in_prior_deviations(settings)
    declared, delayed, undelayed = (
        one.dynamics(None, 1).rollout(start, control).q[:, -1].detach() for one in (plain, roomy, roomy.undelayed)
    )
    assert undelayed == pytest.approx(declared, abs=1e-6)
    assert float((delayed - declared).abs().max()) > 1e-3  # commands that change at a frame act half a step later
    assert "actuator.slider.gain" in [one.name for one in roomy.undelayed.free]


def test_a_payload_that_one_names_is_on_the_last_link_of_a_bolted_chain():
    pole = FitModel.declared(load("cartpole"), "cartpole", AdaptationSettings())
    (plain, *_), (known, *_) = (
        structures(pole, AdaptationSettings(known=held)) for held in ({}, {"payload.mass": 0.2})
    )
    assert plain.space is not None
    assert known.space is not None
    assert not plain.space.has("payload.mass")
    assert known.space.carrier == "hinge"
    assert [(one.name, value) for one, value in known.space.known] == [("payload.mass", 0.2)]
    assert {"payload.x", "payload.y", "payload.z"} <= set(known.space.names)
