# SPDX-License-Identifier: Apache-2.0
"""Checks of a record's numbers, and numbers as named quantities."""

import re

import pytest

from neurodyn.core.config import Config
from neurodyn.core.description.record import (
    HasQuantities,
    components,
    require_distinct,
    require_fields,
    require_known,
    require_word,
)


class Inner(Config, frozen=True):
    range: tuple[float, float] = (1.0, 2.0)


class Outer(Config, HasQuantities, frozen=True):
    mass: float = 1.0
    inner: Inner = Inner()
    arms: dict[str, float] = {}
    turn: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0)

    def paths(self):
        return {"mass": ("mass",), **components("range", ("inner", "range"), ("low", "high")), "arm": ("arms", "knee")}


def test_quantities_are_read_and_replaced_where_they_lie():
    record = Outer(arms={"hip": 1.0, "knee": 2.0})
    assert record.quantities() == {"mass": 1.0, "range.low": 1.0, "range.high": 2.0, "arm": 2.0}
    changed = record.with_quantities({"mass": 3.0, "range.low": 0.5, "range.high": 4.0, "arm": 5.0, "other": 0.0})
    assert changed == Outer(mass=3.0, inner=Inner(range=(0.5, 4.0)), arms={"hip": 1.0, "knee": 5.0})
    assert Outer().with_quantities(changed.quantities()).arms == {"knee": 5.0}


@pytest.mark.parametrize(
    ("record", "checks", "message"),
    [
        (Outer(mass=0.0), {"above": ("mass [kg]",)}, "it: mass is 0.0; valid: a finite number above 0 [kg]"),
        (Outer(mass=float("nan")), {"finite": ("mass",)}, "it: mass is nan; valid: a finite number"),
        (
            Inner(range=(1.0, -1.0)),
            {"least": ("range",)},
            "it: range is [1.0, -1.0]; valid: finite numbers of at least 0",
        ),
        (Outer(arms={"a": -1.0}), {"least": ("arms",)}, "it: arms is {'a': -1.0}; valid: finite numbers of at least 0"),
        (Outer(turn=(0.0, 0.0, 0.0, 2.0)), {"unit": ("turn",)}, "valid: a unit quaternion"),
    ],
)
def test_numbers_out_of_range_are_refused(record, checks, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        require_fields(record, "it", **checks)
    require_fields(type(record)(), "it", **checks)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: require_word("a.b", "link"), "link: name is 'a.b'; valid: a word without"),
        (lambda: require_distinct("link", ["a", "b", "a"]), "link 'a' is there twice"),
        (lambda: require_known("joint", ["c"], ("", "a", "b")), "joint is 'c'; valid: one of a, b, or nothing for the"),
    ],
)
def test_names_that_do_not_fit_are_refused(check, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        check()
