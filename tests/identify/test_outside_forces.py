# SPDX-License-Identifier: Apache-2.0
"""Measured outside forces, such as a person's push or a force plate's, are commands of drives that act in the world."""

from pathlib import Path

import numpy as np
import pytest

from neurodyn.data.header import Split
from neurodyn.data.readers import import_logs, read_column_map
from neurodyn.data.store import Store
from neurodyn.data.windows import select_windows
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.dynamics.rollouts import recorded_environments, roll_along, truth_of
from neurodyn.identify import AdaptationSettings, identify
from neurodyn.identify.ladder.structures import FitModel, structures
from neurodyn.identify.motors import with_motors
from neurodyn.robots import Robot, load

mujoco = pytest.importorskip("mujoco")
ARM = """<mujoco><compiler angle="radian"/><option timestep="0.0025" integrator="implicitfast"/><worldbody>
<body><joint name="turn" axis="0 1 0" damping="0.05"/><inertial pos="0 0 -0.2" mass="1.2" diaginertia="0.02 0.02 0.01"/>
</body></worldbody><actuator><motor name="turn" joint="turn" ctrlrange="-3 3"/></actuator></mujoco>"""
TIP = (0.0, 0.0, -0.35)
DECLARATION = """
name: pushed-arm
asset: arm.xml
joints: [{name: turn, kind: revolute, continuous: true}]
actuated: {turn: 3.0, push_x: 30.0, push_z: 30.0}
drives:
  push_x: {kind: affine, per_command: 1.0, between: {link: turn, frame: [0, 0, -0.35, 0, 0, 0, 1], along: [1, 0, 0]}}
  push_z: {kind: affine, per_command: 1.0, between: {link: turn, frame: [0, 0, -0.35, 0, 0, 0, 1], along: [0, 0, 1]}}
dt: 0.01
simulator: {solver: mujoco-c, substeps: 4, integrator: implicitfast}
sampling: {qd: {'*': [-5, 5]}}
"""
MAP = """
robot: robot.yaml
format: npz
time: time
q: {turn: {column: angle}}
qd: {turn: {column: rate}}
control: {turn: {column: torque}, push_x: {column: "plate[0]"}, push_z: {column: "plate[1]"}}
alignment: 0
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Robot, Path]:
    """A pendulum in plain MuJoCo that is driven, and pushed at its tip by forces in the axes of the world."""
    folder = tmp_path_factory.mktemp("pushed")
    for name, text in {"arm.xml": ARM, "robot.yaml": DECLARATION, "map.yaml": MAP}.items():
        (folder / name).write_text(text)
    model, rng = mujoco.MjModel.from_xml_string(ARM.replace('mass="1.2"', 'mass="1.5"')), np.random.default_rng(0)
    data, frames = mujoco.MjData(model), 1200
    torque = np.repeat(rng.uniform(-1.0, 1.0, frames // 20), 20)
    push = np.repeat(rng.uniform(-6.0, 6.0, (frames // 30, 2)), 30, axis=0)
    rows = []
    for tau, (x, z) in zip(torque, push, strict=True):
        rows.append((data.time, data.qpos[0], data.qvel[0], tau, x, z))
        data.ctrl[0] = tau
        for _ in range(4):
            mujoco.mj_kinematics(model, data)
            data.qfrc_applied[:] = 0.0
            at = data.xpos[1] + data.xmat[1].reshape(3, 3) @ TIP
            mujoco.mj_applyFT(model, data, np.array([x, 0.0, z]), np.zeros(3), at, 1, data.qfrc_applied)
            mujoco.mj_step(model, data)
    time, angle, rate, tau, x, z = np.array(rows).T
    np.savez(folder / "log.npz", time=time, angle=angle, rate=rate, torque=tau, plate=np.stack([x, z], 1))
    robot = load(folder / "robot.yaml")
    import_logs([folder / "log.npz"], read_column_map(folder / "map.yaml"), robot.spec, folder / "log.h5")
    return robot, folder


def test_forces_that_a_log_holds_act_on_the_model_and_tell_its_mass(log: tuple[Robot, Path]):
    robot, folder = log
    store = Store.open(folder / "log.h5")
    windows = select_windows(store, Split.TEST, 50)

    def error(model, windows) -> float:
        path = roll_along(model, windows, recorded_environments(store, model))
        return float(RolloutErrors.of(robot, path, truth_of(windows)).errors[:, -1].detach().mean())

    found = identify(str(folder), data=folder / "log.h5", out=folder / "run", parameters=["turn.mass"])
    (mass,) = found.figures.parameters
    assert mass.value == pytest.approx(1.5, rel=2e-3)
    unpushed = type(windows)(**{**vars(windows), "control": windows.control * windows.control.new_tensor([1.0, 0, 0])})
    assert error(found.dynamics, windows) < 2e-3
    assert error(found.dynamics, unpushed) > 0.1
    assert error(declared_hybrid(robot), windows) > 0.02


def test_adapt_knows_such_forces(log: tuple[Robot, Path]):
    robot, folder = log
    driven = with_motors(robot, Store.open(folder / "log.h5"))
    assert driven.drives["push_x"] == robot.drives["push_x"]
    model = FitModel.declared(driven, str(folder), AdaptationSettings())
    names = [one.name for one in structures(model, AdaptationSettings(), ())[0].space.coordinates]
    assert "actuator.turn.gain" in names
    assert not [name for name in names if "push" in name]
