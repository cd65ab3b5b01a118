# SPDX-License-Identifier: Apache-2.0
"""Accelerations against a mass matrix and a bias force found in another way, against Pinocchio, and against laws."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from neurodyn.core.description.contacts import ChainJoint
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.trace import Graph, pull_back
from tests.multibody import reference
from tests.multibody.reference import Configuration, close, euler, random_mechanism, random_motion, trees
from tests.multibody.trace.interpreter import differences, evaluate

IDENTITY = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
ALL_KINDS = (("free", "ball", "prismatic", "revolute", "revolute"), (-1, 0, 1, 2, 0))


def tree_of(mechanism, **quantities):
    return Tree(mechanism, {**mechanism.quantities(), **quantities}.__getitem__)


def accelerations(mechanism, q, qd, torque, wrenches=None):
    tree = tree_of(mechanism)
    q, qd, torque = (np.asarray(x, dtype=float).tolist() for x in (q, qd, torque))
    return np.array(tree.accelerations(tree.motions(q, qd), q, torque, wrenches))


def error(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


@settings(derandomize=True, max_examples=60, deadline=None)
@given(trees())
def test_trees_at_random_obey_the_equations_of_motion(tree):
    kinds, parents, seed = tree
    rng = np.random.default_rng(seed)
    mechanism = random_mechanism(rng, kinds, parents)
    q, qd, torque = random_motion(rng, mechanism)
    found = accelerations(mechanism, q, qd, torque)
    assert error(found, reference.accelerations(mechanism, q, qd, torque)) < 1e-6
    # The same the other way round, without a solution: M qdd + h = tau.
    inertial, h = Configuration(mechanism, q).mass_matrix() @ found, reference.bias(mechanism, q, qd)
    close(inertial + h, torque, atol=1e-7 * max(np.abs(h).max(), np.abs(torque).max()))


def test_accelerations_are_those_of_newtons_conventions_of_a_free_joint():
    """A force acts at the centre of mass, a moment turns about it, both along the axes of the joint's base."""
    rng = np.random.default_rng(1)
    mechanism = random_mechanism(rng, ["free"], [-1], gravity=(0.0, 0.0, 0.0))
    link = mechanism.links[0]
    base = reference.matrix(link.joint.parent_frame[3:])
    q = np.array([0.3, -0.2, 0.5, *reference.unit(rng, 4)])
    force, moment = rng.normal(size=3), rng.normal(size=3)
    pushed = accelerations(mechanism, q, np.zeros(6), [*force, 0, 0, 0])
    close(pushed, [*(force / link.mass), 0, 0, 0], atol=1e-12)
    turned = accelerations(mechanism, q, np.zeros(6), [0, 0, 0, *moment])
    inertia = base.T @ Configuration(mechanism, q).inertia(0) @ base
    close(turned, [0, 0, 0, *np.linalg.solve(inertia, moment)], atol=1e-12)


def test_everything_falls_alike_in_free_fall():
    rng = np.random.default_rng(2)
    gravity = (3.0, -1.0, -9.0)
    mechanism = random_mechanism(rng, *ALL_KINDS, gravity=gravity)
    q, _, _ = random_motion(rng, mechanism)
    found = accelerations(mechanism, q, np.zeros(mechanism.nv), np.zeros(mechanism.nv))
    base = reference.matrix(mechanism.links[0].joint.parent_frame[3:])
    close(found, [*(base.T @ gravity), *np.zeros(mechanism.nv - 3)], atol=1e-11)


