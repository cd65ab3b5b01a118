# SPDX-License-Identifier: Apache-2.0
"""Springs that stand for MuJoCo's joint limits."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.robots import load
from neurodyn.robots.sections import SimulatorConfig
from neurodyn.sim.newton.simulator import ReferenceSimulator
from neurodyn.sim.simulators import articulation

ARM = """<mujoco><compiler autolimits="true"/><worldbody><body>
<joint name="turn" type="hinge" axis="0 1 0" range="-60 60" {limit}/>
<inertial pos="0 0 0.4" mass="2" diaginertia="0.1 0.1 0.1"/><geom type="sphere" size="0.05"/></body></worldbody>
</mujoco>"""
INERTIA = 0.1 + 2 * 0.4**2


def arm(folder, limit="", **declared):
    (folder / "arm.xml").write_text(ARM.format(limit=limit))
    joint = {"name": "turn", "kind": "revolute", "lower": -np.pi / 3, "upper": np.pi / 3, "armature": 0.0}
    simulator = {"solver": "mujoco", "substeps": 64}
    text = {"name": "arm", "asset": "arm.xml", "joints": [{**joint, **declared}], "actuated": {"turn": 10.0}}
    rest = {"dt": 0.01, "simulator": simulator, "gravity": [0.0, 0.0, 0.0]}
    (folder / "robot.json").write_bytes(msgspec.json.encode({**text, **rest}))
    return load(folder / "robot.json")


@pytest.mark.parametrize("solref", ["", 'solreflimit="0.05 0.5"', 'solreflimit="-900 -20"'])
def test_a_joint_meets_its_limit_as_it_does_a_spring(tmp_path, solref):
    robot = arm(tmp_path, solref)
    stiffness, damping = articulation(robot).springs["turn"]
    frames, upper = 8, float(np.pi / 3)
    simulator = ReferenceSimulator(robot, 1)
    start = torch.tensor([[upper]]), torch.tensor([[3.0]])
    q, _ = simulator.rollout(*start, torch.zeros(1, frames, 1))
    passed, speed, path, h = 0.0, 3.0, [0.0], 1e-5
    for _ in range(frames):
        for _ in range(round(robot.dt / h)):
            force = max(stiffness * passed + damping * speed, 0.0) if passed >= 0 else 0.0
            speed -= h * force / INERTIA
            passed += h * speed
        path.append(passed)
    depth = np.abs(path).max()
    np.testing.assert_allclose(q[0, :, 0].numpy() - upper, path, atol=0.06 * depth)


def test_what_is_declared_in_force_space_comes_out_softer_by_the_impedance(tmp_path):
    stiffness, damping = articulation(arm(tmp_path, limit_ke=400.0, limit_kd=8.0)).springs["turn"]
    assert stiffness == pytest.approx(400.0 * 0.05 / 0.95, rel=1e-4)
    assert damping == pytest.approx(8.0 * 0.05, rel=1e-4)


def test_time_constants_below_two_steps_are_raised_as_the_simulator_raises_them(tmp_path):
    robot = arm(tmp_path)
    fine = articulation(robot).springs["turn"]
    coarse = msgspec.structs.replace(robot, dt=0.04, simulator=SimulatorConfig("mujoco", substeps=1))
    assert articulation(coarse).springs["turn"][1] == pytest.approx(fine[1] * 0.02 / 0.08, rel=1e-4)


def test_joints_without_limits_have_none():
    assert set(articulation(load("pendulum")).springs) == set()
    assert set(articulation(load("ant")).springs) == {
        f"{part}_{leg}" for part in ("hip", "ankle") for leg in range(1, 5)
    }
