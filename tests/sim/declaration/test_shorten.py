# SPDX-License-Identifier: Apache-2.0
"""Tables in short say the same as before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neurodyn.robots.sections import expand_keys
from neurodyn.sim.declaration.text import pattern_of, shorten

LEGS = [f"{leg}_{part}" for leg in ("FL", "FR", "RL", "RR") for part in ("hip", "thigh", "calf")]


@given(st.lists(st.integers(0, 2), min_size=len(LEGS), max_size=len(LEGS)), st.integers(1, len(LEGS)))
def test_a_short_table_expands_to_the_long_one(values, count):
    table = dict(zip(LEGS[:count], values, strict=False))
    assert expand_keys(shorten(table, LEGS), LEGS, "") == table


@pytest.mark.parametrize(
    ("table", "short"),
    [
        (dict.fromkeys(LEGS, 1), {"*": 1}),
        ({name: name.endswith("calf") for name in LEGS}, {"*": False, "*_calf": True}),
        ({name: [0, 1] for name in LEGS if "hip" in name}, {"*_hip": [0, 1]}),
        ({name: 1 for name in LEGS if "hip" not in name}, {"*_thigh": 1, "*_calf": 1}),
        ({"FL_hip": 1}, {"FL_hip": 1}),
    ],
)
def test_patterns_are_those_that_a_reader_would_write(table, short):
    assert shorten(table, LEGS) == short


def test_a_pattern_matches_its_group_and_no_other():
    assert pattern_of(["FL_hip", "FR_hip"], LEGS) == "F*_hip"
    assert pattern_of(["FL_hip", "FR_calf"], LEGS) is None
