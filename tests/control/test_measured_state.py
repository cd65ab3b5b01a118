# SPDX-License-Identifier: Apache-2.0
"""Noise of measurements: unit quaternions, turns of the size asked for, and nothing where there is none."""

import pytest
import torch

from neurodyn.control.task_frames import MeasurementNoise, add_noise
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.coordinates import position_difference

SPEC = StateSpec(
    robot="r", joints=(JointSpec(name="root", kind="free"), JointSpec(name="hip", kind="revolute")), controls=("hip",),
    dt=0.02,
)  # fmt: skip


def states(worlds):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(worlds, 8, generator=generator, dtype=torch.float64)
    q[:, 3:7] /= q[:, 3:7].norm(dim=1, keepdim=True)
    return State(q, torch.randn(worlds, 7, generator=generator, dtype=torch.float64))


def test_no_noise_is_the_state_itself():
    state = states(3)
    assert add_noise(SPEC, state, MeasurementNoise(), torch.Generator()) is state


def test_standard_deviations():
    state = states(20_000)
    seen = add_noise(SPEC, state, MeasurementNoise(position=0.01, velocity=0.2), torch.Generator().manual_seed(1))
    off = position_difference(SPEC, seen.q, state.q)
    torch.testing.assert_close(off.std(0), torch.full((7,), 0.01, dtype=torch.float64), rtol=0.03, atol=0)
    torch.testing.assert_close(
        (seen.qd - state.qd).std(0), torch.full((7,), 0.2, dtype=torch.float64), rtol=0.03, atol=0
    )
    torch.testing.assert_close(seen.q[:, 3:7].norm(dim=1), torch.ones(20_000, dtype=torch.float64))
    assert off.mean(0).abs().max() < 3e-4


def test_bad_noise_is_refused():
    with pytest.raises(
        (InputError, ValueError), match=r"noise: velocity is -1\.0; valid: a finite number of at least 0"
    ):
        MeasurementNoise(velocity=-1.0)
