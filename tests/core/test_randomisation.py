# SPDX-License-Identifier: Apache-2.0
"""Texts that say how quantities of the robot differ between worlds."""

import pytest

from neurodyn.core.description.randomisation import RandomisedQuantity, randomised_quantities
from neurodyn.core.errors import InputError

NOMINAL = {"base.mass": 4.0, "leg.mass": 2.0, "leg.inertia.xx": 0.5, "leg.damping": 0.0, "contact.friction": 0.6}


def test_forms():
    found = randomised_quantities(
        [
            "base.mass=+0:25",
            "contact.friction=.3:.9:log",
            "leg.mass&leg.inertia.*=x.8:1.2:normal",
            "leg.damping=0|.1|1",
        ],
        NOMINAL,
    )
    assert found == (
        RandomisedQuantity(names=("base.mass",), change="add", lower=0.0, upper=25.0),
        RandomisedQuantity(names=("contact.friction",), lower=0.3, upper=0.9, shape="log"),
        RandomisedQuantity(names=("leg.mass", "leg.inertia.xx"), change="scale", lower=0.8, upper=1.2, shape="normal"),
        RandomisedQuantity(names=("leg.damping",), values=(0.0, 0.1, 1.0)),
    )


def test_each_match_of_a_pattern_is_a_draw_of_its_own():
    found = randomised_quantities(["*.mass=x.9:1.1"], NOMINAL)
    assert [one.names for one in found] == [("base.mass",), ("leg.mass",)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("base.mass", r"is malformed; valid: NAME=LOWER:UPPER"),
        ("base.mass=1", r"is malformed"),
        ("base.mass=a:b", r"is malformed"),
        ("base.mass=2:1", r"from 2 to 1; valid: finite numbers in ascending order"),
        ("base.mass=0:1:log", r"from 0; valid with :log: numbers above 0"),
        ("base.mass=1:2:cauchy", r"shape 'cauchy'; valid: .*normal"),
        ("bas.mass=1:2", r"'bas\.mass' matches no quantity \(did you mean 'base\.mass'\?\); valid: base\.mass"),
        ("base.mass=+-9:1", r"base\.mass would be -5; valid: at least 0"),
        ("leg.damping=x.5:2", r"leg\.damping is declared as 0, which no factor changes"),
    ],
)
def test_what_is_not_possible_is_one_line(text, said):
    with pytest.raises(InputError, match=said):
        randomised_quantities([text], NOMINAL, bounds={"base.mass": 0.0})


def test_a_quantity_is_drawn_once():
    with pytest.raises(InputError, match=r"base\.mass is drawn twice"):
        randomised_quantities(["*.mass=x.9:1.1", "base.mass=+0:1"], NOMINAL)
