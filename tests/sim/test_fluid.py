# SPDX-License-Identifier: Apache-2.0
"""The swimmer's fluid is that of MuJoCo."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn import robots
from neurodyn.robots import Fluid
from neurodyn.robots.assets import asset_path
from neurodyn.sim.newton.simulator import ReferenceSimulator

mujoco = pytest.importorskip("mujoco")
FRAMES = 50


def in_mujoco(fluid: Fluid, q: np.ndarray, qd: np.ndarray, torques: np.ndarray) -> np.ndarray:
    """Roll the asset out in MuJoCo itself, in double precision."""
    robot = robots.load("swimmer")
    spec = mujoco.MjSpec.from_file(str(asset_path(robot)))
    spec.option.density, spec.option.viscosity = fluid.density, fluid.viscosity
    spec.option.timestep = robot.dt / robot.simulator.substeps
    model = spec.compile()
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = q, qd
    path = []
    for torque in torques:
        data.qfrc_applied[3:] = torque
        mujoco.mj_step(model, data, robot.simulator.substeps)
        path.append(data.qpos.copy())
    return np.array(path)


@pytest.mark.parametrize("fluid", [Fluid(997.0, 8.9e-4), Fluid(1.184, 1.849e-5), Fluid(0.0, 0.0), Fluid(0.0, 0.5)])
def test_the_reference_simulator_swims_as_mujoco(fluid: Fluid):
    robot = robots.load("swimmer")
    robot = msgspec.structs.replace(robot, simulator=msgspec.structs.replace(robot.simulator, fluid=fluid))
    random = np.random.default_rng(0)
    q, qd = random.uniform(-1, 1, (2, 7)) * [0.1, 0.1, 3, 1, 1, 1, 1]
    torques = random.uniform(-3e-4, 3e-4, (FRAMES, 4))
    simulator = ReferenceSimulator(robot, 1, capture=False)
    single = (torch.from_numpy(x[None].astype(np.float32)) for x in (q, qd, torques))
    path = simulator.rollout(*single)[0][0, 1:].numpy()
    np.testing.assert_allclose(path, in_mujoco(fluid, q, qd, torques), atol=3e-4)


def test_a_fluid_holds_the_swimmer_back():
    robot = robots.load("swimmer")
    q, qd, still = torch.zeros(1, 7), torch.tensor([[0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]), torch.zeros(1, FRAMES, 4)
    speeds = []
    for fluid in (robot.simulator.fluid, Fluid(0.0, 0.0)):
        tried = msgspec.structs.replace(robot, simulator=msgspec.structs.replace(robot.simulator, fluid=fluid))
        speeds.append(float(ReferenceSimulator(tried, 1, capture=False).rollout(q, qd, still)[1][0, -1, 0]))
    assert speeds[0] < 0.1
    assert speeds[1] == pytest.approx(0.5, abs=1e-4)
