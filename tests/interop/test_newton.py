# SPDX-License-Identifier: Apache-2.0
"""Settings for Newton: builders and models get the identified robot, and drives compute what the model says."""

import importlib.util
import json

import msgspec
import newton
import numpy as np
import pytest
import torch
import warp as wp
from safetensors.torch import load_file

from neurodyn import robots
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.dynamics.artifact import save
from neurodyn.identify.drives import drive_by_network
from neurodyn.interop import export_identified
from neurodyn.interop.identified import IdentifiedRobot
from neurodyn.interop.newton import write_newton
from neurodyn.sim.newton.articulation import newton_articulation
from neurodyn.sim.newton.build import build, build_world
from neurodyn.sim.simulators import mechanism
from tests.interop.runs import identified_run, network_run, network_torques, random_start, write_arm

NAMES = (
    "lift.mass=4", "elbow.com.z=.02", "elbow.inertia.yy=.0018", "elbow.armature=.3", "pan.damping=.5",
    "lift.upper=2", "elbow.origin.x=.45", "elbow.axis.z=.2", "elbow.stiffness=2", "elbow.rest=.4",
    "gravity.z=-9.7",
)  # fmt: skip


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("newton")
    path = write_arm(folder / "arm")
    model = identified_run(folder / "run", path, *NAMES)
    return robots.load(path), model, export_identified(folder / "run", "newton")


def applied(folder):
    """Return the function beside the settings, which knows nothing of neurodyn."""
    lines = (folder / "apply.py").read_text().splitlines()
    assert not [line for line in lines if line.strip().startswith(("import neurodyn", "from neurodyn"))]
    spec = importlib.util.spec_from_file_location("apply_identified", folder / "apply.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.apply


def same(ours, theirs):
    a, b = ours.quantities(), theirs.quantities()
    assert a.keys() == b.keys()
    for name in a:
        assert b[name] == pytest.approx(a[name], abs=1e-6, rel=1e-6), name


def test_a_builder_has_the_identified_mechanism(arm):
    robot, model, exported = arm
    assert exported.left_out == ()
    world = build_world(robot)
    flags = applied(exported.folder)(exported.folder / "settings.json", world)
    assert flags & int(newton.ModelFlags.BODY_INERTIAL_PROPERTIES)
    everything = newton.ModelBuilder()
    everything.replicate(world, copy_count=2)
    values = dict(zip((spec.name for spec in model.physical.specs), model.physical().tolist(), strict=True))
    found = mechanism(newton_articulation(everything.finalize(device="cpu"), robot), robot)
    same(model.mechanism.with_quantities(values), found)


def test_a_finished_model_of_several_worlds_has_it_and_moves_as_the_identified_model(arm):
    robot, model, exported = arm
    built = build(robot, worlds=2)
    applied(exported.folder)(json.loads((exported.folder / "settings.json").read_text()), built)
    solver = newton.solvers.SolverFeatherstone(built)
    state, torques = random_start(model, 30)
    ours = model.rollout(state, torques).q[0, 1:].numpy()
    now, then, control = built.state(), built.state(), built.control()
    now.joint_q.assign(np.tile(state.q[0].numpy(), 2).astype(np.float32))
    now.joint_qd.assign(np.tile(state.qd[0].numpy(), 2).astype(np.float32))
    newton.eval_fk(built, now.joint_q, now.joint_qd, now)
    path, substeps = [], model.config.substeps
    for torque in torques[0].numpy():
        for _ in range(substeps):
            now.clear_forces()
            control.joint_f.assign(np.tile(torque, 2).astype(np.float32))
            solver.step(now, then, control, None, model.spec.dt / substeps)
            now, then = then, now
        path.append(now.joint_q.numpy().reshape(2, -1).copy())
    theirs = np.array(path)
    np.testing.assert_allclose(theirs[:, 0], theirs[:, 1], atol=1e-6)
    assert np.abs(ours - ours[0]).max() > 0.3
    np.testing.assert_allclose(theirs[:, 0], ours, atol=5e-4)


def test_bodies_that_fixed_joints_hold_get_no_mass_of_their_own(arm):
    builder = newton.ModelBuilder()
    first, second = builder.add_link(mass=1.0, inertia=wp.mat33(np.eye(3))), builder.add_link(mass=2.0)
    moving = builder.add_joint_revolute(-1, first, label="robot/lift")
    fixed = builder.add_joint_fixed(first, second, label="robot/weld")
    builder.add_articulation([moving, fixed])
    link = {"mass": 4.0, "com": [0.1, 0.0, 0.0], "inertia": [1.0, 2.0, 2.5, 0.1, 0.0, 0.0]}
    settings = {"joints": {}, "links": {"lift": link}, "drives": {}, "networks": []}
    applied(arm[2].folder)(settings, builder)
    assert list(builder.body_mass) == [4.0, 0.0]
    assert np.array(builder.body_inertia[0]).reshape(3, 3)[0].tolist() == pytest.approx([1.0, 0.1, 0.0])


def run_actuators(model, targets, positions, velocities, dt):
    """Return what the actuators of a model put out, frame by frame, shape [frames, dofs]."""
    state, control = model.state(), model.control()
    states = [(a.state(), a.state()) for a in model.actuators]
    found = []
    for target, q, qd in zip(targets, positions, velocities, strict=True):
        state.joint_q.assign(q.astype(np.float32))
        state.joint_qd.assign(qd.astype(np.float32))
        control.joint_target_q.assign(target.astype(np.float32))
        control.joint_f.zero_()
        for index, actuator in enumerate(model.actuators):
            before, after = states[index]
            actuator.step(state, control, before, after, dt=dt)
            states[index] = (after, before)
        found.append(control.joint_f.numpy().copy())
    return np.array(found)


def motions(frames, joints):
    generator = np.random.default_rng(0)
    return [generator.uniform(-1, 1, (frames, joints)) for _ in range(3)]


def test_drives_become_pd_drives_with_delay_and_a_torque_speed_line(arm, tmp_path):
    robot, model, _ = arm
    drive = Drive(
        kind="pd", delay=0.02, gain=0.9, kp=20.0, kd=0.5, effort_limit=9.0, saturation_effort=12.0, velocity_limit=1.5,
        coulomb=0.2, viscous=0.1, bias=0.05, lag=0.003,
    )  # fmt: skip
    declared = Mechanism(links=model.mechanism.links, gravity=model.mechanism.gravity, drives={"lift": drive})
    identified = IdentifiedRobot("a run", robot, declared, drives={"lift": drive})
    placed = write_newton(identified, tmp_path)
    assert set(identified.required_quantities) - placed == {"actuator.lift.lag"}
    world = build_world(robot)
    apply = applied(tmp_path)
    with pytest.raises(ValueError, match=r"'lift' has a delay of 0\.02 s; give dt"):
        apply(tmp_path / "settings.json", build_world(robot))
    apply(tmp_path / "settings.json", world, dt=0.01)
    dof = [name.rsplit("/", 1)[-1] for name in world.joint_label].index("lift")
    assert world.joint_friction[dof] == pytest.approx(0.2)
    assert world.joint_damping[dof] == pytest.approx(model.mechanism.links[1].damping + 0.1)
    targets, q, qd = motions(12, 3)
    found = run_actuators(world.finalize(device="cpu"), targets, q, qd, 0.01)
    late = targets[[max(t - 2, 0) for t in range(12)], 1]
    wanted = 0.9 * (20.0 * (late - q[:, 1] - 0.05) - 0.5 * qd[:, 1])
    share = np.clip(qd[:, 1] / 1.5, -1.75, 1.75)
    wanted = np.clip(wanted, np.maximum(12 * (-1 - share), -9), np.minimum(12 * (1 - share), 9))
    np.testing.assert_allclose(found[2:, 1], wanted[2:], atol=1e-4)
    assert not found[:, [0, 2]].any()


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"activation": "tanh", "signals": ("velocity", "position_error"), "history": (0.0,)},
        {"network": "gru", "hidden": (6,), "history": (0.0,)},
    ],
    ids=["softsign", "vel_pos", "gru"],
)  # fmt: skip
def test_an_actuator_network_is_a_neural_drive(tmp_path, fields):
    pytest.importorskip("warp_nn")
    config = network_run(tmp_path / "run", ("lift", "elbow"), **fields)
    folder = export_identified(tmp_path / "run", "newton").folder
    robot = robots.load(write_arm(tmp_path / "arm"))
    world = build_world(robot)
    apply = applied(folder)
    with pytest.raises(ValueError, match=r"takes a sample every 0\.01 s; valid: dt=0\.01"):
        apply(folder / "settings.json", build_world(robot), dt=0.004)
    apply(folder / "settings.json", world, dt=config.period)
    targets, q, qd = motions(8, 3)
    found = run_actuators(world.finalize(device="cpu"), targets, q, qd, config.period)
    wanted = network_torques(config, tmp_path / "run", (targets - q)[:, 1:], qd[:, 1:])
    np.testing.assert_allclose(found[:, 1:], wanted, atol=1e-4)
    assert not found[:, 0].any()


