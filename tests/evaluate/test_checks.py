# SPDX-License-Identifier: Apache-2.0
"""Checks find what is wrong with a reference simulator, and their advice mends it."""

import json

import msgspec
import pytest

from neurodyn import robots
from neurodyn.core.errors import InputError
from neurodyn.evaluate import CHECKS, check
from neurodyn.evaluate.checks.findings import CheckFinding, CheckResult, RobotCheck, rate
from neurodyn.evaluate.requests import CheckRequest
from neurodyn.robots import Robot
from neurodyn.robots.sections import ContactMaterial
from neurodyn.sim import declare

pytest.importorskip("newton", reason="the extra `sim` is not installed")


def changed(robot: Robot, **joint: object) -> Robot:
    """The robot with other options for all joints of one degree of freedom."""
    joints = tuple(msgspec.structs.replace(one, **joint) if one.scalar else one for one in robot.joints)
    return msgspec.structs.replace(robot, joints=joints)


KNOWN = {"a1": ["joint_limits"], "go2": ["joint_limits"]}
"""Checks that robots fail: at full effort their light calves go far into MuJoCo's limits, where walking does not."""

LIKE_A1 = {"go2", "laikago"}
"""Robots that are checked on level ground alone: kernels of heightfields, compiled anew for each, are checked on a1."""


def simulated(robot: Robot, **options: object) -> Robot:
    return msgspec.structs.replace(robot, simulator=msgspec.structs.replace(robot.simulator, **options))


def found(result: RobotCheck, what: str) -> CheckFinding:
    return next(finding for finding in result.findings if finding.what.startswith(what))


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch):
    """Runs some of the checks alone."""

    def run(robot: Robot, *names: str, **options: int) -> RobotCheck:
        monkeypatch.setattr(CHECKS, "_entries", {name: CHECKS[name] for name in names})
        return check(robot, **{"worlds": 16, "frames": 40, **options})

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in robots.names() if robots.load(name).asset])
def test_robots_that_ship_can_be_learned_from(name):
    robot = robots.load(name)
    if not robots.is_installed(robot):
        pytest.skip("its asset is not installed")
    if robot.spec.control_kind == "velocity":
        pytest.skip("only hybrid dynamics move it")
    if name in LIKE_A1:
        level = {ground: scene for ground, scene in robot.grounds.items() if ground == robot.ground}
        robot = msgspec.structs.replace(robot, grounds=level)
    result = check(robot, worlds=4, frames=20)
    assert result.failed == KNOWN.get(name, []), [one for one in result.findings if one.verdict == "fails"]
    assert set(result.checks) == set(CHECKS)
    verdict = json.loads(json.dumps(result.plain(), allow_nan=False))["verdict"]
    assert verdict in (("fails",) if name in KNOWN else ("ok", "warning"))


@pytest.mark.slow
def test_limits_that_yield_for_a_second_are_found_and_the_advice_mends_them(only):
    """Limits of 2500 N m/rad are, in MuJoCo's terms of the ant's inertia, 20 times slower than its default."""
    ant = robots.load("ant")
    result = only(changed(ant, limit_ke=2500.0, limit_kd=100.0), "joint_limits", "random_control")
    assert result.failed == ["joint_limits", "random_control"]
    overshoot = found(result, "overshoot")
    assert overshoot.value is not None
    assert overshoot.value > 1.0
    assert "remove limit_ke and limit_kd" in overshoot.advice
    assert "remove limit_ke and limit_kd" in found(result, "worlds beyond plausible bounds").advice
    mended = only(ant, "joint_limits", "random_control")
    assert mended.verdict == "ok"
    assert (found(mended, "overshoot").value or 1.0) <= 0.15
    assert (found(mended, "greatest joint speed").value or 1e9) <= 100.0


def test_a_step_that_is_too_long_is_found_by_errors_and_energy_and_halving_helps(only):
    robot = msgspec.structs.replace(simulated(robots.load("dfki-c1"), substeps=1), dt=0.05)
    names = "convergence", "random_control", "passive_energy"
    coarse = only(robot, *names)
    assert coarse.failed == list(names)
    assert (
        "raise simulator.substeps from 1 to 2: error falls from" in found(coarse, "step error of motion, random").advice
    )
    fine = only(simulated(robot, substeps=16), *names)
    assert fine.failed == []
    assert (found(fine, "step error").value or 1e9) < 0.3 * (found(coarse, "step error").value or 0.0)


def test_a_limit_without_damping_bounces_and_the_advice_stops_it(only):
    cartpole = robots.load("cartpole")
    bounces = found(only(cartpole, "joint_limits"), "swing")
    assert bounces.verdict == "warning"
    assert "raise limit_kd of slider from 10 to about 1.4" in bounces.advice
    damped = tuple(
        msgspec.structs.replace(joint, limit_kd=1442.0) if joint.lower else joint for joint in cartpole.joints
    )
    assert found(only(msgspec.structs.replace(cartpole, joints=damped), "joint_limits"), "swing").verdict == "ok"


def test_a_ground_that_yields_is_found(only):
    cube = robots.load("cube")
    soft = msgspec.structs.replace(cube, material=ContactMaterial(friction=0.18, stiffness=1.0, damping=1.0))
    result = only(soft, "rest", worlds=4)
    assert result.failed == ["rest"]
    assert "raise material.stiffness" in found(result, "depth").advice


