# SPDX-License-Identifier: Apache-2.0
"""Declared robots move as their files do in plain MuJoCo: kinds of features that once did not, or in silence."""

import pytest
from benchmarks._same_motion import compare

LEG = """
<body name="leg" pos="0 0 .9"><joint name="hip" axis="0 1 0" {hip}/>
  <geom type="capsule" fromto="0 0 0 0 0 -.4" size=".03" contype="1" conaffinity="0" {geom}/>
  <body name="shin" pos="0 0 -.4" {shin}><joint name="knee" axis="0 1 0" damping=".1" {knee}/>
    <geom type="capsule" fromto="0 0 0 .1 0 -.3" size=".03" contype="1" conaffinity="0" {geom}/>
    <body name="foot" pos=".1 0 -.3"><geom type="sphere" size=".04" contype="1" conaffinity="0" {geom}/></body>
  </body>
</body>
"""
MODEL = """
<mujoco><compiler {compiler}/><option timestep=".002" {option}/>
<worldbody><geom type="plane" size="5 5 .1" contype="1" conaffinity="1"/>{leg}</worldbody>
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
    ],
    ids=["margin", "disabled", "within a link"],
)
def test_what_differs_or_is_left_out_is_named(features, note, tmp_path):
    assert any(note in one for one in declared(tmp_path, **features).notes)
