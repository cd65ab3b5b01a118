# SPDX-License-Identifier: Apache-2.0
"""What is noticed in logs before a fit."""

from pathlib import Path

import numpy as np
import pytest

from neurodyn.data.header import StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter
from neurodyn.identify.logs import check_log, repeated_in_motion
from neurodyn.robots import load

FRAMES, EPISODES = 60, 12


def swinging(path: Path, **changes: np.ndarray) -> Store:
    """Write a log of a cartpole whose joints swing, with some columns replaced."""
    robot, rng = load("cartpole"), np.random.default_rng(0)
    time = robot.dt * np.arange(FRAMES + 1)[:, None] + rng.uniform(0, 1, (EPISODES, 1, 2))
    log = {
        "q": np.sin(9.0 * time),
        "qd": 9.0 * np.cos(9.0 * time),
        "control": rng.normal(0, 100, (EPISODES, FRAMES, 1)),
    }
    log = {name: (values + 1e-4 * rng.normal(size=values.shape)) for name, values in log.items()} | changes
    with StoreWriter(path, StoreHeader(spec=robot.spec, source="log")) as writer:
        writer.append(*(log[name].astype(np.float32) for name in ("q", "qd", "control")))
    return Store.open(path)


def test_a_sound_log_has_no_warnings_but_that_of_its_length(tmp_path: Path):
    check = check_log(load("cartpole"), swinging(tmp_path / "log.h5"))
    assert check.rate == pytest.approx(1.0 / load("cartpole").dt)
    assert [warning.partition(":")[0] for warning in check.warnings] == ["only 12 s long"]
    for joint in check.joints:
        assert joint.slope == pytest.approx(1.0, abs=0.02)
        assert joint.noise == pytest.approx(1e-4, rel=0.3)


@pytest.mark.parametrize(
    ("column", "change", "warning"),
    [
        ("qd", lambda x: 2.0 * x, "slider: positions change 0.50 times as fast as the logged velocity"),
        ("q", lambda x: np.repeat(x[:, ::2], 2, 1)[:, : FRAMES + 1], "of the frames repeat the one before"),
        ("control", np.sign, "slider has its largest command in 100% of the frames"),
        ("q", lambda x: x * [1.0, 0.0] + 1e-4 * np.random.default_rng(1).normal(size=x.shape), "hinge hardly moves"),
    ],
)
def test_faults_of_a_log_are_named(column: str, change, warning: str, tmp_path: Path):
    sound = swinging(tmp_path / "sound.h5")
    parts = [sound.episode(k) for k in range(EPISODES)]
    values = np.stack([part[("q", "qd", "control").index(column)] for part in parts]).astype(float)
    check = check_log(load("cartpole"), swinging(tmp_path / "log.h5", **{column: change(values)}))
    assert any(warning in text for text in check.warnings), check.warnings


def test_an_encoder_at_rest_or_in_slow_motion_is_not_slow():
    time = np.arange(20) * 0.01
    fast = np.stack([np.sin(5.0 * time + k) for k in range(6)])[..., None]
    assert repeated_in_motion(fast) == 0.0
    assert repeated_in_motion(np.repeat(fast[:, ::2], 2, axis=1)) > 0.4  # readings at half the rate
    slow = np.round(np.stack([0.02 * time + 0.01 * k for k in range(6)])[..., None] / 1.5e-3) * 1.5e-3
    assert repeated_in_motion(slow) == 0.0
    assert repeated_in_motion(np.concatenate([fast, np.ones_like(fast)])) == 0.0
