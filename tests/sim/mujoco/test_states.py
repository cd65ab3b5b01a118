# SPDX-License-Identifier: Apache-2.0
"""States in MuJoCo's coordinates: a turned base with its mass off the centre, beside MuJoCo's own velocities."""

import mujoco
import numpy as np
import pytest

from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.sim.mujoco.states import StateColumns

MODEL = """
<mujoco><worldbody><body name="base"><freejoint name="base"/>
  <inertial pos="0.1 -0.2 0.3" mass="2" diaginertia="0.1 0.2 0.3"/>
  <body pos="0 0 1"><joint name="neck" type="ball"/><geom size="0.1" mass="1e-9"/>
    <body pos="0 0 1"><joint name="arm" axis="0 1 0"/><geom size="0.1" mass="1e-9"/></body></body>
</body></worldbody></mujoco>
"""
CENTER = (0.1, -0.2, 0.3)


def test_velocities_are_of_the_centre_of_mass_in_world_axes_and_come_back():
    model = mujoco.MjModel.from_xml_string(MODEL)
    data = mujoco.MjData(model)
    joints = JointSpec("base", "free"), JointSpec("neck", "ball"), JointSpec("arm", "revolute")
    spec = StateSpec(robot="reader", joints=joints, controls=(), dt=0.01)
    columns = StateColumns(model, range(3), spec, [CENTER] * 3)
    draw = np.random.default_rng(0)
    q, qd = draw.normal(size=(1, spec.nq)), draw.normal(size=(1, spec.nv))
    for place in spec.places[:2]:
        q[:, place.quaternion] /= np.linalg.norm(q[:, place.quaternion])
    columns.write(data.qpos[None], data.qvel[None], q, qd)
    mujoco.mj_forward(model, data)
    mujoco.mj_subtreeVel(model, data)
    assert data.subtree_linvel[1] == pytest.approx(qd[0, :3], abs=1e-6)
    turn = data.body("base").xmat.reshape(3, 3)
    assert turn @ data.qvel[3:6] == pytest.approx(qd[0, 3:6])
    assert data.qpos[-1] == q[0, -1]
    for before, after in zip((q, qd), columns.read(data.qpos[None], data.qvel[None]), strict=True):
        assert np.allclose(before, after)
