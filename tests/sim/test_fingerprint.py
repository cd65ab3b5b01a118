# SPDX-License-Identifier: Apache-2.0
"""The fingerprint is of the mechanism, whoever built it and under whatever labels."""

import newton
import numpy as np
import pytest

from neurodyn import robots, sim
from neurodyn.robots import asset_path
from neurodyn.sim.newton.fingerprints import columns, fingerprint


def own_cartpole(cartpole, *, collapse=False, mass=None, xform=None, label=None, worlds=2):
    """Build the cartpole as a user would, without the library."""
    builder = newton.ModelBuilder()
    builder.add_urdf(str(asset_path(cartpole)), floating=False, collapse_fixed_joints=collapse, xform=xform)
    for index, name in enumerate(builder.joint_label):
        if name.endswith(("slider", "hinge")):
            builder.joint_armature[builder.joint_qd_start[index]] = 0.01
    if mass:
        builder.body_mass[-1] = mass
    scene = newton.ModelBuilder()
    scene.replicate(builder, copy_count=worlds, label_prefixes=[label] * worlds if label else None)
    return scene.finalize(device="cpu")


@pytest.mark.parametrize("collapse", [True, False])
def test_a_model_built_by_hand_has_the_same_fingerprint(cartpole, collapse):
    declared = fingerprint(sim.build(cartpole, 3))
    found = fingerprint(own_cartpole(cartpole, collapse=collapse, label="lab/robot_a"))
    assert declared.differences(found) == []
    joints = fingerprint(own_cartpole(cartpole, collapse=collapse)).joints
    assert [joint.name for joint in joints] == ["slider", "hinge"]


def test_a_changed_mass_is_named(cartpole):
    found = fingerprint(own_cartpole(cartpole, mass=3.0))
    assert fingerprint(sim.build(cartpole)).differences(found) == ["mass of body 'pole' is 3 instead of 2.5"]


def test_place_and_heading_do_not_count_but_a_tilt_does(cartpole):
    declared = fingerprint(sim.build(cartpole))
    half = 0.5**0.5
    moved = own_cartpole(cartpole, xform=(1.0, 2.0, 3.0, 0.0, 0.0, half, half))
    assert declared.differences(fingerprint(moved)) == []
    tilted = own_cartpole(cartpole, xform=(0.0, 0.0, 0.0, 0.0, 0.1, 0.0, 0.995))
    assert any("parent pose of joint 'slider'" in line for line in declared.differences(fingerprint(tilted)))


def test_robots_of_other_designs_differ():
    c1, a0 = (fingerprint(sim.build(robots.load(name))) for name in ("dfki-c1", "dfki-a0"))
    lines = c1.differences(a0)
    assert any("parent pose of joint 'elbow'" in line for line in lines)


def test_gravity_is_part_of_it(cartpole):
    lines = fingerprint(sim.build(cartpole)).differences(fingerprint(sim.build(cartpole, gravity=[0, 0, -1.6])))
    assert len(lines) == 1
    assert lines[0].startswith("gravity is [0 0 -1.6] instead of")


def test_columns_are_those_of_the_joints(cartpole):
    assert columns(sim.build(cartpole, 3)) == ([0, 1], [0, 1])
    assert columns(own_cartpole(cartpole)) == ([0, 1], [0, 1])


def test_the_robot_is_found_among_other_things_in_its_world(cartpole):
    builder = newton.ModelBuilder()
    ball = builder.add_body(label="ball")
    builder.add_shape_sphere(ball, radius=0.1)
    builder.add_builder(sim.build_world(cartpole))
    scene = newton.ModelBuilder()
    scene.replicate(builder, copy_count=2)
    model = scene.finalize(device="cpu")
    names = ("slider", "hinge")
    assert columns(model, names) == ([7, 8], [6, 7])
    assert fingerprint(sim.build(cartpole)).differences(fingerprint(model, names)) == []
    assert fingerprint(model).joints[0].kind == "free"


def test_fixed_bodies_count_as_one_with_steiner():
    def body(name, mass, x):
        inertia = '<inertia ixx="0.1" iyy="0.2" izz="0.3" ixy="0" ixz="0" iyz="0"/>'
        return f'<link name="{name}"><inertial><mass value="{mass}"/><origin xyz="{x} 0 0"/>{inertia}</inertial></link>'

    def joint(name, kind, parent, child, origin):
        return (
            f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
            f'<origin xyz="{origin}" rpy="0 0 1.2"/><axis xyz="0 0 1"/></joint>'
        )

    text = (
        '<robot name="r"><link name="base"/>' + body("a", 1, 0.1) + body("b", 2, 0.2) + body("c", 1, 0)
        + joint("j", "continuous", "base", "a", "0 0 0") + joint("weld", "fixed", "a", "b", "0 1 0")
        + joint("k", "continuous", "b", "c", "0 0 1") + "</robot>"
    )  # fmt: skip
    builder = newton.ModelBuilder()
    builder.add_urdf(text, floating=False)
    found = fingerprint(builder.finalize(device="cpu"))
    assert [b.name for b in found.bodies] == ["a", "c"]
    a = found.bodies[0]
    assert a.mass == pytest.approx(3)
    # b's centre is 0.2 m along an axis turned by 1.2 rad, from a point 1 m beside a's frame.
    centre_b = np.array([0.2 * np.cos(1.2), 1 + 0.2 * np.sin(1.2)])
    centre_a = np.array([0.1, 0.0])
    np.testing.assert_allclose(a.com[:2], (centre_a + 2 * centre_b) / 3, rtol=1e-5)
    apart = centre_b - centre_a
    assert a.inertia[8] == pytest.approx(0.6 + 2 / 3 * apart @ apart, rel=1e-5)