def test_a_robot_driven_by_its_network_is_exported_with_it(tmp_path):
    robot = robots.load(write_arm(tmp_path / "arm"))
    config = network_run(tmp_path / "run", tuple(robot.actuated))
    weights = load_file(tmp_path / "run" / "actuator_network.safetensors")
    save(tmp_path / "run", drive_by_network(robot, config, weights))
    exported = export_identified(tmp_path / "run", "newton")
    assert exported.files == ("actuator_network.onnx", "apply.py", "settings.json")
    assert exported.left_out == ()
    settings = json.loads((exported.folder / "settings.json").read_text())
    assert settings["drives"] == {}  # the network stands in their place
    assert settings["networks"][0]["joints"] == list(robot.actuated)
    assert settings["links"]["elbow"]["mass"] == pytest.approx(0.48)


def test_a_model_that_is_finished_takes_no_drives(arm, tmp_path):
    robot, model, _ = arm
    drives = {"lift": Drive(kind="pd", kp=1.0, kd=0.1)}
    changed = msgspec.structs.replace(model.mechanism, drives=drives)
    write_newton(IdentifiedRobot("a run", robot, changed, drives=drives), tmp_path)
    with pytest.raises(ValueError, match="a finished model takes no drives any more"):
        applied(tmp_path)(tmp_path / "settings.json", build(robot))
    with pytest.raises(ValueError, match="there is no joint 'pan'; valid: hinge, slider"):
        applied(tmp_path)(tmp_path / "settings.json", build_world(robots.load("cartpole")))


def test_settings_are_plain_and_name_what_was_identified(arm):
    _, model, exported = arm
    settings = json.loads((exported.folder / "settings.json").read_text())
    assert settings["identified"]["elbow.armature"] == {"value": pytest.approx(0.3), "declared": 0.0}
    assert set(settings["identified"]) == {spec.name for spec in model.physical.specs}
    assert torch.isfinite(model.physical()).all()
