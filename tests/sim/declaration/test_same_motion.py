# SPDX-License-Identifier: Apache-2.0
"""Declared robots move as their files do in plain MuJoCo: kinds of features that once did not, or in silence."""

import pytest
from benchmarks._same_motion import compare

from neurodyn.sim import declare

LEG = """
<body name="leg" pos="0 0 .9"><joint name="hip" axis="0 1 0" {hip}/>
  <geom type="capsule" fromto="0 0 0 0 0 -.4" size=".03" contype="1" conaffinity="0" {geom}/>
  <body name="shin" pos="0 0 -.4" {shin}><joint name="knee" axis="0 1 0" damping=".1" {knee}/>
    <geom type="capsule" fromto="0 0 0 .1 0 -.3" size=".03" contype="1" conaffinity="0" {geom}/>
    <body name="foot" pos=".1 0 -.3"><geom name="tip" type="sphere" size=".04" contype="1" conaffinity="0" {geom}/>
    </body>
  </body>
</body>
"""
MODEL = """
<mujoco><compiler {compiler}/><option timestep=".002" {option}/>
<worldbody><geom name="floor" type="plane" size="5 5 .1" contype="1" conaffinity="1"/>{leg}</worldbody>
<actuator><motor name="hip" joint="hip" {motor}/><motor name="knee" joint="knee" ctrlrange="-5 5" {other}/></actuator>
{more}</mujoco>
"""


def declared(folder, option="", compiler="", motor='ctrlrange="-8 8"', other="", more="", **parts):
    file = folder / "leg.xml"
    leg = LEG.format(**{name: parts.get(name, "") for name in ("hip", "knee", "shin", "geom")})
    file.write_text(MODEL.format(option=option, compiler=compiler, leg=leg, motor=motor, other=other, more=more))
    return compare(file, folder / "declared")


@pytest.mark.parametrize(
    "features",
    [
        {},
        {"motor": 'ctrlrange="-8 3" gear="2"'},  # pushes harder than it pulls
        {"motor": 'ctrlrange="-8 8" forcerange="-4 6"'},
        {"hip": 'actuatorfrcrange="-4 6"'},
        {"compiler": 'settotalmass="1" boundmass=".5"'},
        {"shin": 'gravcomp=".8"', "knee": 'actuatorgravcomp="true"'},
        {"option": 'actuatorgroupdisable="2"', "other": 'group="2"'},
        {"more": '<equality><connect body1="shin" body2="foot" anchor="0 0 0"/></equality>'},
    ],
    ids=[
        "plain",
        "asymmetric",
        "force range",
        "joint range",
        "total of bounded masses",
        "carried",
        "disabled",
        "within a link",
    ],
)
def test_a_leg_moves_as_in_plain_mujoco(features, tmp_path):
    assert declared(tmp_path, **features).what == ""


@pytest.mark.parametrize(
    ("features", "note"),
    [
        ({"geom": 'margin=".01"'}, "3 shapes with a margin: contact with the ground begins where surfaces meet"),
        ({"option": 'actuatorgroupdisable="2"', "other": 'group="2"'}, "its group 2 is disabled in the file"),
        ({"more": '<equality><connect body1="shin" body2="foot" anchor="0 0 0"/></equality>'}, "it has no effect"),
        ({"knee": 'range="-1 1" margin="3"'}, "1 limit with a margin above half of its range: not modelled"),
        (
            {"more": '<contact><pair geom1="floor" geom2="tip" friction=".4 .9 .01 .001 .001"/></contact>'},
            "1 pair with the ground of unequal frictions along its axes: not modelled",
        ),
    ],
    ids=["margin", "disabled", "within a link", "margin of a limit", "pair"],
)
def test_what_differs_or_is_left_out_is_named(features, note, tmp_path):
    found = declared(tmp_path, **features)
    assert any(note in one for one in found.notes)
    assert found.named or note.startswith("1 limit"), found.what  # MuJoCo cannot leave one end of a limit out


def test_a_note_explains_no_difference_that_stays_without_the_part_it_names(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks._same_motion._masses", lambda declaration, truth, seed: "other masses")
    found = declared(tmp_path, geom='margin=".01"')
    assert any("with a margin" in note for note in found.notes)
    assert not found.named
    assert "without what is noted: other masses" in found.what


BASE = """
<robot name="arm"><mujoco><compiler settotalmass="5" strippath="false"/></mujoco>
<link name="base"><inertial><mass value="1"/><inertia {base} ixy="0" ixz="0" iyz="0"/></inertial></link>
<link name="arm"><inertial><origin xyz=".2 0 0"/><mass value="1"/>
  <inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="hinge" type="revolute"><parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>
  <limit lower="-2" upper="2" effort="5" velocity="5"/></joint></robot>
"""


@pytest.mark.parametrize("base", ['ixx=".01" iyy=".01" izz=".01"', 'ixx=".03" iyy=".01" izz=".01"'])
def test_settings_of_mujoco_in_a_urdf_are_named_and_a_bolted_base_may_have_any_inertia(base, tmp_path):
    (tmp_path / "arm.urdf").write_text(BASE.format(base=base))
    declaration = declare(tmp_path / "arm.urdf", tmp_path / "declared", floating=False)
    notes = [one.value for one in declaration.decisions if one.what == "note"]
    assert "not modelled: <mujoco> of the URDF, which sets compiler settotalmass" in notes