def test_gravity_turns_with_the_mechanism():
    """Turning gravity and the base by the same rotation changes nothing that is relative."""
    rng = np.random.default_rng(3)
    mechanism = random_mechanism(rng, ("revolute", "ball", "prismatic"), (-1, 0, 1))
    q, qd, torque = random_motion(rng, mechanism)
    quaternion = reference.unit(rng, 4)
    turn, first = reference.matrix(quaternion), mechanism.links[0]
    frame = first.joint.parent_frame
    turned_frame = (*(turn @ frame[:3]), *reference.multiply(quaternion, np.array(frame[3:])))
    joint = msgspec.structs.replace(first.joint, parent_frame=tuple(float(x) for x in turned_frame))
    other = Mechanism(
        links=(msgspec.structs.replace(first, joint=joint), *mechanism.links[1:]),
        gravity=tuple(float(x) for x in turn @ mechanism.gravity),
    )
    found = accelerations(mechanism, q, qd, torque)
    close(accelerations(other, q, qd, torque), found, rtol=1e-10, atol=1e-10)
    weightless = msgspec.structs.replace(mechanism, gravity=(0.0, 0.0, 0.0))
    assert error(accelerations(weightless, q, qd, torque), found) > 0.01


def test_external_wrenches_act_through_their_jacobians():
    rng = np.random.default_rng(4)
    mechanism = random_mechanism(rng, *ALL_KINDS)
    q, qd, torque = random_motion(rng, mechanism)
    at = Configuration(mechanism, q)
    wrenches, pushed = {}, torque.copy()
    for index in (0, 2, 4):
        moment, force = rng.normal(size=3), rng.normal(size=3)
        wrenches[index] = (moment.tolist(), force.tolist())
        child, origin = reference.pose(mechanism.links[index].joint.child_frame)
        turn, place = at.turns[index] @ child, at.origins[index] + at.turns[index] @ origin
        pushed += at.point(index, place).T @ turn @ force + at.spin_jacobians[index].T @ turn @ moment
    found = accelerations(mechanism, q, qd, torque, wrenches)
    assert error(found, reference.accelerations(mechanism, q, qd, pushed)) < 1e-7


def test_armature_adds_to_the_joints_own_inertia():
    rng = np.random.default_rng(5)
    mechanism = random_mechanism(rng, ("revolute", "prismatic", "ball"), (-1, 0, 1))
    q, qd, torque = random_motion(rng, mechanism)
    heavy = Mechanism(
        links=tuple(msgspec.structs.replace(link, armature=link.armature + 2.0) for link in mechanism.links),
        gravity=mechanism.gravity,
    )
    m, h = Configuration(mechanism, q).mass_matrix(), reference.bias(mechanism, q, qd)
    expected = np.linalg.solve(m + 2.0 * np.eye(5), torque - h)
    assert error(accelerations(heavy, q, qd, torque), expected) < 1e-7


def test_links_are_and_move_where_jacobians_say():
    rng = np.random.default_rng(12)
    mechanism = random_mechanism(rng, *ALL_KINDS)
    q, qd, _ = random_motion(rng, mechanism)
    at, turns, places = Configuration(mechanism, q), [], []
    for index, motion in enumerate(tree_of(mechanism).motions(q.tolist(), qd.tolist())):
        parent = mechanism.links[index].joint.parent
        turn, place = (np.eye(3), np.zeros(3)) if parent < 0 else (turns[parent], places[parent])
        turns.append(turn @ np.array(motion.rotation))
        places.append(place + turn @ np.array(motion.offset))
        child, origin = reference.pose(mechanism.links[index].joint.child_frame)
        close(turns[index], at.turns[index] @ child, atol=1e-12)
        close(places[index], at.origins[index] + at.turns[index] @ origin, atol=1e-12)
        close(turns[index] @ motion.spin, at.spin_jacobians[index] @ qd, atol=1e-12)
        velocity = at.point(index, places[index]) @ qd
        close(turns[index] @ motion.velocity, velocity, atol=1e-12)