BALL = """<mujoco><option timestep=".002"/><worldbody><geom type="plane" size="9 9 1"/>
<body name="ball" pos="0 0 .2"><freejoint name="root"/><geom size=".1"/></body></worldbody></mujoco>"""


def test_a_ball_that_rolls_down_a_slope_does_not_jitter(only, tmp_path):
    (tmp_path / "ball.xml").write_text(BALL)
    robot = declare(tmp_path / "ball.xml", tmp_path / "ball").robot
    result = only(robot, "rest", worlds=4)
    slope = result.checks["rest"].figures.grounds["tilted"]
    assert slope.speed > 0.3
    assert slope.jitter < 0.1
    assert not result.failed


def test_a_base_that_starts_in_the_ground_is_a_row_that_says_so(only):
    cube = robots.load("cube")
    sunk = msgspec.structs.replace(cube, reset=msgspec.structs.replace(cube.reset, height=(0.0, 0.01)))
    result = only(sunk, "rest", "size", worlds=4)
    assert result.failed == ["rest"]
    assert "below the ground at reset" in result.findings[0].advice
    assert found(result, "contact points").value == 8


def test_a_declaration_against_its_asset_fails(only):
    anymal = robots.load("anymal-c")
    left_out = changed(anymal, lower=None, upper=None)
    strong = msgspec.structs.replace(anymal, actuated=dict.fromkeys(anymal.actuated, 200.0))
    for robot, what, advice in (
        (left_out, "limits of the asset left out", "declare lower: -0.72, upper: 0.49 for LF_HAA"),
        (strong, "torque beyond the actuator", "actuated: {LF_HAA: 80}"),
    ):
        result = only(robot, "asset", worlds=1)
        assert result.failed == ["asset"]
        assert advice in found(result, what).advice
        assert "11 more" in found(result, what).note


def test_a_robot_with_very_many_contact_points_is_warned_about(only):
    anymal = robots.load("anymal-c")
    selection = msgspec.structs.replace(anymal.contact_points, spacing=0.5)
    result = only(msgspec.structs.replace(anymal, contact_points=selection), "size", worlds=1)
    assert result.verdict == "warning"
    assert "contact_points: {shapes: [" in found(result, "contact points").advice


def test_a_free_body_keeps_its_energy_and_the_engine_moves_it_alike(only):
    result = only(robots.load("cube"), "passive_energy", "engine_agreement", worlds=4)
    assert result.verdict == "ok"
    assert found(result, "energy gained").bound == 5.0  # docs/evaluation.md
    assert (found(result, "hybrid engine, one free frame").value or 1e9) < 0.1


def test_a_check_of_your_own_is_run_beside_the_others(monkeypatch):
    def check_nothing(subject):
        return CheckResult(findings=[CheckFinding(what=f"nothing of {subject.robot.name}", verdict="ok")])

    monkeypatch.setattr(CHECKS, "_entries", {"nothing": check_nothing})
    assert found(check("cartpole", worlds=1, frames=1), "nothing of cartpole").verdict == "ok"


def test_rows_are_judged_by_two_bounds():
    verdicts = [rate("x", value, (1.0, 2.0), advice="mend").verdict for value in (1.0, 1.5, 2.5, None, float("nan"))]
    assert verdicts == ["ok", "warning", "fails", "fails", "fails"]
    assert rate("x", 0.5, (1.0, 2.0), advice="mend").advice == ""
    assert rate("x", 0.015, (0.01, 0.02), scale=100.0).value == 1.5


@pytest.mark.parametrize("change", [{"worlds": 0}, {"frames": 0}, {"threads": 0}, {"ground": "moon"}])
def test_what_cannot_be_measured_at_all_is_refused_in_one_line(change):
    with pytest.raises(InputError, match="valid:"):
        check("cartpole", **change)


PAIR = """<mujoco><compiler angle="radian"/><worldbody>
  <body pos="0 0 1"><joint name="one" axis="0 1 0"/>
    <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03" mass="1"/></body>
  <body pos="0 1 1"><joint name="two" axis="0 1 0"/>
    <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03" mass="1"/></body>
</worldbody><equality><joint joint1="one" joint2="two"/></equality></mujoco>"""


def test_energy_is_not_judged_where_equalities_do_work(tmp_path, only):
    from neurodyn.sim.declaration.declare import declare

    for name, text in (("pair", PAIR), ("free", PAIR.replace("<equality>", "<!-- ").replace("</equality>", " -->"))):
        (tmp_path / f"{name}.xml").write_text(text)
        result = only(robots.load(declare(tmp_path / f"{name}.xml", tmp_path / name).path), "passive_energy", worlds=4)
        judged = "energy gained" if name == "free" else "passive energy: its equalities do work"
        assert found(result, judged).verdict == "ok"


def test_a_base_may_fall_in_free_space_for_as_long_as_a_check_takes(only, tmp_path):
    inertial = '<inertial><mass value="1"/><inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0" iyz="0"/></inertial>'
    (tmp_path / "arm.urdf").write_text(
        f'<robot name="arm"><link name="base"/><link name="upper">{inertial}</link><joint name="shoulder" '
        'type="revolute"><parent link="base"/><child link="upper"/><origin xyz="0 0 .2"/><axis xyz="0 1 0"/>'
        '<limit lower="-3" upper="3" effort="5" velocity="9"/></joint></robot>'
    )
    robot = declare(tmp_path / "arm.urdf", tmp_path / "arm", floating=True).robot
    assert only(robot, "random_control", worlds=4, frames=CheckRequest(robot).frames).failed == []
