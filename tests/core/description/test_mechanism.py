# SPDX-License-Identifier: Apache-2.0
import json
import math

import msgspec
import pytest

from neurodyn.core.config import from_dict, to_dict
from neurodyn.core.description.contacts import ChainJoint, ContactPoint
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.errors import InputError

IDENTITY = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)


def link(name="a", kind="revolute", parent=-1, axis=None, **values):
    axis = axis or ((0.0, 0.6, 0.8) if kind in ("revolute", "prismatic") else (0.0, 0.0, 0.0))
    joint = ChainJoint(
        name=name, kind=kind, parent=parent, parent_frame=(0.1, 0.2, 0.3, 0.0, 0.0, 0.0, 1.0), child_frame=IDENTITY,
        axis=axis,
    )  # fmt: skip
    given = {"mass": 2.0, "com": (0.1, 0.0, -0.2), "inertia": (1.0, 2.0, 2.5, 0.1, 0.2, 0.3), **values}
    return Link(joint=joint, **given)


MECHANISM = Mechanism(
    links=(link("base", "free"), link("hip", "ball", 0), link("knee", parent=1, lower=-1.0, friction=0.5)),
    gravity=(0.0, 1.0, -9.0),
    points=(ContactPoint(name="foot", joint=2, point=(0.0, 0.0, -0.5), radius=0.02),),
)


def test_plain_data_and_back():
    plain = json.loads(json.dumps(to_dict(MECHANISM)))
    assert from_dict(plain, Mechanism) == MECHANISM


def test_sizes_and_names():
    assert (MECHANISM.nq, MECHANISM.nv) == (7 + 4 + 1, 6 + 3 + 1)
    assert MECHANISM.names == ("base", "hip", "knee")


def test_every_number_is_a_quantity_with_a_name():
    found = MECHANISM.quantities()
    assert found["knee.mass"] == 2.0
    assert found["knee.com.z"] == -0.2
    assert [found[f"hip.inertia.{x}"] for x in ("xx", "yy", "zz", "xy", "xz", "yz")] == [1.0, 2.0, 2.5, 0.1, 0.2, 0.3]
    assert [found[f"base.origin.{x}"] for x in "xyz"] == [0.1, 0.2, 0.3]
    assert [found[f"knee.axis.{x}"] for x in "xyz"] == [0.0, 0.6, 0.8]
    assert [found[f"gravity.{x}"] for x in "xyz"] == [0.0, 1.0, -9.0]
    assert found["knee.friction"] == 0.5
    assert found["knee.lower"] == -1.0
    assert all(type(value) is float for value in found.values())
    # What a joint does not have is no quantity of it.
    assert "knee.upper" not in found
    assert "hip.axis.x" not in found
    assert list(found) == list(from_dict(to_dict(MECHANISM), Mechanism).quantities())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mass": 0.0}, "mass is 0.0"),
        ({"mass": math.nan}, "mass is nan"),
        ({"mass": math.inf}, "mass is inf"),
        ({"damping": -1.0}, "damping is -1.0"),
        ({"armature": math.inf}, "armature is inf"),
        ({"limit_damping": math.nan}, "limit_damping is nan"),
        ({"com": (0.0, math.nan, 0.0)}, "com is"),
        ({"inertia": (1.0, 1.0, 1.0, 0.0, 0.0, math.inf)}, "inertia is"),
        ({"lower": 1.0, "upper": 0.5}, "lower is 1.0"),
        ({"lower": math.nan, "upper": 0.5}, "lower is nan"),
        ({"axis": (0.0, 0.0, 2.0)}, "axis is"),
        ({"axis": (0.0, 0.0, 0.0)}, "axis is"),
    ],
)
def test_a_link_that_cannot_be_is_refused(values, message):
    with pytest.raises(ValueError, match=f"link 'a': {message}.*; valid: "):
        link(**values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"links": (link(parent=0),)}, "link 'a': its parent is 0"),
        ({"links": (link(parent=-2),)}, "link 'a': its parent is -2"),
        ({"links": (link(), link("b", parent=2), link("c"))}, "link 'b': its parent is 2"),
        ({"links": (link(), link("b", "free", 0))}, "link 'b': its parent is 0; valid: -1 for a free joint"),
        ({"links": (link(), link("a", parent=0))}, "link 'a' is there twice"),
        ({"links": (link(),)}, "point 'foot': its link is 2"),
        ({"gravity": (0.0, 0.0, math.nan)}, "gravity is"),
    ],
)
def test_a_tree_that_cannot_be_is_refused_also_when_read(change, message):
    with pytest.raises(ValueError, match=message):
        msgspec.structs.replace(MECHANISM, **change)
    with pytest.raises(InputError, match=message):
        from_dict({**to_dict(MECHANISM), **{key: to_dict(value) for key, value in change.items()}}, Mechanism)


def test_two_trees_and_two_floating_bodies_are_a_mechanism():
    assert Mechanism(links=(link("a", "free"), link("b", "free"), link("c"))).nv == 13
