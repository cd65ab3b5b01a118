# SPDX-License-Identifier: Apache-2.0
"""Differences of positions of free and ball joints."""

import torch

from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.geometry import rotation

SPEC = StateSpec(
    robot="buoy",
    joints=(
        JointSpec(name="root", kind="free"),
        JointSpec(name="wheel", kind="revolute", continuous=True),
        JointSpec(name="arm", kind="ball"),
        JointSpec(name="rod", kind="prismatic"),
    ),
    controls=("wheel",),
    dt=0.01,
)


def draw(*shape: int) -> torch.Tensor:
    q = torch.randn(*shape, SPEC.nq, dtype=torch.float64)
    return torch.cat(
        [q[..., :3], rotation.normalise(q[..., 3:7]), q[..., 7:8], rotation.normalise(q[..., 8:12]), q[..., 12:]], -1
    )


def test_names_and_units_are_those_of_the_degrees_of_freedom():
    assert len(SPEC.tangent_names) == len(SPEC.tangent_units) == SPEC.nv == 11
    assert SPEC.tangent_names[:7] == ("root.x", "root.y", "root.z", "root.rx", "root.ry", "root.rz", "wheel")
    assert SPEC.tangent_units == ("m",) * 3 + ("rad",) * 4 + ("rad",) * 3 + ("m",)


def test_a_turn_in_world_axes_is_found_again():
    torch.manual_seed(1)
    q, turn = draw(20), torch.tanh(torch.randn(20, 3, dtype=torch.float64))
    moved = q.clone()
    moved[:, :3] += turn
    moved[:, 3:7] = rotation.multiply(rotation.exponential(turn), q[:, 3:7])
    moved[:, 8:12] = -rotation.multiply(rotation.exponential(0.1 * turn), q[:, 8:12])
    moved[:, 7] += 2 * torch.pi + 0.25
    difference = position_difference(SPEC, moved, q)
    assert torch.allclose(difference[:, :3], turn)
    assert torch.allclose(difference[:, 3:6], turn)
    assert torch.allclose(difference[:, 6], torch.tensor(0.25, dtype=torch.float64))
    assert torch.allclose(difference[:, 7:10], 0.1 * turn)


def test_a_reference_is_spread_over_time():
    q = draw(4, 6)
    assert torch.equal(position_difference(SPEC, q, q[:, :1])[:, 3], position_difference(SPEC, q[:, 3], q[:, 0]))
