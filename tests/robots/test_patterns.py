# SPDX-License-Identifier: Apache-2.0
"""Patterns of joints, and joints that share an entry."""

import pytest
import yaml

from neurodyn import robots
from neurodyn.core.config import from_dict, to_dict
from neurodyn.core.description.drive import Drive
from neurodyn.core.errors import InputError
from neurodyn.robots import Robot
from neurodyn.robots.sections import expand
from neurodyn.sim.declaration.text import shorten

LEGS = ["LF", "RF", "LH", "RH"]
SHORT = {
    "name": "dog",
    "asset": "dog.urdf",
    "fixed_base": False,
    "joints": [
        {"name": "base", "kind": "free"},
        {"names": [f"{leg}_{part}" for leg in LEGS for part in ("HAA", "KFE")], "kind": "revolute", "armature": 0.1},
    ],
    "actuated": {"*": 80.0, "RF_KFE": 40.0},
    "dt": 0.02,
    "nominal": {"?F_KFE": -0.8, "?H_KFE": 0.8},
    "sampling": {"height": [0.5, 0.6], "q": {"*_HAA": [-0.2, 0.2], "LF_HAA": [-0.1, 0.1]}, "control": {"*": [-1, 1]}},
    "reset": {"qd": {"base.v?": [-0.1, 0.1], "base.w[xy]": [-0.2, 0.2], "*E": [-1, 1]}},
    "range": {"qd": {"*": [-40, 40], "base.*": [-10, 10], "base.vz": [-5, 5]}},
}


def test_patterns_stand_for_the_joints_that_they_match_in_order():
    robot = from_dict(expand(SHORT, "dog.yaml"), Robot)
    names = [f"{leg}_{part}" for leg in LEGS for part in ("HAA", "KFE")]
    assert [joint.name for joint in robot.joints] == ["base", *names]
    assert all(joint.armature == 0.1 for joint in robot.joints[1:])
    assert list(robot.actuated.items()) == [(name, 40.0 if name == "RF_KFE" else 80.0) for name in names]
    assert robot.nominal == {"LF_KFE": -0.8, "RF_KFE": -0.8, "LH_KFE": 0.8, "RH_KFE": 0.8}
    assert robot.sampling.q == dict.fromkeys(names[::2], (-0.2, 0.2)) | {"LF_HAA": (-0.1, 0.1)}
    assert list(robot.sampling.control) == names
    assert list(robot.reset.qd) == ["base.vx", "base.vy", "base.vz", "base.wx", "base.wy", *names[1::2]]
    assert robot.range.qd["base.vx"] == (-10, 10)  # a later pattern overrides an earlier one
    assert robot.range.qd["base.vz"] == (-5, 5)
    assert robot.range.qd["LH_HAA"] == (-40, 40)


TABLE = """joint, kp, kd, effort_limit, kind
*_HAA, 80.0, 2.0, , pd
*_KFE, 60, 1.5, 40, pd
RF_KFE, 55, 1, 30, pd
"""


def test_gains_by_joint_are_read_from_a_table(tmp_path):
    declared = {**SHORT, "drives": "gains.csv", "sampling": {"height": [0.5, 0.6]}}
    path = tmp_path / "dog.yaml"
    (tmp_path / "gains.csv").write_text(TABLE)
    robot = from_dict(expand(declared, str(path)), Robot)
    assert robot.drives["LF_HAA"] == Drive(kind="pd", kp=80.0, kd=2.0)
    assert robot.drives["LH_KFE"] == Drive(kind="pd", kp=60.0, kd=1.5, effort_limit=40.0)
    assert robot.hold_gains() == (
        (80.0, 60.0, 80.0, 55.0, 80.0, 60.0, 80.0, 60.0),
        (2.0, 1.5, 2.0, 1.0) + (2.0, 1.5) * 2,
    )
    assert robot.command == "target"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (None, "gains.csv: cannot be read as a table of drives"),
        ("name,kp\nLF_HAA,1\n", "a row names no joint or is too long; valid: columns joint, kp, kd"),
        ("joint,kp\nLF_HAA,1,2\n", "a row names no joint or is too long"),
        ("joint,kp,kd\n*,1,2\n*,1,2\n", "has '\\*' twice; valid: a row for each joint"),
        ("joint,kp,kd\nLM_*,1,2\n", "the pattern 'LM_\\*' matches nothing"),
        ("joint,kp,kd\n*,stiff,2\n", "kp"),
        ("joint,kp,ki\n*,1,2\n", "ki"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path, table, message):
    if table is not None:
        (tmp_path / "gains.csv").write_text(table)
    with pytest.raises(InputError, match=message):
        from_dict(expand({**SHORT, "drives": "gains.csv"}, str(tmp_path / "dog.yaml")), Robot)


def test_a_plain_name_overrides_a_pattern_wherever_it_stands():
    for table in ({"*": 80.0, "RF_KFE": 40.0}, {"RF_KFE": 40.0, "*": 80.0}):
        assert expand({**SHORT, "actuated": table}, "dog.yaml")["actuated"]["RF_KFE"] == 40.0


@pytest.mark.parametrize("name", robots.names())
def test_written_out_declarations_stay_as_they_are(name):
    whole = to_dict(robots.load(name))
    assert expand(whole, name) == whole


@pytest.mark.parametrize("name", ["anymal-c", "ant"])
def test_a_shipped_robot_reads_the_same_in_short(name, tmp_path):
    robot = robots.load(name)
    spec, whole = robot.spec, to_dict(robot)
    scalars = [joint.name for joint in robot.joints if joint.scalar]
    joints = [{"names": [joint.pop("name")], **joint} for joint in to_dict(robot)["joints"]]
    short = {**whole, "folder": "", "joints": joints}
    for key in ("actuated", "nominal"):
        short[key] = shorten(whole[key], scalars)
    for key in ("sampling", "reset", "range"):
        q, qd = (shorten(whole[key][part], names) for part, names in (("q", scalars), ("qd", spec.qd_names)))
        short[key] = {**whole[key], "q": q, "qd": qd}
    assert len(short["range"]["qd"]) + len(short["sampling"]["qd"]) < len(spec.qd_names)
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump(short, sort_keys=False))
    assert to_dict(robots.load(tmp_path)) | {"folder": whole["folder"]} == whole


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"actuated": {"*_HFE": 80.0}}, "dog.yaml: actuated: the pattern '*_HFE' matches nothing; valid: .*LF_HAA"),
        ({"nominal": {"base*": 0.1}}, "nominal: the pattern 'base\\*' matches nothing"),
        ({"reset": {"qd": {"base.u?": [0, 1]}}}, "reset.qd: the pattern 'base.u\\?' matches nothing; valid: .*base.vx"),
        ({"sampling": {"control": {"base*": [0, 1]}}}, "sampling.control: the pattern 'base\\*' matches nothing"),
        ({"joints": [{"name": "a", "names": ["b"], "kind": "revolute"}]}, "one of `name: JOINT` and `names:"),
        ({"joints": [{"names": "b", "kind": "revolute"}]}, "one of `name: JOINT` and `names:"),
    ],
)
def test_bad_short_forms_are_refused(change, said):
    with pytest.raises(InputError, match=said.replace("'*_", "'\\*_")):
        expand({**SHORT, **change}, "dog.yaml")


def test_what_is_no_declaration_is_left_to_the_checks_that_follow():
    for data in (None, [], {"joints": 3}, {"joints": [3, {"name": "a", "kind": ["x"]}], "actuated": 3, "range": 3}):
        assert expand(data, "x") == data
