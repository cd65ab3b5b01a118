# SPDX-License-Identifier: Apache-2.0
"""The hybrid model of a robot on a heightfield beside plain MuJoCo, which keeps every contact of a foot."""

import torch

from neurodyn.core.description.scene import Scene, Terrain
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.batch import Control, Environment, State
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.geometry.ground import Ground
from neurodyn.robots import load

BALL = """<mujoco><option timestep="0.005"/><worldbody><body name="ball" pos="0 0 0.3"><freejoint/>
<geom size="0.03" mass="1"/><body name="flag" pos="0 0 0.02"><joint name="flag" axis="0 1 0" damping="1"/>
<geom size="0.01" mass="0.1" contype="0" conaffinity="0"/></body></body></worldbody></mujoco>"""


def test_a_ball_rolls_over_stairs_as_in_plain_mujoco(tmp_path):
    (tmp_path / "ball.xml").write_text(BALL)
    (tmp_path / "robot.yaml").write_text(
        "name: ball\nasset: ball.xml\ndt: 0.01\nfixed_base: false\nactuated: {}\n"
        "joints: [{name: base, kind: free}, {name: flag, kind: revolute, continuous: true}]\n"
        "simulator: {solver: mujoco-c, substeps: 2, iterations: 100}\nmaterial: {friction: 0.6}\n"
        "grounds: {flat: {shapes: [{kind: plane}]}}\nground: flat\ncontact_points: {}\n"
    )
    robot = load(tmp_path)
    exact, hybrid = AnalyticDynamics(robot), declared_hybrid(robot)
    stairs = Terrain(style="mixed", tiles=("stairs", "slopes"), cell=0.05, amplitude=0.15, feature=0.3)
    there = Environment(ground=Ground(Scene(shapes=(stairs,))))
    generator, worlds = torch.Generator().manual_seed(0), 64
    q, qd = torch.zeros(worlds, 8), torch.zeros(worlds, 7)
    q[:, :2], q[:, 2], q[:, 6] = 6.0 * torch.rand(worlds, 2, generator=generator) - 3.0, 0.2, 1.0
    qd[:, :2] = torch.randn(worlds, 2, generator=generator)
    state, control = State(q, qd), Control(torque=torch.zeros(worlds, 0))
    carry, errors, touched = exact.begin(state, there), [], []
    for _ in range(60):
        ours = hybrid.step(hybrid.begin(state, there), state, control)[1].state
        carry, step = exact.step(carry, state, control)
        errors.append((ours.qd[:, :3] - step.state.qd[:, :3]).abs().amax(1))
        touched.append((step.state.qd[:, 2] - state.qd[:, 2] + 9.81 * 0.01).abs() > 1e-3)
        state = step.state
    errors, touched = torch.stack(errors), torch.stack(touched)
    assert touched.double().mean() > 0.3
    assert float(errors[touched].quantile(0.99)) < 1e-3
