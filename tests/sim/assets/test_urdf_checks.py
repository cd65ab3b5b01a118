# SPDX-License-Identifier: Apache-2.0
"""A URDF that importers would silently read as another robot is refused in one line that names the place."""

import re
from pathlib import Path

import mujoco
import numpy as np
import pytest

from neurodyn.core.errors import InputError, Notice
from neurodyn.sim.declaration.facts import read_facts
from neurodyn.sim.mujoco.asset import compile_asset, read_spec
from neurodyn.sim.urdf import prepare_urdf

LINK = """<link name="{}"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0"
iyz="0"/></inertial></link>"""
JOINT = """<joint name="{}" type="revolute"><parent link="{}"/><child link="{}"/><origin xyz="0 0 1"/>
<axis xyz="1 0 0"/><limit lower="-1" upper="1" effort="5" velocity="3"/></joint>"""
ROBOT = "<robot name='arm'>{}</robot>".format(
    "\n".join([*(LINK.format(name) for name in "abc"), JOINT.format("ab", "a", "b"), JOINT.format("bc", "b", "c")])
)


def prepared(text: str, folder: Path) -> str:
    (folder / "arm.urdf").write_text(text)
    return prepare_urdf(folder / "arm.urdf")


def test_a_sound_one_passes(tmp_path: Path):
    assert 'name="bc"' in prepared(ROBOT, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('<link name="c">', '<link name="b">', "link 'b' is there more than once"),
        ('<joint name="bc"', '<joint name="ab"', "joint 'ab' is there more than once"),
        (
            '<parent link="b"/><child link="c"/>',
            '<parent link="a"/><child link="b"/>',
            "urdf, line 9: link 'b' is the child of two",
        ),
        ('<parent link="b"/><child link="c"/>', '<parent link="b"/><child link="a"/>', "form a loop"),
        (JOINT.format("bc", "b", "c"), "", "has several roots, a, c"),
        ('lower="-1" upper="1"', 'lower="1" upper="-1"', "urdf, line 8: limits of joint 'ab' are swapped"),
        ('lower="-1"', 'lower="nan"', "urdf, line 8: lower of <limit> in joint 'ab' is 'nan'"),
        ('<mass value="1"/>', '<mass value="inf"/>', "value of <mass> in link 'a' is 'inf'"),
        ('<mass value="1"/>', '<mass value="-1"/>', "urdf, line 1: mass of link 'a' is -1"),
        ('<mass value="1"/>', '<mass value=""/>', "value of <mass> in link 'a' is ''; valid: finite numbers"),
        ('ixx="1"', 'ixx="one"', "ixx of <inertia> in link 'a' is 'one'"),
        ('xyz="0 0 1"', 'xyz="0 nan 1"', "xyz of <origin> in joint 'ab'"),
        (
            '<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0"\niyz="0"/>',
            "",
            "line 1: <inertial> of link 'a' has no <in",
        ),
        ("<robot ", "<?xml version='1.0' encoding='nonsense'?><robot ", "not readable as URDF"),
    ],
)
def test_what_no_robot_has_is_refused(old: str, new: str, words: str, tmp_path: Path):
    assert old in ROBOT
    with pytest.raises(InputError, match=words):
        prepared(ROBOT.replace(old, new, 1), tmp_path)


SPREAD = ROBOT.replace("><", ">\n<")
"""The same robot with a line for each element."""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('<link name="c">', '<link name="b">', "link 'b' is there more than once"),
        ('<mass value="1"/>', '<mass value="-1"/>', "mass of link 'a' is -1"),
        ('<inertia ixx="1"', '<inertia ixx="one"', "ixx of <inertia> in link 'a'"),
        ('<inertial>\n<mass value="1"/>', "<inertial>", "<inertial> of link 'a' has no <mass>"),
        ('<origin xyz="0 0 1"/>', '<origin xyz="0 nan 1"/>', "xyz of <origin> in joint 'ab'"),
        ('<axis xyz="1 0 0"/>', '<axis xyz="0 0 0"/>', "axis of joint 'ab' is '0 0 0'"),
        ('<limit lower="-1" upper="1"', '<limit lower="1" upper="-1"', "limits of joint 'ab' are swapped"),
        ('<parent link="b"/>', '<parent link="d"/>', "parent of joint 'bc' is the unknown link 'd'"),
        ('<child link="c"/>', '<child link="b"/>', "link 'b' is the child of two joints"),
        ("<limit lower", '<mimic joint="bc"/><limit lower', "joint 'ab' mimics another one"),
    ],
)
def test_the_line_is_that_of_the_element_at_fault(old: str, new: str, words: str, tmp_path: Path):
    """A comment that names a link or joint is none of its lines."""
    text = '<!-- <link name="a"> <joint name="ab"> -->\n' + SPREAD
    line = text[: text.index(old)].count("\n") + 1
    with pytest.raises(InputError, match=rf"arm.urdf, line {line}: {re.escape(words)}"):
        prepared(text.replace(old, new, 1), tmp_path)


def test_the_line_of_an_impossible_inertia_is_named(tmp_path: Path):
    (tmp_path / "arm.urdf").write_text('ixx="9"'.join(SPREAD.rsplit('ixx="1"', 1)))
    line = SPREAD[: SPREAD.rindex("<inertia ")].count("\n") + 1
    with pytest.raises(InputError, match=f"arm.urdf, line {line}: link 'c': principal moments of inertia are 1, 1, 9"):
        read_facts(tmp_path / "arm.urdf")


