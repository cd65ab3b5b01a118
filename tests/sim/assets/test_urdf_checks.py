# SPDX-License-Identifier: Apache-2.0
"""A URDF that importers would take without a word, as another robot, is refused in one line that names the place."""

from pathlib import Path

import pytest

from neurodyn.core.errors import InputError
from neurodyn.sim.newton_asset import prepare_urdf

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
        ('<parent link="b"/><child link="c"/>', '<parent link="a"/><child link="b"/>', "link 'b' is the child of two"),
        ('<parent link="b"/><child link="c"/>', '<parent link="b"/><child link="a"/>', "form a loop"),
        (JOINT.format("bc", "b", "c"), "", "has several roots, a, c"),
        ('lower="-1" upper="1"', 'lower="1" upper="-1"', "limits of joint 'ab' are swapped"),
        ('lower="-1"', 'lower="nan"', "lower of <limit> in joint 'ab' is 'nan'"),
        ('<mass value="1"/>', '<mass value="inf"/>', "value of <mass> in link 'a' is 'inf'"),
        ('<mass value="1"/>', '<mass value="-1"/>', "mass of link 'a' is -1"),
        ('<mass value="1"/>', '<mass value=""/>', "value of <mass> in link 'a' is ''; valid: finite numbers"),
        ('ixx="1"', 'ixx="one"', "ixx of <inertia> in link 'a' is 'one'"),
        ('xyz="0 0 1"', 'xyz="0 nan 1"', "xyz of <origin> in joint 'ab'"),
        ("<robot ", "<?xml version='1.0' encoding='nonsense'?><robot ", "not readable as URDF"),
    ],
)
def test_what_no_robot_has_is_refused(old: str, new: str, words: str, tmp_path: Path):
    assert old in ROBOT
    with pytest.raises(InputError, match=words):
        prepared(ROBOT.replace(old, new, 1), tmp_path)
