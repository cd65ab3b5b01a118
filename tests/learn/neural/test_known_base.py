# SPDX-License-Identifier: Apache-2.0
"""What predictions start from: nothing, where commands are no torques."""

import msgspec
import pytest

from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import Notice
from neurodyn.data.header import StoreHeader
from neurodyn.learn.neural.settings import load_settings
from neurodyn.learn.neural.train import known_base
from neurodyn.robots import load

SPEC = StateSpec(robot="arm", joints=(JointSpec(name="hip", kind="revolute"),), controls=("hip",), dt=0.01)
HEADER = StoreHeader(spec=SPEC, source="teacher", simulator={"substeps": 7}, mechanism=Mechanism(links=()))


def settings(base):
    return msgspec.structs.replace(load_settings(load("cartpole"), "small"), base=base)


def test_the_steps_of_the_base_are_those_of_the_simulator():
    base, mechanism = known_base(settings("free"), HEADER)
    assert (base.kind, base.substeps) == ("free", 7)
    assert mechanism is HEADER.mechanism
    assert known_base(settings(None), HEADER)[0] is None


def test_targets_are_not_taken_for_torques():
    header = msgspec.structs.replace(HEADER, spec=msgspec.structs.replace(SPEC, control_kind="target"))
    with pytest.warns(Notice, match=r"base 'free' takes torques, and 'arm' is commanded otherwise"):
        assert known_base(settings("free"), header)[0] is None
