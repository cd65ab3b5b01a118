# SPDX-License-Identifier: Apache-2.0
"""Which quantities a text frees, from where, and within which bounds."""

import json
import math

import pytest

from neurodyn.core.config import from_dict, read_config, to_dict, to_yaml
from neurodyn.core.description.parameter import Parameter, select_parameters
from neurodyn.core.errors import InputError

INERTIA = ("xx", "yy", "zz", "xy", "xz", "yz")
NOMINAL = {
    "elbow.mass": 2.0,
    "elbow.damping": 0.0,
    "elbow.rest": -0.5,
    "elbow.com.x": 0.1,
    "elbow.com.y": 0.0,
    **{f"elbow.inertia.{part}": 0.1 for part in INERTIA},
    "elbow_2.mass": 3.0,
    "wrist.damping": 0.4,
    "gravity.z": -9.81,
    "contact.stiffness": 1e5,
    "contact.restitution": 0.0,
}


def names(*texts):
    return [parameter.name for parameter in select_parameters(NOMINAL, texts)]


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["elbow.mass"], ["elbow.mass"]),
        (["*.mass"], ["elbow.mass", "elbow_2.mass"]),
        (["elbow.com"], ["elbow.com.x", "elbow.com.y"]),
        (["elbow_2"], ["elbow_2.mass"]),
        (["wrist.damping", "elbow.damping"], ["elbow.damping", "wrist.damping"]),  # in the order of the quantities
        (["elbow.mass", "*.mass"], ["elbow.mass", "elbow_2.mass"]),  # once each
        (["*.inertia.?x"], ["elbow.inertia.xx"]),
        (["*.inertia"], [f"elbow.inertia.{part}" for part in INERTIA]),
        ([], []),
    ],
)
def test_patterns(texts, found):
    assert names(*texts) == found


def test_a_link_is_all_of_its_quantities_and_none_of_a_namesakes():
    assert names("elbow") == [name for name in NOMINAL if name.startswith("elbow.")]


@pytest.mark.parametrize(
    ("text", "nominal", "lower", "upper"),
    [
        ("elbow.mass", 2.0, 0.0, None),
        ("elbow.mass=2.5", 2.5, 0.0, None),
        ("elbow.mass=1:4", 2.0, 1.0, 4.0),
        ("elbow.mass=2.5:1:4", 2.5, 1.0, 4.0),
        ("elbow.mass=1:", 2.0, 1.0, None),
        ("elbow.mass=:4", 2.0, 0.0, 4.0),
        ("elbow.rest", -0.5, None, None),
        ("elbow.rest=-1:", -0.5, -1.0, None),
        ("elbow.rest=:1e1", -0.5, None, 10.0),
        ("elbow.rest=0::", 0.0, None, None),
        ("elbow.damping=1e-3:1e-4:1e-1", 1e-3, 1e-4, 1e-1),
        ("contact.stiffness", 1e5, 0.0, None),
    ],
)
def test_start_and_bounds(text, nominal, lower, upper):
    (found,) = select_parameters(NOMINAL, [text])
    assert found == Parameter(name=text.partition("=")[0], nominal=nominal, lower=lower, upper=upper)


def test_the_last_text_about_a_quantity_counts():
    found = {p.name: p for p in select_parameters(NOMINAL, ["*.mass=0.5:9", "elbow.mass=2.5"])}
    assert found["elbow.mass"] == Parameter(name="elbow.mass", nominal=2.5, lower=0.0)
    assert found["elbow_2.mass"] == Parameter(name="elbow_2.mass", nominal=3.0, lower=0.5, upper=9.0)


