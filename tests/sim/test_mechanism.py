# SPDX-License-Identifier: Apache-2.0
"""Mechanisms of Newton's models: nothing is lost in merging, and MuJoCo accelerates them in the same way."""

import warnings
from importlib import import_module

import msgspec
import newton
import numpy as np
import pytest
import torch

from neurodyn import robots
from neurodyn.core.config import from_dict, to_dict
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.motion import FreeMotion
from neurodyn.sim.newton.articulation import newton_articulation
from neurodyn.sim.newton.build import build
from neurodyn.sim.newton.simulator import ReferenceSimulator
from neurodyn.sim.simulators import articulation, mechanism
from tests.multibody import reference
from tests.multibody.reference import Configuration, random_motion

NAMES = ("cartpole", "ant", "anymal-c", "cube")


@pytest.fixture(scope="module", params=NAMES)
def built(request):
    robot = robots.load(request.param)
    model = build(robot)
    return robot, model, mechanism(newton_articulation(model, robot), robot)


def test_links_are_the_moving_joints_of_the_robot(built):
    robot, _, found = built
    assert found.names == tuple(joint.name for joint in robot.joints)
    assert (found.nq, found.nv) == (robot.spec.nq, robot.spec.nv)
    assert from_dict(to_dict(found), Mechanism) == found
    assert len(found.points) == (0 if robot.contact_points is None else len(found.points))


def test_mass_and_centre_of_mass_are_the_models(built):
    """In the pose q = 0, fixed bodies included where a moving one carries them."""
    _, model, found = built
    state = model.state()
    q = np.zeros(found.nq)
    if found.links[0].joint.kind == "free":
        q[6] = 1.0
    state.joint_q.assign(q.astype(np.float32))
    newton.eval_fk(model, state.joint_q, state.joint_qd, state)
    pose, com, mass = state.body_q.numpy(), model.body_com.numpy(), model.body_mass.numpy()
    world = [i for i in range(model.body_count) if carried(model, i)]
    at = Configuration(found, q)
    assert sum(link.mass for link in found.links) == pytest.approx(mass[world].sum(), rel=1e-6)
    theirs = sum(mass[i] * (pose[i, :3] + reference.matrix(pose[i, 3:]) @ com[i]) for i in world)
    ours = sum(link.mass * centre for link, centre in zip(found.links, at.centres, strict=True))
    np.testing.assert_allclose(ours, theirs, atol=1e-5 * mass[world].sum())


def carried(model, body):
    """Return whether a joint that moves lies between a body and the world."""
    joint = model.joint_child.numpy().tolist().index(body)
    if model.joint_type.numpy()[joint] != int(newton.JointType.FIXED):
        return True
    parent = int(model.joint_parent.numpy()[joint])
    return parent >= 0 and carried(model, parent)


def test_fixed_joints_are_merged(monkeypatch):
    """A model that keeps them apart gives the same mechanism as one that has merged them when it was built."""
    robot = msgspec.structs.replace(robots.load("franka"), added_inertia={})  # which is added to what is merged
    merged = mechanism(articulation(robot), robot)
    monkeypatch.setattr(import_module("neurodyn.sim.newton.build"), "_READ", {})  # read and merged already
    for step in ("_collapse", "_check_bodies", "_verify"):  # unmerged, it has bodies without mass, which are refused
        monkeypatch.setattr(import_module("neurodyn.sim.newton.build"), step, lambda *_: None)
    model = build(robot)
    assert model.body_count > 7
    apart = mechanism(newton_articulation(model, robot), robot)
    assert len(apart.links) == 7
    for one, other in zip(merged.links, apart.links, strict=True):
        assert one.mass == pytest.approx(other.mass, rel=1e-5)
        np.testing.assert_allclose(one.com, other.com, atol=1e-6)
        np.testing.assert_allclose(one.inertia, other.inertia, atol=1e-5 * max(one.inertia))
        np.testing.assert_allclose(one.joint.parent_frame, other.joint.parent_frame, atol=1e-6)


def by_mujoco(model, found, q, qd, torque):
    """Return MuJoCo's accelerations without contacts and limits, in Newton's coordinates."""
    import mujoco

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solver = newton.solvers.SolverMuJoCo(model, use_mujoco_cpu=True, disable_contacts=True)
    spec, data = solver.mj_model, solver.mj_data
    spec.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    q, qd, torque = q.copy(), qd.copy(), torque.copy()
    free = found.links[0].joint.kind == "free"
    c = np.array(found.links[0].com)
    if free:  # MuJoCo: velocity of the origin in world axes, angular velocity in body axes, scalar first
        turn, spin = reference.matrix(q[3:7]), qd[3:6].copy()
        q[3:7] = q[[6, 3, 4, 5]]
        qd[:3] -= np.cross(spin, turn @ c)
        qd[3:6] = turn.T @ spin
        torque[3:6] = turn.T @ (torque[3:6] + np.cross(turn @ c, torque[:3]))
    data.qpos[:], data.qvel[:], data.qfrc_applied[:] = q, qd, torque
    mujoco.mj_forward(spec, data)
    a = data.qacc.copy()
    if free:
        angular = turn @ a[3:6]
        a[:3] += np.cross(angular, turn @ c) + np.cross(spin, np.cross(spin, turn @ c))
        a[3:6] = angular
    return a, spec.dof_damping.copy()


def test_accelerations_are_those_of_mujoco(built):
    _, model, found = built
    tree = Tree(found, found.quantities().__getitem__)
    rng = np.random.default_rng(0)
    for _ in range(3):
        q, qd, torque = random_motion(rng, found)
        expected, damping = by_mujoco(model, found, q, qd, torque)
        given = (torque - damping * qd).tolist()
        mine = tree.accelerations(tree.motions(q.tolist(), qd.tolist()), q.tolist(), given)
        assert np.abs(np.array(mine) - expected).max() < 2e-6 * np.abs(expected).max()


def test_passive_quantities_are_the_declared(cartpole):
    model = build(cartpole)
    found = mechanism(newton_articulation(model, cartpole), cartpole)
    slider, pole = found.links
    assert slider.armature == pytest.approx(0.01)
    assert (slider.lower, slider.upper) == (-4.0, 4.0)
    assert (slider.limit_stiffness, slider.limit_damping) == (1e4, 10.0)
    assert (pole.damping, pole.friction, pole.stiffness) == (0.0, 0.0, 0.0)
    np.testing.assert_allclose(found.gravity, (0.0, 0.0, -9.81), rtol=1e-6)


def test_free_motion_of_franka_is_its_simulators_frame():
    """Against SolverFeatherstone in single precision, without gravity, contacts and limits.

    They agree to 1e-4 of the largest change of a position or velocity in the frame.
    """
    robot = robots.load("franka")
    worlds = 4
    simulator = ReferenceSimulator(robot, worlds, substeps=robot.simulator.substeps, capture=False)
    found = mechanism(newton_articulation(simulator.model, robot), robot)
    motion = FreeMotion(found, robot.spec.control_dofs, robot.dt, simulator.substeps)
    generator = torch.Generator().manual_seed(0)
    q = 0.8 * torch.randn(worlds, found.nq, generator=generator)
    qd = 0.5 * torch.randn(worlds, found.nv, generator=generator)
    torque = 5.0 * torch.randn(worlds, len(robot.actuated), generator=generator)
    mine = motion(q, qd, torque, torch.tensor(found.gravity))
    for before, expected, after in zip((q, qd), simulator.step(q, qd, torque), mine, strict=True):
        assert (after - expected).abs().max() < 1e-4 * (expected - before).abs().max()
