# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.multibody.mujoco_models import EXACT, compared

PASSIVE = """<mujoco><option timestep="0.002" gravity="1 2 -9" integrator="{integrator}" {exact}/><worldbody>
  <body name="chain" pos="0 0 1"><joint name="ball" type="ball" pos=".02 0 .1" {ball}/>
    <geom type="capsule" size=".04 .1" contype="0" conaffinity="0" pos=".01 .02 0"/>
    <body name="tip" pos="0 0 -.2"><joint name="hinge" axis="0 1 0" damping=".2"/>
      <geom type="box" size=".04 .05 .06" pos=".03 0 0" contype="0" conaffinity="0"/></body></body>
  <body name="box" pos="1 0 1"><joint name="free" type="free" {free}/>
    <geom type="box" size=".1 .12 .05" pos=".05 .03 .02" contype="0" conaffinity="0"/></body>
</worldbody></mujoco>"""


@pytest.mark.parametrize(("integrator", "free"), [("Euler", ".6"), ("implicitfast", "0")])
def test_damping_and_friction_of_ball_and_free_joints_are_those_of_mujoco(integrator, free):
    xml = PASSIVE.format(
        integrator=integrator, exact=EXACT, ball='damping=".3" armature=".01" frictionloss=".4"',
        free=f'damping="{free}" frictionloss=".3" armature="{free}"',
    )  # fmt: skip
    velocity, position = compared(xml, 24)
    assert velocity < 1e-9
    assert position < 1e-11
