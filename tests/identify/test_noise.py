# SPDX-License-Identifier: Apache-2.0
"""Noise of a log: rest, steps of encoders, stairs of commands and jerk are not noise."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.data.windows import Windows
from neurodyn.identify import estimate_noise
from neurodyn.robots import load

FRAMES, RATE = 4000, 100.0


def windows_of(q: np.ndarray) -> Windows:
    """Return one window of a pendulum's positions."""
    positions = torch.from_numpy(q)[None, :, None]
    speeds = torch.gradient(positions, spacing=1.0 / RATE, dim=1)[0]
    return Windows(positions, speeds, torch.zeros(1, len(q) - 1, 1, dtype=torch.float64))


def swinging(t: np.ndarray) -> np.ndarray:
    """Return smooth motion."""
    return 0.8 * np.sin(2 * np.pi * 0.4 * t) + 0.2 * np.sin(2 * np.pi * 1.1 * t)


def resting(t: np.ndarray) -> np.ndarray:
    """Return motion with rests, two thirds of the time."""
    return np.where((t // 4) % 3 == 0, 0.5 * np.sin(2 * np.pi * 0.25 * t), 0.0)


def stairs(t: np.ndarray) -> np.ndarray:
    """Return the motion of a fast servo whose targets jump ten times a second, in half of the log."""
    held = np.floor(10 * t) / 10
    reached = 1.0 - np.exp(-(t - held) / 0.015)
    moving = 0.4 * np.sin(2 * np.pi * 0.3 * held)
    before = 0.4 * np.sin(2 * np.pi * 0.3 * (held - 0.1))
    return np.where(t < t[-1] / 2, before + (moving - before) * reached, 0.4 * np.sin(2 * np.pi * 0.3 * t))


@pytest.mark.parametrize(
    ("motion", "noise", "step"),
    [
        (swinging, 3e-4, 0.0), (swinging, 1e-5, 0.0), (swinging, 0.0, 1.5e-3), (resting, 0.0, 1.5e-3),
        (resting, 2e-4, 0.0), (stairs, 3e-5, 0.0), (stairs, 3e-4, 0.0), (resting, 1e-4, 1.5e-3),
    ],
)  # fmt: skip
def test_noise_is_told_from_rest_steps_stairs_and_jerk(motion: Callable, noise: float, step: float):
    rng = np.random.default_rng(0)
    t = np.arange(FRAMES) / RATE
    q = motion(t) + rng.normal(0.0, noise, FRAMES)
    if step:
        q = step * np.round(q / step)
    found = float(estimate_noise(load("pendulum").spec, windows_of(q)).q[0])
    expected = np.hypot(noise, step / 12**0.5)
    assert 0.6 * expected < found < 1.7 * expected


@pytest.mark.parametrize("samples", [1.0, 1.25])
def test_rounding_that_lasts_is_noise_too(samples: float):
    rng, step = np.random.default_rng(0), 2e-3
    frames, t = np.arange(FRAMES) / RATE, np.arange(round(FRAMES * samples)) / (RATE * samples)
    speeds = np.repeat([3.4, 1.005, 4.7, 6.6, 8.4], FRAMES // 5)  # a step a sample, in a fifth of the log
    speeds[speeds > 2.0] += rng.normal(0.0, 0.2, 4 * FRAMES // 5)
    q = np.interp(t, frames, np.cumsum(step * samples * speeds)) + rng.normal(0.0, 1e-4, len(t))
    q = np.interp(frames, t, step * np.round(q / step))  # resampled to the frames of a robot
    found = float(estimate_noise(load("pendulum").spec, windows_of(q)).q[0])
    assert 0.75 * step / 12**0.5 < found < 1.4 * step / 12**0.5


def test_height_and_tilt_that_a_log_assumes_are_not_exact():
    """Of a robot on wheels, whose log has x, y and the heading, contacts move the rest."""
    spec = StateSpec(robot="rover", joints=(JointSpec(name="base", kind="free"),), controls=(), dt=0.01)
    t = torch.arange(400).double() * 0.01
    q = torch.zeros(1, 400, 7, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    q[0, :, 0] = torch.sin(t) + 1e-3 * torch.randn(400, generator=generator, dtype=torch.float64)
    q[0, :, 1] = 0.2 * t + 1e-3 * torch.randn(400, generator=generator, dtype=torch.float64)
    q[0, :, 5], q[0, :, 6] = torch.sin(0.2 * t), torch.cos(0.2 * t)
    qd = torch.zeros(1, 400, 6, dtype=torch.float64)
    qd[0, :, 0] = torch.cos(t)
    noise = estimate_noise(spec, Windows(q, qd, torch.zeros(1, 399, 0, dtype=torch.float64)))
    assert noise.q[:2].tolist() == pytest.approx([1e-3, 1e-3], rel=0.2)
    assert float(noise.q[2:5].min()) > 2e-3
    assert float(noise.qd[2:5].min()) > 2e-2
    assert float(noise.q[5]) < 2e-3  # which turns
