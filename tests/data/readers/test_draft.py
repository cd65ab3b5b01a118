# SPDX-License-Identifier: Apache-2.0
"""Drafted maps of robots with a free or ball joint: whose columns are its pose, and what the user must check."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from neurodyn.core.config import from_dict
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.inspection import inspect_log
from neurodyn.data.readers.column_map import ColumnMap, read_column_map
from neurodyn.data.readers.draft import draft_map, draft_text, infer_map
from neurodyn.data.readers.patterns import expand
from neurodyn.data.readers.source import Source, Topic


class Columns(Source):
    """A log with nothing but names of columns."""

    def __init__(self, *names):
        self.path, self._names = Path("log"), names

    def topics(self):
        return [Topic(name="", kind="array", columns=self._names, clock="")]

    def parts(self, names):
        raise NotImplementedError


def spec(kind: str = "free") -> StateSpec:
    joints = (JointSpec(name="body", kind=kind), JointSpec(name="knee", kind="revolute"))
    return StateSpec(robot="hopper", joints=joints, controls=("knee",), dt=0.01)


def messages(pose: str, twist: str = "") -> list[str]:
    names = [f"{pose}.position.{x}" for x in "xyz"] + [f"{pose}.orientation.{x}" for x in "xyzw"]
    return names + [f"{twist}.{part}.{x}" for part in ("linear", "angular") for x in "xyz" if twist]


def numbered(array: str, count: int) -> list[str]:
    return [f"{array}[{index}]" for index in range(count)]


KNEE = ["/joint_states.position[knee]", "/joint_states.velocity[knee]", "/joint_states.effort[knee]"]
SIMULATED = [*numbered("qpos", 8), *numbered("qvel", 7), "ctrl[0]"]
ISAAC = [*numbered("states/root_pose", 7), *numbered("states/root_velocity", 6)]
TRACKED = messages("/camera.pose")
LEG = StateSpec(robot="leg", joints=(JointSpec(name="knee", kind="revolute"),), controls=("knee",), dt=0.01)


@pytest.mark.parametrize(
    ("name", "columns", "axes", "order", "doubt"),
    [
        ("mujoco", SIMULATED, "body", "wxyz", "give `center_of_mass`"),
        ("robomimic", [*ISAAC, *KNEE], "world", "wxyz", ""),
        ("mcap", [*messages("/body/pose.pose", "/body/twist.twist"), *KNEE], "world", "xyzw", ""),
        ("mcap", [*messages("/odom.pose.pose", "/odom.twist.twist"), *KNEE], "body", "xyzw", "give `center_of_mass`"),
        ("mcap", [*TRACKED, *KNEE], None, "xyzw", "velocities are differentiated from its poses"),
    ],
)  # fmt: skip
def test_the_pose_of_a_floating_base_is_found(name, columns, axes, order, doubt):
    draft = draft_map(Columns(*columns), name, Columns(*columns).topics(), spec())
    assert draft.absent == []
    base = draft.tree["floating"]["body"]
    assert base.get("angular_axes") == axes
    assert base["order"] == order
    assert base["position"] == [column for column in columns if column in base["position"]]
    assert len(base["quaternion"]) == 4
    assert {name for part in base.values() if isinstance(part, list) for name in part} <= set(columns)
    assert any(line.startswith("body: ") for line in draft.doubts) == bool(doubt)
    assert doubt in "\n".join(draft.doubts)
    assert set(draft.tree["q"]) == {"knee"}
    assert draft.tree["q"]["knee"]["column"] == ("qpos[7]" if name == "mujoco" else KNEE[0])
    from_dict(draft.tree, ColumnMap, "draft")  # which is read as a map


def test_a_known_centre_of_mass_is_drafted_where_velocities_are_those_of_the_origin():
    def drafted(name: str, *columns: str) -> dict:
        source = Columns(*columns)
        return draft_map(source, name, source.topics(), spec(), {"body": (0.1, 0.0, -0.2)}).tree["floating"]["body"]

    assert drafted("mujoco", *SIMULATED)["center_of_mass"] == [0.1, 0.0, -0.2]
    assert "center_of_mass" not in drafted("robomimic", *ISAAC, *KNEE)


@pytest.mark.parametrize(
    ("columns", "angles", "position", "units"),
    [
        (["x", "y", "z", "roll", "pitch", "yaw"], ["roll", "pitch", "yaw"], ["x", "y", "z"], {}),
        (
            ["base_x_mm", "base_y_mm", "base_z_mm", "base_Yaw_deg", "base_Pitch_deg", "base_Roll_deg"],
            ["base_Roll_deg", "base_Pitch_deg", "base_Yaw_deg"], ["base_x_mm", "base_y_mm", "base_z_mm"],
            {"angles_unit": "deg", "position_unit": "mm"},
        ),
        (
            [f"mocap.{name}" for name in ("pos.x", "pos.y", "pos.z", "rpy[0]", "rpy[1]", "rpy[2]")],
            [f"mocap.rpy[{k}]" for k in range(3)], [f"mocap.pos.{axis}" for axis in "xyz"], {},
        ),
    ],
)  # fmt: skip
def test_roll_pitch_and_yaw_are_found_and_doubted(columns, angles, position, units):
    columns = [*columns, *KNEE]
    draft = draft_map(Columns(*columns), "csv", Columns(*columns).topics(), spec())
    assert draft.tree["floating"]["body"] == {"position": position, "angles": angles, "sequence": "xyz", **units}
    assert any("roll, pitch and yaw are taken for" in doubt for doubt in draft.doubts)
    from_dict({**draft.tree, "time": "t"}, ColumnMap, "draft")


def test_a_ball_joint_has_no_position():
    columns = [*messages("/body/pose.pose", "/body/twist.twist"), *KNEE]
    ball = draft_map(Columns(*columns), "mcap", Columns(*columns).topics(), spec("ball")).tree["floating"]["body"]
    assert set(ball) == {"quaternion", "order", "angular_velocity", "angular_axes"}


def test_a_log_without_the_pose_of_the_base_is_refused():
    with pytest.raises(InputError, match="no column that is named as the pose and velocity of 'body' of 'hopper'"):
        infer_map(Columns(*KNEE), "mcap", spec())


@pytest.mark.parametrize(
    ("position", "velocity", "effort", "units"),
    [
        ("knee_pos_deg", "knee_vel_deg_s", "knee_torque_mNm", ("deg", "deg/s", "mN m")),
        ("knee position [deg]", "knee speed [rpm]", "knee torque [mN m]", ("deg", "rpm", "mN m")),
        ("q_knee_mrad", "dq_knee_dps", "tau_knee_Nm", ("mrad", "deg/s", "")),
        ("knee_deg", "knee_dps", "knee_Nm", ("deg", "deg/s", "")),
        ("knee [°]", "knee [°/s]", "knee [N·m]", ("deg", "deg/s", "")),
        ("knee.pos", "knee.vel", "knee.tau", ("", "", "")),
        ("state[knee.pos]", "state[knee.vel]", "action[knee.effort]", ("", "", "")),
    ],
)
def test_units_that_names_tell_are_drafted(position, velocity, effort, units):
    map_ = infer_map(Columns(position, velocity, effort, "t"), "mcap", LEG)
    assert isinstance(map_.qd, dict)
    assert isinstance(map_.control, dict)
    assert (map_.q["knee"].unit, map_.qd["knee"].unit, map_.control["knee"].unit) == units


def test_columns_with_numbers_for_joints_are_taken_in_their_order():
    arm = StateSpec(
        robot="arm", joints=(JointSpec(name="shoulder", kind="revolute"), JointSpec(name="elbow", kind="revolute")),
        controls=("shoulder", "elbow"), dt=0.01, control_kind="torque",
    )  # fmt: skip
    names = Columns("t", "Q2 (deg)", "Q1 (deg)", "dq_1", "dq_2", "Tau1 [Nm]", "Tau2 [Nm]")
    draft = draft_map(names, "csv", names.topics(), arm)
    assert not draft.absent
    columns = {what: [one["column"] for one in draft.tree[what].values()] for what in ("q", "qd", "control")}
    assert columns == {"q": ["Q1 (deg)", "Q2 (deg)"], "qd": ["dq_1", "dq_2"], "control": ["Tau1 [Nm]", "Tau2 [Nm]"]}
    assert "Tau1 [Nm], Tau2 [Nm]: columns are taken in the order of the robot's joints; check it" in draft.doubts
    fewer = Columns("t", "shoulder_pos", "elbow_pos", "shoulder_vel", "elbow_vel", "tau_1", "tau_2", "tau_3")
    absent = draft_map(fewer, "csv", fewer.topics(), arm).absent
    assert absent == ["the control of 'shoulder'", "the control of 'elbow'"]


@pytest.mark.parametrize(
    ("command", "unit", "kind"),
    [
        ("knee_target_deg", "deg", "target"), ("knee_pos_des", "", "target"), ("knee_cmd_Nm", "", "torque"),
        ("knee_target", "", "torque"),
    ],
)  # fmt: skip
def test_commands_that_their_names_call_positions_are_targets(command, unit, kind):
    names = Columns("t", "knee_deg", "knee_dps", command)
    draft = draft_map(names, "mcap", names.topics(), LEG)
    map_ = from_dict(draft.tree, ColumnMap, "draft")
    assert not draft.absent
    assert (map_.control["knee"].unit, map_.control_kind) == (unit, kind)
    assert any(one.startswith(f"{command}: commands are position targets") for one in draft.doubts) == (
        kind == "target"
    )


J2 = ("shoulder", "elbow")
ARM = StateSpec(
    robot="arm", joints=tuple(JointSpec(name=name, kind="revolute") for name in J2), controls=J2, dt=0.01,
    control_kind="torque",
)  # fmt: skip


@pytest.mark.parametrize(
    ("q", "qd", "control", "others", "kind"),
    [
        # PlotJuggler, UR's RTDE, Isaac Lab, Dynamixels, and symbols.
        ("/joint_states/{0}/position", "/joint_states/{0}/velocity", "/joint_states/{0}/effort", (), "torque"),
        ("actual_q_{1}", "actual_qd_{1}", "target_moment_{1}", ("target_q_{1}", "actual_current_{1}"), "torque"),
        ("actual_q_{1}", "actual_qd_{1}", "target_q_{1}", ("target_qd_{1}",), "target"),
        ("joint_pos_{1}", "joint_vel_{1}", "applied_torque_{1}", (), "torque"),
        ("id{1}_present_position", "id{1}_present_velocity", "id{1}_goal_position", (), "target"),
        ("theta{1}", "theta{1}_dot", "tau{1}", ("theta{1}_ddot",), "torque"),
        ("q{1}", "q{1}dot", "u{1}", (), "torque"),
    ],
)
def test_names_of_usual_recorders_are_understood(q, qd, control, others, kind):
    names = [text.format(joint, k) for text in (q, qd, control, *others) for k, joint in enumerate(J2)]
    draft = draft_map(Columns(*names), "csv", Columns(*names).topics(), ARM)
    assert not draft.absent
    for what, text in (("q", q), ("qd", qd), ("control", control)):
        columns = [one["column"] for one in draft.tree[what].values()]
        assert columns == [text.format(joint, k) for k, joint in enumerate(J2)]
    assert draft.tree.get("control_kind", "torque") == kind


@pytest.mark.parametrize(("command", "kind"), [("target", "target"), ("cmd", "torque")])
def test_commands_that_are_like_the_positions_are_targets(command: str, kind: str, tmp_path: Path):
    time = np.arange(200) * 0.01
    q = 0.4 * np.sin(3.0 * time)
    other = np.sin(3.0 * time - 0.1) * 0.4 if kind == "target" else -8.0 * q + np.sin(11.0 * time)
    rows = np.stack([time, q, 1.2 * np.cos(3.0 * time), other], 1)
    head = f"t,knee_pos,knee_vel,knee_{command}"
    np.savetxt(tmp_path / "log.csv", rows, delimiter=",", header=head, comments="")
    text = inspect_log(tmp_path / "log.csv", LEG, "leg").map_text
    assert ("control_kind: target" in text.splitlines()) == (kind == "target")
    assert ("like the positions" in text) == (kind == "target")
    assert ("taken for torques" in text) == (kind == "torque")


def test_a_current_is_no_torque():
    names = Columns("t", "knee_pos", "knee_vel", "knee_current_mA")
    doubts = draft_map(names, "csv", names.topics(), LEG).doubts
    assert any("knee_current_mA: a current is no torque; give its `scale`" in one for one in doubts)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("knee_pos", "knee_angle", "knee_vel", "knee_tau"), "knee_angle: has a name of the same meaning as knee_pos"),
        (("q[0]", "q_filtered[0]", "qd[0]", "tau[0]"), "q_filtered: has a name of the same meaning as q"),
        (("knee_pos", "hip_pos", "knee_vel", "knee_tau"), ""),
    ],
)
def test_columns_of_the_same_meaning_are_doubted(names, told):
    columns = Columns("t", *names)
    doubts = [one for one in draft_map(columns, "csv", columns.topics(), LEG).doubts if "same meaning" in one]
    assert len(doubts) == bool(told)
    assert all(one.startswith(told) for one in doubts)


@pytest.mark.parametrize(
    ("q", "other", "lines"),
    [
        ("joint_position[{1}]", "t", ["q: joint_position[*]", "  # hip: joint_position[0]    -1 to 1"]),
        ("{0}_deg", "t", ["q: {'*': {column: '*_deg', unit: deg}}", "  # toe: toe_deg"]),
        ("q{1}", "q7", ["  hip: {column: q0}    # -1 to 1"]),  # * would also stand for another number
    ],
)
def test_columns_of_all_joints_are_drafted_as_a_pattern(q: str, other: str, lines: list[str], tmp_path: Path):
    names = ("hip", "knee", "ankle", "toe")
    leg = StateSpec(
        robot="leg", joints=tuple(JointSpec(name=name, kind="revolute") for name in names), controls=names, dt=0.01,
        control_kind="torque",
    )  # fmt: skip
    columns = [text.format(name, k) for text in (q, "tau[{1}]") for k, name in enumerate(names)]
    there = [*columns, other]
    draft = draft_map(Columns(*columns), "csv", Columns(*columns).topics(), leg)
    text = draft_text(draft, "log.csv", {columns[0]: "-1 to 1"}, "leg", there)
    assert {*lines, "control: tau[*]"} <= set(text.splitlines())
    (path := tmp_path / "map.yaml").write_text(f"{text}period: 0.01\n")
    whole = expand(read_column_map(path), leg, Columns(*there))
    assert [one.column for one in whole.q.values()] == columns[:4]


FLAT = ["x", "y", "z", "qw", "qx", "qy", "qz", "vx", "vy", "vz", "wx", "wy", "wz"]
ARRAYS = [*numbered("base_pos", 3), *numbered("base_quat", 4), *numbered("base_lin_vel", 3)]
ARRAYS += numbered("base_ang_vel", 3)


@pytest.mark.parametrize(
    ("columns", "order", "moving", "doubt"),
    [
        (FLAT, "wxyz", True, "axes of velocities are to be checked"),
        ([f"base_{one}" for one in FLAT], "wxyz", True, "axes of velocities"),
        (["px", "py", "pz", "quat_x", "quat_y", "quat_z", "quat_w"], "wxyz", False, "differentiated"),
        ([*numbered("imu_quat", 4), *ARRAYS], "wxyz", True, "the order of the quaternion"),
        (numbered("base_pose", 7), "wxyz", False, "the order of its quaternion"),
        ([f"mocap.{one}" for one in (*numbered("pos", 3), *numbered("orientation", 4))], "wxyz", False, "order"),
    ],
)  # fmt: skip
def test_poses_with_a_quaternion_are_found_by_usual_names(columns, order, moving, doubt):
    columns = [*columns, *KNEE]
    draft = draft_map(Columns(*columns), "csv", Columns(*columns).topics(), spec())
    base = draft.tree["floating"]["body"]
    assert base["order"] == order
    assert len(base["position"]) == 3
    assert not any("imu" in name for part in base.values() if isinstance(part, list) for name in part)
    assert ("linear_velocity" in base, "angular_velocity" in base) == (moving, moving)
    assert doubt in "\n".join(draft.doubts)
    from_dict({**draft.tree, "time": "t"}, ColumnMap, "draft")


def test_poses_of_hands_and_targets_are_not_those_of_the_base():
    columns = [*(f"ee_{one}" for one in FLAT), *(f"target_{one}" for one in FLAT), *KNEE]
    assert draft_map(Columns(*columns), "csv", Columns(*columns).topics(), spec()).absent == [
        "the pose and velocity of 'body'"
    ]
    columns += [f"base_{one}" for one in FLAT]
    base = draft_map(Columns(*columns), "csv", Columns(*columns).topics(), spec()).tree["floating"]["body"]
    assert base["position"] == ["base_x", "base_y", "base_z"]


def spinning(path: Path, names: dict[str, str]) -> None:
    """Write a log of a body that spins and flies, with its wheel's angle; velocities in body axes, scalar first."""
    t = np.arange(0, 2, 0.01)
    turn = Rotation.from_rotvec(np.stack([0.8 * np.sin(3 * t), 0.6 * np.cos(2 * t), 2 * t], -1))
    place = np.stack([np.sin(t), np.cos(2 * t), 0.3 * t], -1)
    rate = np.gradient(place, t, axis=0)
    omega = (turn[2:] * turn[:-2].inv()).as_rotvec() / 0.02
    omega = np.concatenate([omega[:1], omega, omega[-1:]])
    body = np.concatenate([turn.inv().apply(rate), turn.inv().apply(omega)], -1)
    columns = np.concatenate([place, np.roll(turn.as_quat(), 1, axis=1), body], -1).T
    wheel = {names["q"]: 20 * t, names["qd"]: 20 + 0 * t, "knee_cmd": 0 * t}
    table = {"time": t, **dict(zip(FLAT, columns, strict=True)), **wheel}
    rows = np.stack([*table.values()], -1)
    np.savetxt(path, rows, delimiter=",", header=",".join(table), comments="")


