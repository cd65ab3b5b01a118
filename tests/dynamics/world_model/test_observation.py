# SPDX-License-Identifier: Apache-2.0
"""State vectors of world models: parts, network inputs, and refusals."""

import pytest
import torch

from neurodyn.core.description.spec import Channel, JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.world_model.observation import WorldObservation

SPEC = StateSpec(
    robot="cart", joints=(JointSpec("rail", "prismatic"), JointSpec("wheel", "revolute", continuous=True)),
    controls=("rail",), dt=0.1, channels=(Channel("gyro.z", "rad/s"),),
)  # fmt: skip


def test_vectors_are_parts_side_by_side():
    observation = WorldObservation(SPEC)
    state = State(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]), torch.tensor([[5.0]]))
    x = observation.of_state(state)
    assert x.tolist() == [[1.0, 2.0, 3.0, 4.0, 5.0]]
    again = observation.state(x)
    assert torch.equal(again.q, state.q)
    assert torch.equal(again.qd, state.qd)
    assert again.channels is not None
    assert again.channels.tolist() == [[5.0]]
    assert observation.names == ("rail position", "wheel position", "rail velocity", "wheel velocity", "gyro.z")
    assert observation.units == ("m", "rad", "m/s", "rad/s", "rad/s")
    assert observation.size == 5


def test_networks_see_sine_and_cosine_of_angles_without_end():
    observation = WorldObservation(SPEC)
    features = observation.features(torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]]), torch.tensor([[6.0]]))
    angle = torch.tensor(2.0)
    torch.testing.assert_close(features, torch.tensor([[1.0, 3.0, 4.0, 5.0, angle.sin(), angle.cos(), 6.0]]))
    assert observation.inputs == features.shape[1]


REFUSED = {
    "free body": (
        lambda: WorldObservation(StateSpec("r", (JointSpec("base", "free"),), (), 0.1)),
        "joint 'base' is free",
    ),
    "missing channels": (
        lambda: WorldObservation(SPEC).join(torch.zeros(1, 2), torch.zeros(1, 2), None),
        "and 0 channels",
    ),
    "wide controls": (
        lambda: WorldObservation(SPEC).require_controls(torch.zeros(1, 2)),
        r"have shape \[1, 2\]; valid: 1",
    ),
    "torque for targets": (
        lambda: WorldObservation(StateSpec("r", SPEC.joints, ("rail",), 0.1, control_kind="target")).of_control(
            Control(torque=torch.zeros(1, 1)), State(torch.zeros(1, 2), torch.zeros(1, 2))
        ),
        "is driven by targets, as its log is",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(InputError, match=message):
        call()
