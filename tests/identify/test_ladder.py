# SPDX-License-Identifier: Apache-2.0
"""What the ladder reports of errors that remain, on errors made up for the test."""

import msgspec
import torch

from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.data.windows import Windows
from neurodyn.identify.fit.readings import Noise
from neurodyn.identify.ladder.rungs import beyond_noise, is_better, unexplained_coordinates

SPEC = StateSpec(
    robot="two", joints=tuple(JointSpec(name=name, kind="revolute") for name in ("joint1", "joint10")),
    controls=("joint1", "joint10"), dt=0.01,
)  # fmt: skip
NOISE = Noise(torch.full((2,), 1e-3, dtype=torch.float64), torch.full((2,), 1e-3, dtype=torch.float64))
WINDOWS = 40


def windows() -> Windows:
    generator = torch.Generator().manual_seed(0)
    q, qd, control = (torch.randn(WINDOWS, n, 2, generator=generator, dtype=torch.float64) for n in (4, 4, 3))
    return Windows(q, qd, control)


def test_an_error_goes_with_signals_of_its_own_joint_alone():
    made = windows()
    errors = torch.stack([made.qd[:, 0, 1], made.qd[:, 0, 0]], -1)  # each the other joint's speed
    first, second = unexplained_coordinates(SPEC, made, errors, torch.zeros(WINDOWS, dtype=torch.bool), NOISE)
    assert not first.with_signals
    assert not second.with_signals
    errors = made.qd[:, 0]
    for one in unexplained_coordinates(SPEC, made, errors, torch.zeros(WINDOWS, dtype=torch.bool), NOISE):
        assert f"qd.{one.name}" in one.with_signals


def test_a_roll_out_that_diverges_is_not_explained():
    errors = torch.full((WINDOWS, 2), 1e-4, dtype=torch.float64)
    errors[3, 1] = torch.nan
    touching = torch.zeros(WINDOWS, dtype=torch.bool)
    first, second = unexplained_coordinates(SPEC, windows(), errors, touching, NOISE)
    assert (first.name, first.diverged, second.diverged) == ("joint10", 1, 0)
    assert first.error is not None
    assert abs(first.error - 1e-4) < 1e-9
    assert beyond_noise([first], SPEC, NOISE, 0.03, 1.5)
    assert not beyond_noise([second], SPEC, NOISE, 0.03, 1.5)
    errors[:, 1] = torch.inf
    first, _ = unexplained_coordinates(SPEC, windows(), errors, touching, NOISE)
    assert (first.error, first.diverged) == (None, WINDOWS)
    assert msgspec.json.decode(msgspec.json.encode(first))["error"] is None


def test_a_model_that_is_better_at_one_horizon_is_noticed():
    assert is_better([0.1, 0.3], [0.1, 0.4])
    assert is_better([0.2, 0.4], [0.1, None])  # None diverged
    assert not is_better([0.1, 0.4], [0.1, 0.4])
    assert not is_better([None, None], [0.1, None])