def test_conventions_are_those_that_fit_the_log(tmp_path: Path):
    spinning(tmp_path / "log.csv", {"q": "knee_pos", "qd": "knee_vel"})
    joints = (JointSpec(name="body", kind="free"), JointSpec(name="knee", kind="revolute", continuous=True))
    report = inspect_log(
        tmp_path / "log.csv", StateSpec(robot="hopper", joints=joints, controls=("knee",), dt=0.01), "hopper", {}
    )
    assert "angular_axes: body" in report.map_text
    assert "linear_axes: body" in report.map_text
    assert "body: `linear_axes: body`, `linear_of: origin`, as these fit its velocities" in report.map_text


@pytest.mark.parametrize(("continuous", "unit"), [(True, ""), (False, "deg")])
def test_a_wheel_that_has_turned_far_is_not_in_degrees(continuous: bool, unit: str, tmp_path: Path):
    spinning(tmp_path / "log.csv", {"q": "knee_pos", "qd": "knee_vel"})
    joints = (JointSpec(name="body", kind="free"), JointSpec(name="knee", kind="revolute", continuous=continuous))
    text = inspect_log(
        tmp_path / "log.csv", StateSpec(robot="hopper", joints=joints, controls=("knee",), dt=0.01), "hopper", {}
    ).map_text
    assert ("knee: {column: knee_pos, unit: deg}" in text) == bool(unit)