def test_a_moving_link_with_a_mass_alone_is_named_with_its_line_and_what_it_lacks(tmp_path: Path):
    at = ROBOT.rindex('ixx="1" iyy="1" izz="1"')
    text = ROBOT[:at] + ROBOT[at:].replace('ixx="1" iyy="1" izz="1"', 'ixx="0" iyy="0" izz="0"', 1)
    (tmp_path / "arm.urdf").write_text(text)
    words = r"arm.urdf, line 5: link 'c' moves with a mass of 1 kg, but ixx, iyy and izz of its <inertia> are 0"
    with pytest.raises(InputError, match=words):
        read_facts(tmp_path / "arm.urdf")


def test_a_continuous_joint_has_no_limits_of_position(tmp_path: Path):
    (tmp_path / "arm.urdf").write_text(ROBOT.replace('"bc" type="revolute"', '"bc" type="continuous"'))
    first, second = read_facts(tmp_path / "arm.urdf").joints
    assert ((first.lower, first.upper), (second.lower, second.upper)) == ((-1.0, 1.0), (None, None))
    assert second.effort == 5.0


@pytest.mark.parametrize("effort", ['effort="0"', 'effort="-5"', 'effort="1e6"', ""])
def test_an_implausible_effort_is_reported_by_joint(effort: str, tmp_path: Path):
    head, _, tail = ROBOT.rpartition('effort="5"')
    (tmp_path / "arm.urdf").write_text(f"{head}{effort}{tail}")
    facts = read_facts(tmp_path / "arm.urdf")
    assert [joint.effort for joint in facts.joints] == [5.0, None]
    assert [note for note in facts.notes if note.startswith("bc is not driven: its <limit> gives ")]


TURNED = """<joint name="{0}" type="{3}"><parent link="{1}"/><child link="{2}"/><origin xyz=".1 .2 1" rpy=".3 -.4 .5"/>
<axis xyz="1 2 3"/><limit lower="{4}" upper="{5}" effort="5" velocity="3"/>{6}</joint>"""


@pytest.mark.parametrize(
    ("kind", "lower", "upper", "mimic", "held"),
    [
        ("revolute", 0.7, 0.7, "", 0.7),
        ("revolute", -2.0, -0.5, "", -0.5),
        ("prismatic", 0.2, 0.4, "", 0.2),
        ("revolute", -1.0, 1.0, '<mimic joint="ab" multiplier="-1" offset=".4"/>', 0.4),
        ("revolute", -1.0, 1.0, "", 0.0),
    ],
)
def test_a_locked_joint_stays_where_its_limits_or_the_joint_that_it_mimics_put_it(
    kind: str, lower: float, upper: float, mimic: str, held: float, tmp_path: Path
):
    path = tmp_path / "arm.urdf"
    links = [*(LINK.format(name) for name in "abc"), JOINT.format("ab", "a", "b")]
    robot = "<robot name='arm'>" + "".join(links) + TURNED + "</robot>"
    path.write_text(robot.format("bc", "b", "c", kind, lower, upper, mimic))
    locked = compile_asset(path, read_spec(path, locked=("bc",)))
    path.write_text(robot.format("bc", "b", "c", kind, -3, 3, ""))
    free = compile_asset(path, read_spec(path))
    poses = []
    for model, value in ((locked, None), (free, held)):
        data = mujoco.MjData(model)
        if value is not None:
            data.joint("bc").qpos[0] = value
        mujoco.mj_forward(model, data)
        poses.append(np.concatenate([data.body("c").xpos, data.body("c").xmat]))
    assert poses[0] == pytest.approx(poses[1], abs=1e-9)


def test_a_joint_that_mimics_a_locked_one_stays_where_that_puts_it(tmp_path: Path):
    path = tmp_path / "arm.urdf"
    links = [*(LINK.format(name) for name in "abc"), JOINT.format("ab", "a", "b")]
    mimic = '<mimic joint="ab" multiplier="-1" offset=".4"/>'
    path.write_text("<robot name='arm'>" + "".join(links) + TURNED.format("bc", "b", "c", "revolute", -1, 1, mimic)
                    + "</robot>")  # fmt: skip
    model = compile_asset(path, read_spec(path, locked=("ab",)))
    assert model.eq_data[0, :2] == pytest.approx([0.4, 0.0])
    assert model.eq_obj2id[0] == -1


FLAT = """solid flat
facet normal 0 0 1
outer loop
vertex 0 0 0
vertex 1 0 0
vertex 0 1 0
endloop
endfacet
facet normal 0 0 1
outer loop
vertex 1 0 0
vertex 1 1 0
vertex 0 1 0
endloop
endfacet
endsolid flat
"""


def test_a_flat_mesh_is_left_out_with_a_note(tmp_path: Path):
    (tmp_path / "flat.stl").write_text(FLAT)
    shape = '<collision><geometry><mesh filename="flat.stl"/></geometry></collision>'
    (tmp_path / "arm.urdf").write_text(ROBOT.replace("</inertial></link>", f"</inertial>{shape}</link>", 1))
    with pytest.warns(Notice, match="mesh 'flat_0.stl' is flat"):
        assert len(read_facts(tmp_path / "arm.urdf").joints) == 2
