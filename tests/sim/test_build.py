# SPDX-License-Identifier: Apache-2.0
"""Declared robots become Newton models, or one line says why not."""

import sys
import warnings

import msgspec
import numpy as np
import pytest
import warp as wp

from neurodyn import robots, sim
from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError, Notice
from neurodyn.core.workers import FORWARD_ONLY
from neurodyn.robots import Robot
from neurodyn.sim.engine import import_newton, solver_class
from neurodyn.sim.newton.build import build_world

INERTIA = '<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/>'
LINK = '<link name="{}"><inertial><mass value="1"/>' + INERTIA + "</inertial></link>"
JOINT = (
    '<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
    '<axis xyz="1 0 0"/>{more}</joint>'
)


def write_robot(tmp_path, joints: str, declared=None, **change) -> Robot:
    links = "".join(LINK.format(name) for name in ("base", "one", "two"))
    (tmp_path / "own.urdf").write_text(f'<robot name="own">{links}{joints}</robot>')
    data = {
        "name": "own",
        "asset": "own.urdf",
        "joints": declared or [{"name": "a", "kind": "revolute"}, {"name": "b", "kind": "revolute"}],
        "actuated": {"a": 1.0},
        "dt": 0.01,
        **change,
    }
    return from_dict(data, Robot).locate(tmp_path)


def chain(kind="revolute", second="revolute", more="") -> str:
    limit = '<limit lower="-1" upper="1" effort="1" velocity="1"/>'
    first = JOINT.format(name="a", kind=kind, parent="base", child="one", more=limit)
    return first + JOINT.format(name="b", kind=second, parent="one", child="two", more=limit + more)


def test_cartpole_is_built_as_declared(cartpole):
    model = sim.build(cartpole, 3)
    assert model.world_count == 3
    assert [label.rsplit("/")[-1] for label in model.joint_label] == ["slider", "hinge"] * 3
    np.testing.assert_allclose(model.joint_armature.numpy(), 0.01)
    np.testing.assert_allclose(model.joint_limit_upper.numpy()[:2], [4.0, 1e10])
    np.testing.assert_allclose(model.joint_limit_ke.numpy()[0], 1e4)
    np.testing.assert_allclose(model.joint_limit_kd.numpy()[0], 10.0)
    np.testing.assert_allclose(model.body_mass.numpy()[:2], [50.0, 2.5])
    np.testing.assert_allclose(model.gravity.numpy()[0], [0, 0, -9.81], rtol=1e-6)


def test_gravity_can_be_given_for_all_worlds_or_for_each(cartpole):
    np.testing.assert_allclose(sim.build(cartpole, 2, gravity=[0, 0, -1]).gravity.numpy()[:2, 2], -1)
    each = np.array([[0, 0, -1.0], [0, 0, -2.0]])
    np.testing.assert_allclose(sim.build(cartpole, 2, gravity=each.ravel()).gravity.numpy()[:2], each)


def test_mjcf_drives_by_torque_alone_and_welds_locked_joints(arm):
    model = sim.build(arm)
    assert [label.rsplit("/")[-1] for label in model.joint_label] == ["rail", "swing"]
    np.testing.assert_allclose(model.joint_target_ke.numpy(), 0.0)
    np.testing.assert_allclose(model.body_mass.numpy(), [2.0, 0.6])
    # Rod of 0.5 kg with its centre at 0.2 m, finger of 0.1 kg at 0.4 m: the welded pair turns about 0.2333 m.
    np.testing.assert_allclose(model.body_com.numpy()[1], [0, 0, (0.5 * 0.2 + 0.1 * 0.4) / 0.6], atol=1e-6)
    capsule, ball = _capsule_inertia(0.5, 0.02, 0.4), 0.4 * 0.1 * 0.02**2
    expected = capsule + ball + 0.5 * 0.1 / 0.6 * 0.2**2
    np.testing.assert_allclose(model.body_inertia.numpy()[1, 1, 1], expected, rtol=1e-4)


def _capsule_inertia(mass: float, radius: float, length: float) -> float:
    """Return the inertia of a solid capsule about an axis across it, through its centre."""
    cylinder, ball = np.pi * radius**2 * length, 4 / 3 * np.pi * radius**3
    density = mass / (cylinder + ball)
    across = cylinder * (length**2 / 12 + radius**2 / 4)
    ends = ball * (0.4 * radius**2 + length**2 / 4 + 3 / 8 * length * radius)
    return density * (across + ends)


