# SPDX-License-Identifier: Apache-2.0
"""Small robots and trajectories for the tests of the data room."""

import numpy as np
import pytest

from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.provenance import package_versions
from neurodyn.data.header import StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter


def cartpole_spec(dt=0.02):
    joints = (
        JointSpec(name="slide", kind="prismatic", lower=-4.0, upper=4.0),
        JointSpec(name="pole", kind="revolute", continuous=True),
    )
    return StateSpec(robot="cartpole", joints=joints, controls=("slide",), dt=dt)


def header(**changes):
    fields = {"spec": cartpole_spec(), "source": "teacher", "seed": 7, "simulator": {"solver": "featherstone"}}
    return StoreHeader(**{**fields, "versions": package_versions(), **changes})


def counting_batch(episodes, frames, first=0):
    """Arrays whose values say where they belong: 1000 * episode + state; controls are negative."""
    episode = (first + np.arange(episodes))[:, None, None]
    state = 1000.0 * episode + np.arange(frames + 1)[None, :, None] + np.array([0.0, 0.25])
    return state, state + 0.5, -1.0 - state[:, :-1, :1]


@pytest.fixture
def store(tmp_path):
    """Four episodes of at most 10 transitions, the third cut to 4; splits 0, 0, 0, 1."""
    path = tmp_path / "store.h5"
    q, qd, control = counting_batch(4, 10)
    with StoreWriter(path, header()) as writer:
        writer.append(q, qd, control, lengths=[10, 10, 4, 10], status=[0, 0, 2, 0], split=[0, 0, 0, 1])
    return Store.open(path)