@pytest.mark.parametrize("kind", ["revolute", "prismatic"])
def test_the_length_of_an_axis_means_nothing(kind):
    """Where an axis is identified, its three numbers are free."""
    rng = np.random.default_rng(13)
    mechanism = random_mechanism(rng, (kind,), (-1,))
    q, qd, torque = (x.tolist() for x in random_motion(rng, mechanism))
    long = {f"{kind}0.axis.{part}": 3.0 * mechanism.quantities()[f"{kind}0.axis.{part}"] for part in "xyz"}
    graph = Graph()
    traced = {name: graph.input("x", i) for i, name in enumerate(long)}
    expected = accelerations(mechanism, q, qd, torque)
    for axis in (long, traced):
        tree = tree_of(mechanism, **axis)
        found = tree.accelerations(tree.motions(q, qd), q, torque)
        values = evaluate(found, {"x": list(long.values())}) if axis is traced else found
        close(values, expected, rtol=1e-12)


# --- conservation --------------------------------------------------------------------------------------------------
def drift(mechanism, q, qd, dt, duration=0.2):
    """Return how far energy and momentum have gone after a roll-out without forces."""
    before = conserved(mechanism, q, qd)
    tree, q, qd = tree_of(mechanism), q.tolist(), qd.tolist()
    for _ in range(round(duration / dt)):
        rate = tree.accelerations(tree.motions(q, qd), q, [0.0] * mechanism.nv)
        q, qd = euler(tree, q, qd, rate, dt)
    return np.abs(conserved(mechanism, np.array(q), np.array(qd)) - before)


def conserved(mechanism, q, qd):
    at = Configuration(mechanism, q)
    linear, angular = at.momentum(qd)
    return np.array([sum(at.energy(qd)), *linear, *angular])


def test_a_torque_free_spin_keeps_energy_and_momentum():
    """An asymmetric body spins about no principal axis; its centre of mass is off its frame's origin."""
    rng = np.random.default_rng(6)
    mechanism = random_mechanism(rng, ["free"], [-1], gravity=(0.0, 0.0, 0.0))
    q, qd = random_motion(rng, mechanism)[0], np.array([0.3, -0.2, 0.1, 2.0, -3.0, 1.0])
    coarse, fine = (drift(mechanism, q, qd, dt) for dt in (2e-3, 5e-4))
    scale = np.abs(conserved(mechanism, q, qd)).max()
    assert coarse.max() < 1e-2 * scale
    assert coarse.max() > 1e-7 * scale  # there is something that converges
    assert fine.max() < 0.3 * coarse.max()
    close(fine[1:4], 0.0, atol=1e-12)


def test_a_floating_tree_without_forces_keeps_energy_and_momentum():
    rng = np.random.default_rng(7)
    mechanism = random_mechanism(rng, *ALL_KINDS, gravity=(0.0, 0.0, 0.0))
    q, qd, _ = random_motion(rng, mechanism)
    coarse, fine = (drift(mechanism, q, qd, dt, duration=0.1) for dt in (4e-3, 1e-3))
    scale = np.abs(conserved(mechanism, q, qd)).max()
    assert coarse.max() < 0.1 * scale
    assert fine.max() < 0.35 * coarse.max()


def test_a_falling_chain_keeps_its_energy():
    rng = np.random.default_rng(8)
    mechanism = random_mechanism(rng, ("revolute", "ball", "revolute"), (-1, 0, 1))
    q, qd, _ = random_motion(rng, mechanism)
    coarse, fine = (drift(mechanism, q, 0.3 * qd, dt, duration=0.1)[0] for dt in (2e-3, 5e-4))
    assert 0 < fine < 0.35 * coarse