@pytest.mark.parametrize(("size", "unit"), [(1.0, ""), (1000.0, "mm")])
def test_a_slide_and_its_targets_in_millimetres_are_told(size: float, unit: str, tmp_path: Path):
    time = np.arange(400) * 0.01
    q, qd, target = 0.3 * np.sin(2.0 * time), 0.6 * np.cos(2.0 * time), 0.3 * np.sin(2.0 * time + 0.1)
    rows = np.stack([time, size * q, size * qd, size * target], 1)
    np.savetxt(tmp_path / "log.csv", rows, delimiter=",", header="t,rail_pos,rail_vel,rail_target", comments="")
    rail = JointSpec(name="rail", kind="prismatic", lower=-0.5, upper=0.5)
    spec = StateSpec(robot="axis", joints=(rail,), controls=("rail",), dt=0.01, control_kind="torque")
    report = inspect_log(tmp_path / "log.csv", spec, "axis")
    lines = [line.partition("#")[0].strip() for line in report.map_text.splitlines()]
    units = {what: f", unit: {own}" if unit else "" for what, own in (("pos", "mm"), ("vel", "mm/s"), ("target", "mm"))}
    wanted = [f"rail: {{column: rail_{what}{own}}}" for what, own in units.items()]
    assert [line for line in lines if line.startswith("rail: {")] == wanted


