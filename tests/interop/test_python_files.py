# SPDX-License-Identifier: Apache-2.0
"""Files for Isaac Lab and mjlab against their documented layout: fields, values, and what actuators compute."""

import math
import runpy

import mujoco
import numpy as np
import pytest
import torch

from neurodyn import InputError, robots
from neurodyn.core.description.drive import Drive
from neurodyn.dynamics.hybrid.declared import declared_mechanism
from neurodyn.interop import export_identified
from neurodyn.interop.identified import IdentifiedRobot
from neurodyn.interop.trainers import write_isaaclab, write_mjlab
from tests.interop import fakes
from tests.interop.runs import identified_run, network_run, network_torques, write_arm

DRIVES = {
    "pan": Drive(kind="pd", delay=0.02, kp=20.0, kd=0.5, gain=0.5, effort_limit=9.0),
    "lift": Drive(kind="pd", kp=30.0, kd=1.0, saturation_effort=12.0, velocity_limit=8.0, viscous=0.1, lag=0.01),
    "elbow": Drive(kind="pd", kp=10.0, kd=0.2, stiffness=300.0, rotor_inertia=0.01, coulomb=0.3),
}


def read(folder, monkeypatch, packages):
    fakes.install(monkeypatch, packages)
    return runpy.run_path(str(folder / "robot_cfg.py"))


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """An arm whose drives have springs, lags and delays."""
    robot = robots.load(write_arm(tmp_path_factory.mktemp("driven")))
    mechanism, _, _ = declared_mechanism(robot, None)
    return IdentifiedRobot("a run", robot, mechanism, drives=DRIVES)


def test_isaaclab_gets_actuators_limits_and_masses(tmp_path, monkeypatch):
    names = ("hinge.mass=2.7", "hinge.damping=.3", "hinge.friction=.1", "hinge.armature=.02", "slider.upper=3.5")
    model = identified_run(tmp_path / "run", "cartpole", *names, "gravity.z=-9.7")
    exported = export_identified(tmp_path / "run", "isaaclab")
    assert (exported.files, exported.left_out) == (("cartpole.urdf", "robot_cfg.py"), ())
    made = read(exported.folder, monkeypatch, fakes.ISAACLAB)
    actuators = made["CARTPOLE_CFG"].fields["actuators"]
    assert (actuators["slider"].kind, actuators["hinge"].kind) == ("IdealPDActuatorCfg", "ImplicitActuatorCfg")
    assert actuators["slider"].fields["effort_limit"] == model.robot.actuated["slider"]
    hinge = actuators["hinge"].fields
    assert [hinge[name] for name in ("armature", "friction", "dynamic_friction", "viscous_friction")] == [
        0.02,
        0.1,
        0.1,
        0.3,
    ]
    assert made["LIMITS"] == {"slider": (-4.0, 3.5)}
    assert made["BODIES"]["pole"][0] == 2.7
    assert made["GRAVITY"][2] == -9.7
    assert made["CARTPOLE_CFG"].fields["spawn"].fields["asset_path"].endswith("isaaclab/cartpole.urdf")


class FakeView:
    """Arrays of bodies as PhysX has them."""

    def __init__(self, bodies):
        self.masses, self.coms, self.inertias = (
            torch.zeros(2, bodies),
            torch.zeros(2, bodies, 7),
            torch.zeros(2, bodies, 9),
        )

    def __getattr__(self, name):
        what = name.split("_", 1)[1]
        return (lambda: self.__dict__[what]) if name.startswith("get_") else lambda values, rows: None


class FakeArticulation:
    """The calls of an articulation that the written function makes."""

    device, num_instances = "cpu", 2

    def __init__(self, joints, bodies):
        self.joints, self.bodies = joints, bodies
        self.root_physx_view, self.limits = FakeView(len(bodies)), {}

    def find_joints(self, name):
        return [self.joints.index(name)], [name]

    def find_bodies(self, name):
        return [self.bodies.index(name)], [name]

    def write_joint_position_limit_to_sim(self, limits, ids):
        self.limits[ids[0]] = limits


def test_isaaclab_writes_masses_and_limits_into_an_articulation_of_another_asset(tmp_path, monkeypatch):
    identified_run(tmp_path / "run", "cartpole", "hinge.mass=2.7", "hinge.com.x=.02", "slider.upper=3.5")
    made = read(export_identified(tmp_path / "run", "isaaclab").folder, monkeypatch, fakes.ISAACLAB)
    articulation = FakeArticulation(["hinge", "slider"], ["rail", "pole", "cart"])
    made["write_identified"](articulation)
    view = articulation.root_physx_view
    assert view.masses[:, 1].tolist() == pytest.approx([2.7, 2.7])
    assert view.coms[0, 1].tolist() == pytest.approx([0.02, 0, 0.5, 0, 0, 0, 1])
    assert view.inertias[1, 1].reshape(3, 3).diagonal().tolist() == pytest.approx([0.21885, 0.21885, 0.01104], rel=1e-3)
    assert view.masses[0, 0] == 0  # what the model does not know stays as it is
    assert articulation.limits[1].shape == (2, 1, 2)
    assert articulation.limits[1][0, 0].tolist() == [-4.0, 3.5]