# --- traced --------------------------------------------------------------------------------------------------------
def test_traced_accelerations_and_their_gradients_by_everything():
    rng = np.random.default_rng(9)
    mechanism = random_mechanism(rng, *ALL_KINDS)
    q, qd, torque = (x.tolist() for x in random_motion(rng, mechanism))
    nominal = mechanism.quantities()
    names = [name for name in nominal if "limit" not in name]
    parts = [len(q), len(qd), len(torque), len(names)]
    seeds = rng.normal(size=mechanism.nv).tolist()

    def outputs(values):
        q, qd, torque, given = (list(values[sum(parts[:i]) : sum(parts[: i + 1])]) for i in range(4))
        tree = tree_of(mechanism, **dict(zip(names, given, strict=True)))
        return tree.accelerations(tree.motions(q, qd), q, torque)

    point = [*q, *qd, *torque, *(nominal[name] for name in names)]
    graph = Graph()
    inputs = graph.inputs("x", len(point))
    traced = outputs(inputs)
    close(evaluate(traced, {"x": point}), outputs(point), rtol=1e-10)
    gradient = evaluate(pull_back(traced, seeds, inputs), {"x": point})
    expected = differences(lambda *x: float(np.dot(seeds, outputs(x))), point)
    close(gradient, expected, rtol=1e-5, atol=2e-6 * np.abs(expected).max())
    by_name = dict(zip(names, gradient[-len(names) :], strict=True))
    for name in ("free0.mass", "ball1.com.y", "revolute3.inertia.xy", "revolute4.origin.z", "prismatic2.axis.x"):
        assert by_name[name] != 0.0


# --- Pinocchio -----------------------------------------------------------------------------------------------------
def pose_of(placement):
    pin = pytest.importorskip("pinocchio")
    return tuple(float(x) for x in pin.SE3ToXYZQUAT(placement))


def from_pinocchio(pin, model):
    """Return a mechanism of Pinocchio's own model (which has merged what is fixed): frames at the joints."""
    data = model.createData()
    pin.computeJointJacobians(model, data, pin.neutral(model))
    links = []
    for index in range(1, model.njoints):
        free = model.joints[index].shortname() == "JointModelFreeFlyer"
        column = pin.getJointJacobian(model, data, index, pin.LOCAL)[:, model.joints[index].idx_v]
        revolute = np.abs(column[3:]).max() > 0.5
        joint = ChainJoint(
            name=model.names[index],
            kind="free" if free else "revolute" if revolute else "prismatic",
            parent=int(model.parents[index]) - 1,
            parent_frame=pose_of(model.jointPlacements[index]),
            child_frame=IDENTITY,
            axis=(0.0, 0.0, 0.0) if free else tuple(float(x) for x in (column[3:] if revolute else column[:3])),
        )
        body = model.inertias[index]
        inertia = tuple(float(body.inertia[i, j]) for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)))
        links.append(Link(joint=joint, mass=float(body.mass), com=tuple(map(float, body.lever)), inertia=inertia))
    return Mechanism(links=tuple(links), gravity=tuple(map(float, model.gravity.linear)))


def to_pinocchio(pin, mechanism):
    """Return a model of Pinocchio, whose bodies have the frames of their joints."""

    def placed(frame):
        return pin.XYZQUATToSE3(np.array(frame))

    model, back = pin.Model(), [pin.SE3.Identity()]
    model.gravity.linear = np.array(mechanism.gravity)
    for link in mechanism.links:
        joint, child = link.joint, placed(link.joint.child_frame).inverse()
        kinds = {
            "revolute": lambda axis: pin.JointModelRevoluteUnaligned(axis),
            "prismatic": lambda axis: pin.JointModelPrismaticUnaligned(axis),
            "screw": lambda axis, pitch=joint.pitch: pin.JointModelHelicalUnaligned(axis, pitch),
            "ball": lambda axis: pin.JointModelSpherical(),
            "free": lambda axis: pin.JointModelFreeFlyer(),
        }
        number = model.addJoint(
            joint.parent + 1,
            kinds[joint.kind](np.array(joint.axis)),
            back[joint.parent + 1] * placed(joint.parent_frame),
            joint.name,
        )
        xx, yy, zz, xy, xz, yz = link.inertia
        body = pin.Inertia(link.mass, np.array(link.com), np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))
        model.appendBodyToJoint(number, body, child)
        model.armature[model.joints[number].idx_v : model.joints[number].idx_v + model.joints[number].nv] = (
            link.armature
        )
        back.append(child)
    return model