def test_damping_of_the_declaration_replaces_that_of_the_asset(tmp_path):
    declared = [{"name": "a", "kind": "revolute", "damping": 0.5}, {"name": "b", "kind": "revolute"}]
    joints = chain(more='<dynamics damping="0.25"/>')
    model = sim.build(write_robot(tmp_path, joints, declared))
    np.testing.assert_allclose(model.joint_damping.numpy(), [0.5, 0.25])


@pytest.mark.parametrize("kind", ["planar", "floating", "screw", ""])
def test_unsupported_joint_is_named(tmp_path, kind):
    with pytest.raises(InputError, match=f"joint 'b' has the unsupported type '{kind}'; valid: continuous, fixed"):
        sim.build(write_robot(tmp_path, chain(second=kind)))


BROKEN = {
    "mimic": (chain(more='<mimic joint="a"/>'), {}, "mimics another one"),
    "other order": (
        chain(),
        {"declared": [{"name": "b", "kind": "revolute"}, {"name": "a", "kind": "revolute"}]},
        "order",
    ),
    "undeclared joint": (chain(), {"declared": [{"name": "a", "kind": "revolute"}]}, "or under `locked`"),
    "other kind": (chain(kind="prismatic"), {}, "own.urdf has the moving joints a (prismatic), b"),
    "unknown locked joint": (chain(), {"locked": ["c"]}, "locked joint 'c' does not exist; valid: a, b"),
    "no axis": (chain().replace('xyz="1 0 0"', 'xyz="0 0 0"'), {}, "axis of joint 'a' is '0 0 0'"),
    "unknown link": (chain().replace('child link="two"', 'child link="three"'), {}, "unknown link 'three'"),
    "no type": (chain().replace('name="a" type="revolute"', 'name="a"'), {}, "line 1: joint 'a' has no type; valid: "),
    "no XML": (chain() + "<", {}, "not readable as URDF"),
    "bad number": (chain().replace('lower="-1"', 'lower="left"'), {}, "left"),
    "loop": (chain() + JOINT.format(name="c", kind="fixed", parent="two", child="base", more=""), {}, "own.urdf"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_asset_is_one_line(tmp_path, case):
    joints, change, words = BROKEN[case]
    with pytest.raises(InputError) as caught:
        sim.build(write_robot(tmp_path, joints, **change))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_massless_moving_link_is_refused(tmp_path):
    robot = write_robot(tmp_path, chain())
    urdf = tmp_path / "own.urdf"
    urdf.write_text(urdf.read_text().replace(LINK.format("two"), '<link name="two"/>'))
    with pytest.raises(InputError, match="link 'two' moves but has no mass"):
        sim.build(robot)


def test_a_missing_mesh_is_left_out_with_a_notice(tmp_path):
    robot = write_robot(tmp_path, chain())
    urdf = tmp_path / "own.urdf"
    mesh = '<visual><geometry><mesh filename="package://own/none.stl"/></geometry></visual></link>'
    urdf.write_text(urdf.read_text().replace("</link>", mesh, 1))
    with pytest.warns(Notice, match=r"own\.urdf: left out: mesh 'package://own/none\.stl' does not exist"):
        assert sim.build(robot).joint_dof_count == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sim.build(msgspec.structs.replace(robot, meshes=False)).joint_dof_count == 2


def test_a_mesh_without_a_reader_is_left_out_with_a_notice(tmp_path, monkeypatch):
    robot = write_robot(tmp_path, chain())
    urdf = tmp_path / "own.urdf"
    (tmp_path / "shell.dae").write_text("")
    mesh = '<collision><geometry><mesh filename="shell.dae"/></geometry></collision></link>'
    urdf.write_text(urdf.read_text().replace("</link>", mesh, 1))
    monkeypatch.setattr("neurodyn.sim.asset_files.find_spec", lambda name: None if name == "collada" else name)
    with pytest.warns(Notice, match=r"mesh 'shell\.dae' needs pycollada: pip install 'neurodyn\[mujoco\]'"):
        assert sim.build(robot).shape_count == 0


@pytest.mark.parametrize(("included", "mesh"), [(False, "shell"), (True, "hull")])  # a notice is given once
def test_missing_meshes_of_an_mjcf_leave_primitives_and_inertials(tmp_path, included: bool, mesh: str):
    text = f"""<mujoco><compiler meshdir="meshes"/><asset><mesh file="{mesh}.stl"/></asset><worldbody><body>
        <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/><joint name="a"/><geom type="mesh" mesh="{mesh}"/>
        <geom type="sphere" size="0.1"/></body></worldbody></mujoco>"""
    (tmp_path / ("inner.xml" if included else "own.xml")).write_text(text)
    if included:
        (tmp_path / "own.xml").write_text('<mujoco><include file="inner.xml"/></mujoco>')
    data = {"name": "own", "asset": "own.xml", "joints": [{"name": "a", "kind": "revolute"}], "actuated": {"a": 1.0}}
    robot = from_dict({**data, "dt": 0.01}, Robot).locate(tmp_path)
    with pytest.warns(Notice, match=rf"own\.xml: left out: mesh '{mesh}\.stl' does not exist"):
        assert sim.build(robot).shape_count == 1


def test_robot_without_newton_names_the_extra(cartpole, monkeypatch):
    monkeypatch.delitem(sys.modules, "newton", raising=False)
    monkeypatch.setattr("builtins.__import__", _refusing(__import__))
    with pytest.raises(
        InputError, match=r"robot 'cartpole' \(solver: featherstone\) needs newton.*'neurodyn\[newton\]'"
    ):
        sim.build(cartpole)


def _refusing(original):
    def load(name, *arguments, **keywords):
        if name == "newton":
            raise ImportError("No module named 'newton'")
        return original(name, *arguments, **keywords)

    return load


def test_usd_without_its_reader_says_what_to_install(tmp_path, monkeypatch, cartpole):
    (tmp_path / "own.usda").write_text("#usda 1.0\n")
    monkeypatch.setitem(sys.modules, "pxr", None)
    robot = msgspec.structs.replace(cartpole, asset="own.usda", folder=str(tmp_path))
    with pytest.raises(InputError, match=r"pip install 'neurodyn\[usd\]'"):
        sim.build(robot)


def test_franka_has_its_arm_and_no_gravity():
    robot = robots.load("franka")
    if not robots.is_installed(robot):
        pytest.skip("the extra `robots` is not installed")
    model = sim.build(robot)
    assert [label.rsplit("/")[-1] for label in model.joint_label] == [f"panda_joint{i}" for i in range(1, 8)]
    assert model.body_mass.numpy()[-1] == pytest.approx(0.735522 + 0.73 + 2 * 0.015, rel=1e-3)
    np.testing.assert_allclose(model.gravity.numpy()[0], 0)
    assert (model.joint_limit_upper.numpy() > 1e9).all()


def test_links_without_mass_get_none_from_shapes_where_the_link_that_is_fixed_to_them_has_one(tmp_path):
    joints = JOINT.format(
        name="a", kind="revolute", parent="base", child="one", more='<limit effort="1" velocity="1"/>'
    )
    joints += JOINT.format(name="f", kind="fixed", parent="one", child="two", more="")
    robot = write_robot(tmp_path, joints, [{"name": "a", "kind": "revolute"}])
    urdf = tmp_path / "own.urdf"
    shell = '<collision><geometry><box size="1 1 1"/></geometry></collision>'
    urdf.write_text(urdf.read_text().replace(LINK.format("two"), f'<link name="two">{shell}</link>'))
    model = sim.build(robot)
    np.testing.assert_allclose(model.body_mass.numpy(), [1.0])
    np.testing.assert_allclose(model.body_inertia.numpy()[0], np.eye(3), atol=1e-6)


def test_floating_urdf_has_a_free_base(tmp_path):
    declared = [{"name": "root", "kind": "free"}, {"name": "a", "kind": "revolute"}, {"name": "b", "kind": "revolute"}]
    model = sim.build(write_robot(tmp_path, chain(), declared, fixed_base=False), 2)
    assert model.joint_coord_count == 2 * 9
    assert model.joint_dof_count == 2 * 8
    np.testing.assert_allclose(model.body_mass.numpy(), 1.0)


def test_ant_leaves_its_own_floor_out_and_meets_a_scene_without_margins():
    from neurodyn.core.description.scene import Plane, Scene

    ant = robots.load("ant")
    alone, scene = sim.build(ant), sim.build(ant, 2, scene=Scene(shapes=(Plane(),)))
    kinds = alone.shape_type.numpy()
    assert (alone.shape_body.numpy() >= 0).all()  # no shape stands still
    np.testing.assert_allclose(scene.body_mass.numpy()[:9], alone.body_mass.numpy(), rtol=1e-6)
    assert scene.shape_count == 2 * (len(kinds) + 1)
    np.testing.assert_allclose(scene.shape_margin.numpy(), 0.0)
    groups = scene.shape_collision_group.numpy()
    assert set(groups.tolist()) == {-1, 1}


@pytest.mark.parametrize(
    "text", ["<mujoco><worldbody><body><joint type='spiral'/></body></worldbody></mujoco>", "<robot/>", "", "<mujoco/>"]
)
def test_broken_mjcf_is_one_line(tmp_path, arm, text):
    (tmp_path / "arm.xml").write_text(text)
    robot = msgspec.structs.replace(arm, folder=str(tmp_path), locked=())
    with pytest.raises(InputError, match=r"arm\.xml") as caught:
        sim.build(robot)
    assert "\n" not in str(caught.value)


def test_only_the_declared_colliders_touch_the_ground():
    collide = int(import_newton().ShapeFlags.COLLIDE_SHAPES)
    robot = robots.load("ant")
    feet = msgspec.structs.replace(robot, colliders=("*_foot", "torso_geom"))
    for declared, count in ((robot, 13), (feet, 5)):
        builder = build_world(declared)
        assert sum(bool(flags & collide) for flags in builder.shape_flags) == count


def test_masses_scale_and_rotor_inertias_do_not():
    robot = robots.load("ant")
    light = build_world(robot)
    heavy = build_world(msgspec.structs.replace(robot, mass_scale=200.0))
    assert sum(heavy.body_mass) == pytest.approx(200 * sum(light.body_mass))
    np.testing.assert_allclose(heavy.body_inertia, 200 * np.array(light.body_inertia), rtol=1e-6)
    assert heavy.joint_armature == light.joint_armature


def test_densities_replace_those_of_an_mjcf_by_name_and_pattern():
    volume = {"sphere": 4 / 3 * np.pi * 0.25**3, "aux": np.pi * 0.08**2 * (np.hypot(0.2, 0.2) + 4 / 3 * 0.08)}
    masses = dict(zip(*_body_masses(robots.load("ant")), strict=True))
    assert masses["torso"] == pytest.approx(5 * volume["sphere"] + 4 * 1000 * volume["aux"], rel=1e-5)
    assert sum(masses.values()) == pytest.approx(117.05, abs=0.01)  # of the paper's ant
    lighter = msgspec.structs.replace(robots.load("ant"), densities={"*_leg_geom": 10.0})
    assert dict(zip(*_body_masses(lighter), strict=True))["torso"] == pytest.approx(96.77605 / 200, rel=1e-5)


def _body_masses(robot):
    builder = build_world(robot)
    return [label.rsplit("/", 1)[-1] for label in builder.body_label], builder.body_mass


def test_inertia_is_added_about_the_centre_of_mass_by_name_and_pattern(tmp_path, arm):
    plain = build_world(arm)
    links = [label.rsplit("/", 1)[-1] for label in plain.body_label]
    heavy = build_world(msgspec.structs.replace(arm, added_inertia={links[0]: 0.5, "*": 0.25}))
    extra = np.array(heavy.body_inertia).reshape(-1, 3, 3) - np.array(plain.body_inertia).reshape(-1, 3, 3)
    np.testing.assert_allclose(extra[0], 0.5 * np.eye(3), atol=1e-6)
    np.testing.assert_allclose(extra[1:], np.broadcast_to(0.25 * np.eye(3), extra[1:].shape), atol=1e-6)
    assert heavy.body_mass == plain.body_mass


def test_undeclared_limits_are_mujocos_own_in_every_format():
    for name in ("ant", "anymal-c"):
        robot = robots.load(name)
        solver = import_newton().solvers.SolverMuJoCo(sim.build(robot), disable_contacts=True)
        np.testing.assert_allclose(np.unique(solver.mjw_model.jnt_solref.numpy()[0, 1:], axis=0), [[0.02, 1.0]])


def test_solvers_are_compiled_with_adjoints_only_where_something_may_differentiate_through_them(monkeypatch):
    class Solvers:
        def __getattr__(self, name: str) -> bool:
            return wp.config.enable_backward

    pytest.importorskip("newton")
    monkeypatch.setattr(import_newton(), "solvers", Solvers())
    monkeypatch.setattr(wp.config, "enable_backward", True)
    monkeypatch.setenv(FORWARD_ONLY, "1")
    imported = solver_class.__wrapped__  # which is kept once it is imported
    assert not imported("SolverXPBD")
    assert wp.config.enable_backward
    monkeypatch.delenv(FORWARD_ONLY)
    assert imported("SolverXPBD")