def test_isaaclab_drives_have_the_class_that_holds_most_of_them(driven, tmp_path, monkeypatch):
    placed = write_isaaclab(driven, tmp_path)
    left = {"actuator.lift.lag", "actuator.elbow.stiffness", "actuator.elbow.rotor_inertia", "actuator.elbow.coulomb"}
    assert set(driven.required_quantities) - placed == left
    made = read(tmp_path, monkeypatch, fakes.ISAACLAB)
    pan, lift, elbow = (made["ACTUATORS"][name] for name in ("pan", "lift", "elbow"))
    assert (pan.kind, lift.kind, elbow.kind) == ("DelayedPDActuatorCfg", "DCMotorCfg", "IdealPDActuatorCfg")
    assert (pan.fields["stiffness"], pan.fields["damping"], pan.fields["effort_limit"]) == (10.0, 0.25, 9.0)
    assert pan.fields["min_delay"] == pan.fields["max_delay"] == round(0.02 / made["PHYSICS_DT"])
    assert (lift.fields["saturation_effort"], lift.fields["velocity_limit"]) == (12.0, 8.0)
    assert lift.fields["viscous_friction"] == pytest.approx(0.3)
    assert elbow.fields["friction"] == 0.0  # that of the motor lies before the spring


def test_mjlab_gets_an_mjcf_without_actuators_and_a_class_for_each_drive(driven, tmp_path, monkeypatch):
    placed = write_mjlab(driven, tmp_path)
    left = {"actuator.lift.lag", "actuator.elbow.stiffness", "actuator.elbow.rotor_inertia", "actuator.elbow.coulomb"}
    assert set(driven.required_quantities) - placed == left
    made = read(tmp_path, monkeypatch, fakes.MJLAB)
    pan, lift, elbow = made["ARM_CFG"].fields["articulation"].fields["actuators"]
    assert (pan.kind, lift.kind, elbow.kind) == ("IdealPdActuatorCfg", "DcMotorActuatorCfg", "IdealPdActuatorCfg")
    assert pan.fields["delay_min_lag"] == pan.fields["delay_max_lag"] == round(0.02 / made["PHYSICS_DT"])
    assert pan.fields["target_names_expr"] == ("pan",)
    assert lift.fields["saturation_effort"] == 12.0
    assert elbow.fields["effort_limit"] == 5.0
    compiled = made["ARM_CFG"].fields["spec_fn"]().compile()
    assert isinstance(compiled, mujoco.MjModel)
    assert compiled.nu == 0
    assert compiled.joint("lift").damping[0] == pytest.approx(0.3)


def test_without_drives_mjlab_gets_motors(tmp_path, monkeypatch):
    identified_run(tmp_path / "run", "cartpole", "hinge.mass=2.7", "hinge.armature=.02")
    exported = export_identified(tmp_path / "run", "mjlab")
    (motor,) = read(exported.folder, monkeypatch, fakes.MJLAB)["ACTUATORS"]
    assert (motor.kind, motor.fields) == (
        "BuiltinMotorActuatorCfg",
        {"target_names_expr": ("slider",), "effort_limit": 1500.0},
    )


def signals():
    generator = np.random.default_rng(0)
    return generator.uniform(-1, 1, (9, 2)), generator.uniform(-1, 1, (9, 2))


@pytest.mark.parametrize("order", [("position_error", "velocity"), ("velocity", "position_error")], ids=["pos", "vel"])
def test_networks_compute_in_both_what_was_trained(tmp_path, monkeypatch, order):
    config = network_run(tmp_path / "run", signals=order, activation="tanh")
    errors, velocities = signals()
    wanted = network_torques(config, tmp_path / "run", errors, velocities)
    isaac = read(export_identified(tmp_path / "run", "isaaclab").folder, monkeypatch, fakes.ISAACLAB)["ACTUATORS"][
        "network"
    ]
    assert isaac.fields["joint_names_expr"] == ["shoulder", "elbow"]
    np.testing.assert_allclose(fakes.isaaclab_mlp(isaac, errors, velocities), wanted, atol=1e-5)
    (lab,) = read(export_identified(tmp_path / "run", "mjlab").folder, monkeypatch, fakes.MJLAB)["ACTUATORS"]
    np.testing.assert_allclose(fakes.mjlab_mlp(lab, errors, velocities), wanted, atol=1e-5)
    assert math.isfinite(lab.fields["effort_limit"])


def test_a_gated_recurrent_unit_stands_in_for_the_lstm(tmp_path, monkeypatch):
    fields = {"network": "gru", "hidden": (6,), "history": (0.0,), "signals": ("velocity", "position_error")}
    config = network_run(tmp_path / "run", **fields)
    errors, velocities = signals()
    made = read(export_identified(tmp_path / "run", "isaaclab").folder, monkeypatch, fakes.ISAACLAB)["ACTUATORS"][
        "network"
    ]
    assert made.kind == "ActuatorNetLSTMCfg"
    wanted = network_torques(config, tmp_path / "run", errors, velocities)
    np.testing.assert_allclose(fakes.isaaclab_lstm(made, errors, velocities), wanted, atol=1e-5)
    with pytest.raises(InputError, match="its actuator network is a gru; valid for mjlab: an mlp"):
        export_identified(tmp_path / "run", "mjlab")