def by_pinocchio(pin, model, mechanism, q, qd, torque):
    """Return Pinocchio's accelerations in Newton's coordinates; a floating base is the first joint."""
    if model.nq != mechanism.nq:  # a joint without limits is a cosine and a sine there
        unbounded = [model.joints[i].nq == 2 for i in range(1, model.njoints)]
        first = 7 if mechanism.links[0].joint.kind == "free" else 0
        parts = [[q[i]] for i in range(mechanism.nq)]
        for number, joint in enumerate(unbounded[1:] if first else unbounded):
            if joint:
                parts[first + number] = [np.cos(q[first + number]), np.sin(q[first + number])]
        q = np.concatenate(parts)
    data = model.createData()
    if mechanism.links[0].joint.kind != "free":
        return np.array(pin.aba(model, data, q, qd, torque))
    # Pinocchio has velocities, accelerations and forces of the base in its axes and about its origin.
    turn = reference.matrix(q[3:7])
    child, shift = reference.pose(mechanism.links[0].joint.child_frame)
    c = child.T @ (np.array(mechanism.links[0].com) - shift)
    spin = turn.T @ qd[3:6]
    velocity = turn.T @ qd[:3] - np.cross(spin, c)
    force = turn.T @ torque[:3]
    moment = turn.T @ torque[3:6] + np.cross(c, force)
    found = np.array(pin.aba(model, data, q, np.r_[velocity, spin, qd[6:]], np.r_[force, moment, torque[6:]]))
    angular = found[3:6]
    centre = found[:3] + np.cross(spin, velocity) + np.cross(angular, c) + np.cross(spin, np.cross(spin, c))
    return np.r_[turn @ centre, turn @ angular, found[6:]]


@pytest.mark.parametrize(
    ("robot", "floating", "joints"),
    [
        ("panda_description/urdf/panda.urdf", False, 9),
        ("a1_description/urdf/a1.urdf", True, 12),
        ("anymal_c_simple_description/urdf/anymal.urdf", True, 12),
    ],
)
def test_robots_accelerate_as_in_pinocchio(robot, floating, joints):
    pin = pytest.importorskip("pinocchio")
    path = robot_file(robot)
    model = pin.buildModelFromUrdf(str(path), *([pin.JointModelFreeFlyer()] if floating else []))
    mechanism = from_pinocchio(pin, model)
    assert len(mechanism.links) == joints + floating
    rng = np.random.default_rng(10)
    for _ in range(3):
        q, qd, torque = random_motion(rng, mechanism)
        found = accelerations(mechanism, q, qd, torque)
        assert error(found, by_pinocchio(pin, model, mechanism, q, qd, torque)) < 1e-6


@pytest.mark.parametrize(
    ("kinds", "parents"),
    [(("revolute", "revolute"), (-1, 0)), (("free", "revolute", "prismatic", "revolute"), (-1, 0, 1, 0))],
)
def test_off_centre_masses_and_turned_frames_accelerate_as_in_pinocchio(kinds, parents):
    pin = pytest.importorskip("pinocchio")
    rng = np.random.default_rng(11)
    for _ in range(5):
        mechanism = random_mechanism(rng, kinds, parents)
        if kinds[0] == "free":  # Newton's axes are those of the joint's base, Pinocchio's are the world's
            first = mechanism.links[0]
            joint = msgspec.structs.replace(first.joint, parent_frame=IDENTITY)
            mechanism = Mechanism(
                links=(msgspec.structs.replace(first, joint=joint), *mechanism.links[1:]), gravity=mechanism.gravity
            )
        q, qd, torque = random_motion(rng, mechanism)
        found = accelerations(mechanism, q, qd, torque)
        expected = by_pinocchio(pin, to_pinocchio(pin, mechanism), mechanism, q, qd, torque)
        assert error(found, expected) < 1e-9


def robot_file(name):
    """Return a file of the package example-robot-data."""
    from importlib.metadata import PackageNotFoundError, files

    try:
        found = [path for path in files("example-robot-data") or () if str(path).endswith(f"robots/{name}")]
    except PackageNotFoundError:
        found = []
    if not found:
        pytest.skip("example-robot-data is not installed")
    return found[0].locate()