def test_what_cannot_be_negative_is_not():
    positive = {"elbow.mass", "elbow.damping", "elbow_2.mass", "wrist.damping", "contact.stiffness"}
    positive |= {f"elbow.inertia.{part}" for part in ("xx", "yy", "zz")} | {"contact.restitution"}
    found = {p.name for p in select_parameters(NOMINAL, ["*"]) if p.lower == 0.0}
    assert found == positive
    for what in ("armature", "friction", "stiffness", "limit_stiffness", "limit_damping"):
        (parameter,) = select_parameters({f"a.{what}": 1.0}, ["a"])
        assert parameter.lower == 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "knee.mass",
            r"'knee\.mass' matches no quantity \(did you mean 'elbow\.mass'\?\); valid: contact\.stiffness, ",
        ),
        ("Elbow.mass", "matches no quantity"),
        ("elbow.mass=heavy", "parameter 'elbow.mass=heavy' is malformed; valid: NAME, NAME=START"),
        ("elbow.mass=1:2:3:4", "is malformed"),
        ("elbow.mass=1,2", "is malformed"),
        ("elbow.mass=", "is malformed"),
        ("elbow.mass=nan", "not finite"),
        ("elbow.mass=2:nan:4", "not finite"),
        ("elbow.mass=inf", "not finite"),
        ("elbow.rest=-inf:inf", "not finite; valid: finite numbers, and no bound at all where there is none"),
        ("elbow.mass=4:1", "bounds are 4 and 1; valid: lower below upper"),
        ("elbow.mass=1:1", "bounds are 1 and 1"),
        ("elbow.mass=3:4", "its nominal value 2 lies outside of the bounds"),
        ("elbow.mass=5:1:4", "its nominal value 5 lies outside"),
        ("elbow.mass=-1", "its nominal value -1 lies outside"),
        ("elbow.mass=-1:4", "elbow.mass is never negative; valid: a lower bound of at least 0"),
        ("*.damping=0.1:1", "parameter 'elbow.damping': its nominal value 0 lies outside"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(text, message):
    with pytest.raises(InputError, match=message.replace("=", r"\=")) as caught:
        select_parameters(NOMINAL, [text])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("values", [(3.0, 0.0, 1.0), (0.5, 1.0, 0.0), (math.nan,), (math.inf,), (0.0, math.nan)])
def test_a_parameter_that_cannot_be_is_refused_also_when_read(values):
    given = dict(zip(("nominal", "lower", "upper"), values, strict=False))
    with pytest.raises(ValueError, match="parameter 'a'"):
        Parameter(name="a", **given)
    with pytest.raises(InputError, match="run: parameter 'a'"):
        from_dict({"name": "a", **given}, Parameter, "run")


def test_plain_data_files_and_back(tmp_path):
    for parameter in select_parameters(NOMINAL, ["elbow.mass=2.5:1:4", "elbow.rest", "elbow.damping"]):
        assert from_dict(json.loads(json.dumps(to_dict(parameter))), Parameter) == parameter
        path = tmp_path / "parameter.yaml"
        path.write_text(to_yaml(parameter))
        assert read_config(path, Parameter) == parameter


def test_parameters_of_soft_constraints_stay_in_their_ranges():
    nominal = {
        "contact.solref.timeconst": 0.02, "knee.limit_solref.dampratio": -3.0, "contact.solimp.dwidth": 0.95,
        "contact.solimp.width": 0.001,
    }  # fmt: skip
    ranges = {found.name: (found.lower, found.upper) for found in select_parameters(nominal, ["*"])}
    assert ranges == {
        "contact.solref.timeconst": (0.0, None), "knee.limit_solref.dampratio": (None, 0.0),
        "contact.solimp.dwidth": (0.0, 1.0), "contact.solimp.width": (0.0, None),
    }  # fmt: skip
    with pytest.raises(InputError, match=r"nominal value -1 lies outside of the bounds \[0, inf\]"):
        select_parameters(nominal, ["contact.solref.timeconst=-1"])
    with pytest.raises(InputError, match=r"contact.solimp.dwidth is never above 1; valid: an upper bound up to it"):
        select_parameters(nominal, ["contact.solimp.dwidth=0.5:2"])


def test_a_pattern_says_which_links_it_skips():
    named = {"root.mass": 1.0, "hip.mass": 1.0, "hip.armature": 0.1, "knee.mass": 1.0, "knee.armature": 0.1}
    with pytest.warns(Warning, match=r"\*\.armature: skips root, which has no armature"):
        found = select_parameters(named, ["*.armature"])
    assert [one.name for one in found] == ["hip.armature", "knee.armature"]


def test_an_unknown_name_lists_eight_that_are_near():
    named = {f"leg_{k}.{what}": 1.0 for k in range(50) for what in ("friction", "damping", "mass")}
    with pytest.raises(InputError, match="and 142 more") as caught:
        select_parameters(named, ["leg_7.frictoin"])
    assert "leg_7.friction" in str(caught.value)
    assert str(caught.value).count("leg_") == 10  # with what was given and what was meant