def test_targets_have_the_unit_of_the_positions_that_they_are_like(tmp_path: Path):
    time = np.arange(400) * 0.01
    columns = [time, 40.0 * np.sin(time), 40.0 * np.cos(time), 40.0 * np.sin(time + 0.1)]
    head = "t,knee_pos,knee_vel,knee_cmd"
    np.savetxt(tmp_path / "log.csv", np.stack(columns, 1), delimiter=",", header=head, comments="")
    text = inspect_log(tmp_path / "log.csv", LEG, "leg").map_text
    assert "control_kind: target" in text
    assert "knee: {column: knee_cmd, unit: deg}" in text


ROVER = StateSpec(
    robot="rover",
    joints=(
        JointSpec(name="base", kind="free"),
        *(JointSpec(name=f"{side}_wheel_joint", kind="revolute", continuous=True) for side in ("left", "right")),
    ),
    controls=("left_wheel_joint", "right_wheel_joint"), dt=0.02,
)  # fmt: skip
TWO_WHEELS = [f"{side}_wheel_joint.{what}" for what in ("position", "velocity") for side in ("left", "right")]


@pytest.mark.parametrize(
    ("columns", "position", "heading", "units"),
    [
        (["x", "y", "theta"], ["x", "y", 0.031], "theta", {}),
        (["x [mm]", "y [mm]", "yaw [deg]"], ["x [mm]", "y [mm]", 31.0], "yaw [deg]", {"m": "mm", "rad": "deg"}),
        (["robot_x", "robot_y", "robot_heading", "target_x", "target_y"], ["robot_x", "robot_y", 0.031],
         "robot_heading", {}),
    ],
)  # fmt: skip
def test_a_robot_on_wheels_may_have_x_y_and_its_heading_alone(columns, position, heading, units):
    names = Columns("t", *columns, *TWO_WHEELS, "left_cmd_vel", "right_cmd_vel")
    draft = draft_map(names, "csv", names.topics(), ROVER, stands=lambda: 0.031)
    assert not draft.absent
    base = draft.tree["floating"]["base"]
    assert (base["position"], base["angles"], base["sequence"]) == (position, [0.0, 0.0, heading], "xyz")
    assert (base.get("position_unit", "m"), base.get("angles_unit", "rad")) == (
        units.get("m", "m"), units.get("rad", "rad")
    )  # fmt: skip
    assert draft.tree["qd"]["left_wheel_joint"] == {"column": "left_wheel_joint.velocity"}  # beside the base's slopes
    assert draft.tree["control"]["right_wheel_joint"] == {"column": "right_cmd_vel"}
    assert draft.tree["control_kind"] == "target"
    assert "kind: velocity_servo" in draft.doubts[-1]
    from_dict(draft.tree | {"time": "t"}, ColumnMap, "draft")


def test_words_that_two_joints_share_name_neither():
    names = Columns("t", "left_pos", "right_pos", "wheel_pos", "left_cmd", "right_cmd")
    draft = draft_map(names, "csv", names.topics(), ROVER)
    assert {name: one["column"] for name, one in draft.tree["q"].items()} == {
        "left_wheel_joint": "left_pos", "right_wheel_joint": "right_pos",
    }  # fmt: skip
    shared = Columns("t", "wheel_pos", "left_pos")
    assert "the position of 'right_wheel_joint'" in draft_map(shared, "csv", shared.topics(), ROVER).absent
