# SPDX-License-Identifier: Apache-2.0
"""Shapes of proposed motions keep their limits and begin and end at rest; commands play their roles."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.drive import Drive
from neurodyn.identify.motion.roles import Role
from neurodyn.identify.motion.waves import moves, sines
from neurodyn.robots import load

DT, FRAMES = 0.01, 1200


def rates(path: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    speed = path.diff() / DT
    return speed, speed.diff() / DT


@pytest.mark.parametrize("seed", range(8))
def test_moves_keep_span_speed_and_acceleration_and_end_where_they_began(seed: int):
    path = moves(np.random.default_rng(seed), FRAMES, DT, (-0.4, 0.9), speed=1.5, acceleration=6.0)
    speed, acceleration = rates(path)
    assert -0.4 <= float(path.min()) < float(path.max()) <= 0.9
    assert float(speed.abs().max()) <= 1.5 * 1.001
    assert float(acceleration.abs().max()) <= 6.0 * 1.02
    assert not path[:10].any()
    assert float(path[-10:].abs().max()) < 1e-12


@pytest.mark.parametrize("drifts", [True, False])
def test_sines_without_drift_leave_neither_speed_nor_travel_as_a_force(drifts: bool):
    for seed in range(5):
        wave = sines(np.random.default_rng(seed), FRAMES, DT, drifts=drifts)
        assert float(wave[0]) == float(wave[-1]) == 0.0
        speed = wave.cumsum(0) * DT
        left = float(speed[-1].abs()), float((speed.sum() * DT).abs())
        assert (max(left) < 1e-9) != drifts


@pytest.mark.parametrize(
    ("drive", "role"),
    [
        (None, Role(0, "torque")),
        (Drive(), Role(0, "torque")),
        (Drive(kind="pd", kp=20.0, kd=1.0), Role(0, "target")),
        (Drive(kind="velocity_servo", kd=2.0), Role(0, "command")),
        (Drive(kind="affine", per_command=10.0, kp=40.0), Role(0, "target", 4.0)),
        (Drive(kind="affine", per_command=10.0), Role(0, "torque", 0.1)),
    ],
)
def test_a_command_is_a_target_a_torque_or_another_one(drive: Drive | None, role: Role):
    robot = msgspec.structs.replace(load("cartpole"), drives={} if drive is None else {"slider": drive})
    assert Role.of(robot, "slider", ("slider", "hinge")) == role
