# SPDX-License-Identifier: Apache-2.0
"""Stores made of the episodes of others."""

import numpy as np
import pytest

from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.data.header import Status, StoreHeader
from neurodyn.data.mixture import first_frames, joined
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter

SPEC = StateSpec(robot="mass", joints=(JointSpec(name="line", kind="prismatic"),), controls=("line",), dt=0.1)


def store(path, lengths, *, first=0.0, rewarded=True, spec=SPEC):
    """Return a store in which q counts from `first` on."""
    with StoreWriter(path, StoreHeader(source="log", spec=spec, groups=("a",)), rewarded=rewarded) as writer:
        for length in lengths:
            q = (first + np.arange(length + 1, dtype=np.float32))[None, :, None]
            reward = np.ones((1, length)) if rewarded else None
            writer.append(q, -q, np.zeros((1, length, 1)), status=[Status.TERMINATED], group=[0], reward=reward)
            first += 100.0
    return Store.open(path)


def test_joined_holds_all_episodes(tmp_path):
    a, b = store(tmp_path / "a.h5", [3, 5]), store(tmp_path / "b.h5", [4], first=1000.0)
    both = joined([a, b])
    both.check("joined")
    assert both.lengths.tolist() == [3, 5, 4]
    assert both.run.tolist() == [0, 0, 1]
    np.testing.assert_array_equal(both.episode(2)[0], b.episode(0)[0])
    assert both.returns is not None
    assert both.returns.tolist() == [3.0, 5.0, 4.0]


def test_what_does_not_join_is_refused(tmp_path):
    a = store(tmp_path / "a.h5", [3])
    with pytest.raises(InputError, match="with and without a reward do not join"):
        joined([a, store(tmp_path / "b.h5", [3], rewarded=False)])
    other = StateSpec(robot="cart", joints=SPEC.joints, controls=SPEC.controls, dt=0.1)
    with pytest.raises(MismatchError, match="robot is 'cart' instead of 'mass'"):
        joined([a, store(tmp_path / "c.h5", [3], spec=other)])


def test_beginnings_are_the_first_frames_of_each_long_episode(tmp_path):
    cut = first_frames(store(tmp_path / "a.h5", [3, 5, 2]), 3)
    cut.check("beginnings")
    assert cut.lengths.tolist() == [3, 3]
    assert cut.q[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 100.0, 101.0, 102.0, 103.0]
    with pytest.raises(InputError, match="no episode of 'mass' has 9 frames"):
        first_frames(store(tmp_path / "b.h5", [3]), 9)
