# SPDX-License-Identifier: Apache-2.0
"""Checks of logs: each sabotage of an arm's log is named by its cause, and sound logs are not doubted."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from neurodyn.core.description.drive import Drive
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.registry import Registry
from neurodyn.core.verdict import Finding
from neurodyn.data import log_checks
from neurodyn.data.commands import DeclaredCommands
from neurodyn.data.header import CONTROL, Delay
from neurodyn.data.log_checks import findings_of
from neurodyn.data.log_columns import LogColumns

DT, SECONDS, RUNS = 0.01, 20.0, 2
JOINTS = tuple(JointSpec(name=name, kind="revolute", lower=-2.0, upper=2.0) for name in ("pan", "lift", "elbow"))
SERVOS = DeclaredCommands({joint.name: Drive(kind="servo", kp=400.0, kd=20.0) for joint in JOINTS},
                          {joint.name: (-2.0, 2.0) for joint in JOINTS})  # fmt: skip
MOTORS = DeclaredCommands(limits={joint.name: (-20.0, 20.0) for joint in JOINTS})
Columns = dict[str, np.ndarray]


def spec(kind: str) -> StateSpec:
    return StateSpec(robot="arm", joints=JOINTS, controls=tuple(j.name for j in JOINTS), dt=DT, control_kind=kind)


def moved(kind: str, seed: int = 0) -> Columns:
    """Two runs of three coupled joints with friction, behind servos or under torques that hold them near a motion."""
    rng, fine = np.random.default_rng(seed), 4
    inertia = np.linalg.inv(np.array([[1.0, 0.1, 0.0], [0.1, 0.8, 0.2], [0.0, 0.2, 0.5]]))
    parts: dict[str, list[np.ndarray]] = {"q": [], "qd": [], "u": []}
    for _ in range(RUNS):
        rates, phases = rng.uniform(0.5, 5.0, (3, 3)), rng.uniform(0, 6.3, (3, 3))
        q, qd = np.zeros(3), np.zeros(3)
        for k in range(round(SECONDS / DT) + 1):
            aim = 0.3 * np.sin(rates * k * DT + phases).sum(axis=1)
            u = aim if kind == "target" else 15.0 * (aim - q) - 2.0 * qd + rng.normal(0, 1.5, 3)
            for name, values in (("q", q + rng.normal(0, 3e-4, 3)), ("qd", qd + rng.normal(0, 0.01, 3)), ("u", u)):
                parts[name].append(values)
            for _ in range(fine):
                force = 400.0 * (u - q) - 20.0 * qd if kind == "target" else u
                qd = qd + DT / fine * (inertia @ (force - 0.3 * np.tanh(qd / 0.02)))
                q = q + DT / fine * qd
    return {name: np.array(values) for name, values in parts.items()}


SOUND = {kind: moved(kind) for kind in ("target", "torque")}


def found(kind: str, columns: Columns, declared: DeclaredCommands | None = None, **changes: object) -> list[Finding]:
    rows = np.concatenate([columns[name] for name in ("q", "qd", "u")], axis=1)
    offsets = np.linspace(0, len(rows), RUNS + 1).astype(int)
    declared = declared or (SERVOS if kind == "target" else MOTORS)
    return findings_of(LogColumns(spec(kind), rows, offsets, declared, **changes))


def harmed(kind: str, harm: Callable[[Columns], None]) -> Columns:
    columns = {name: values.copy() for name, values in SOUND[kind].items()}
    harm(columns)
    return columns


def swapped(*names: str) -> Callable[[Columns], None]:
    def harm(columns: Columns) -> None:
        for name in names:
            columns[name][:, [1, 2]] = columns[name][:, [2, 1]]

    return harm


def scaled(factor: float, *names: str, joints: slice = slice(None)) -> Callable[[Columns], None]:
    def harm(columns: Columns) -> None:
        for name in names:
            columns[name][:, joints] *= factor

    return harm


def frozen(columns: Columns) -> None:
    columns["q"][700:900, 1] = columns["q"][700, 1]


def noisy(columns: Columns) -> None:
    columns["q"] += np.random.default_rng(1).normal(0, 0.05, columns["q"].shape)


def shuffled(*names: str) -> Callable[[Columns], None]:
    def harm(columns: Columns) -> None:
        order = np.random.default_rng(1).permutation(len(columns["q"]))
        for name in names:
            columns[name][:] = columns[name][order]

    return harm


def torn(columns: Columns) -> None:
    columns["q"][500:, 0] += 0.8


def copied(columns: Columns) -> None:
    columns["q"][:, 2], columns["qd"][:, 2] = columns["q"][:, 1], columns["qd"][:, 1]


def read_back(columns: Columns) -> None:
    columns["u"][:] = columns["q"]


def moved_away(columns: Columns) -> None:
    columns["q"] += 4.0


def held(columns: Columns) -> None:
    columns["q"][:, 0] = 0.2 + np.random.default_rng(1).normal(0, 1e-4, len(columns["q"]))
    columns["qd"][:, 0] = 0.0


def one(name: str, joint: int, factor: float) -> Callable[[Columns], None]:
    return scaled(factor, name, joints=slice(joint, joint + 1))


def turned(columns: Columns) -> None:
    columns["q"][:, 1] *= -1.0
    columns["qd"][:, 1] *= -1.0


def alike(columns: Columns) -> None:
    """Let lift move almost as pan does, and swap their velocities."""
    for name in ("q", "qd"):
        columns[name][:, 1] = columns[name][:, 0] + 0.3 * columns[name][:, 1]
    columns["qd"][:, :2] = columns["qd"][:, 1::-1]


SABOTAGE = {
    "readings swapped": (("target", "torque"), swapped("q", "qd"), "swapped", "fails"),
    "commands crossed": (("target", "torque"), swapped("u"), "swapped", "fails"),
    "velocities swapped": (("target", "torque"), swapped("qd"), "swapped", "fails"),
    "velocities of like joints swapped": (("target", "torque"), alike, "swapped", "fails"),
    "sign of a reading": (("target", "torque"), turned, "sign", "fails"),
    "sign of a command": (("target", "torque"), one("u", 1, -1.0), "sign", "fails"),
    "sign of a velocity": (("target", "torque"), one("qd", 1, -1.0), "velocity-sign", "fails"),
    "positions in degrees": (("target", "torque"), scaled(180 / np.pi, "q"), "degrees", "fails"),
    "all in degrees": (("target", "torque"), scaled(180 / np.pi, "q", "qd"), "degrees", "fails"),
    "velocities in rpm": (("target", "torque"), scaled(30 / np.pi, "qd"), "units", "fails"),
    "a gear on one velocity": (("target", "torque"), one("qd", 2, 2.0), "velocity", "warning"),
    "a slow clock": (("target", "torque"), scaled(0.8, "qd"), "clock", "fails"),
    "a frozen encoder": (("target", "torque"), frozen, "frozen", "fails"),
    "noise": (("target", "torque"), noisy, "noise", "warning"),
    "shuffled rows": (("target", "torque"), shuffled("q", "qd", "u"), "order", "fails"),
    "a jump": (("target", "torque"), torn, "jump", "warning"),
    "commands of another order": (("target",), shuffled("u"), "commands", "fails"),
    "one column twice": (("target", "torque"), copied, "same", "fails"),
    "readings for commands": (("target",), read_back, "readings", "fails"),
    "another robot": (("target", "torque"), moved_away, "range", "fails"),
    "torques in percent": (("torque",), scaled(20.0, "u"), "command-limits", "warning"),
    "a joint that is held": (("target", "torque"), held, "motion", "warning"),
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for name, (kinds, *_) in SABOTAGE.items() for kind in kinds])
def test_a_sabotage_is_named_by_its_cause(kind: str, name: str):
    _, harm, cause, grade = SABOTAGE[name]
    findings = found(kind, harmed(kind, harm))
    by_name = {one.name: one for one in findings}
    assert cause in by_name, findings
    assert by_name[cause].grade == grade
    assert all(one.what and one.advice for one in findings)


@pytest.mark.parametrize("kind", ["target", "torque"])
@pytest.mark.parametrize("seed", range(3))
def test_a_sound_log_is_not_doubted(kind: str, seed: int):
    assert not found(kind, moved(kind, seed))


def test_a_joint_that_rests_until_its_target_steps_is_not_frozen():
    """Servos react some frames after a step: until then the command moves and the reading does not."""
    columns = {name: values.copy() for name, values in SOUND["target"].items()}
    columns["u"][700:760, 1] = columns["u"][700, 1]
    columns["q"][700:765, 1] = columns["u"][700, 1]
    columns["u"][760:, 1] = columns["u"][700, 1] + 0.6
    columns["q"][765:, 1] = columns["u"][760, 1] + columns["q"][765:, 0] * 1e-3
    assert "frozen" not in [one.name for one in found("target", columns)]


def test_a_joint_that_friction_holds_is_not_frozen():
    columns = {name: values.copy() for name, values in SOUND["target"].items()}
    rows = slice(100, 160)
    columns["q"][rows], columns["qd"][rows] = columns["q"][100], 0.0
    columns["u"][rows] = columns["q"][100] + np.linspace(-0.3, 0.3, 60)[:, None] * np.ptp(columns["u"], axis=0)
    assert "frozen" in [one.name for one in found("target", columns)]
    columns["u"][200:260] = columns["q"][200:260] + 0.4 * np.ptp(columns["u"], axis=0)  # as weak a servo elsewhere
    assert "frozen" not in [one.name for one in found("target", columns)]


def test_an_encoder_froze_whose_velocity_has_no_noise_as_it_has_elsewhere_at_rest():
    """Also near the target: in a run in which the joint hardly moves."""
    columns = {name: values.copy() for name, values in SOUND["target"].items()}
    for begin, noise in ((100, 0.01), (200, 0.0)):
        rows, span = slice(begin, begin + 60), np.ptp(columns["u"][:, 1])
        columns["q"][rows, 1] = columns["q"][begin, 1]
        columns["qd"][rows, 1] = noise * np.random.default_rng(0).normal(size=60)
        columns["u"][rows, 1] = columns["q"][begin, 1] + np.linspace(0.0, 0.1, 60) * span
    assert "frozen" in [one.name for one in found("target", columns)]
    columns["qd"][200:260, 1] = columns["qd"][100:160, 1]
    assert "frozen" not in [one.name for one in found("target", columns)]


@pytest.mark.parametrize(("base", "doubted"), [("free", []), ("revolute", ["commands"])])
def test_loads_on_legs_move_soft_joints_more_than_small_targets_do(base: str, doubted: list[str]):
    hip, rng = JointSpec(name="hip", kind="revolute"), np.random.default_rng(0)
    robot = StateSpec(
        robot="dog", joints=(JointSpec(name="base", kind=base), hip), controls=("hip",), dt=DT, control_kind="target"
    )
    rows = np.zeros((2000, robot.nq + robot.nv + 1))
    rows[:, -1] = 0.02 * rng.standard_normal(2000)
    rows[:, robot.q_names.index("hip")] = 0.5 * rows[:, -1] + 0.05 * rng.standard_normal(2000)
    log = LogColumns(robot, rows, np.array([0, 2000]), DeclaredCommands({"hip": Drive(kind="servo", kp=50.0)}))
    assert [one.name for one in log_checks.commands_of_something_else(log)] == doubted


def test_positions_are_no_torques_and_torques_no_positions():
    assert found("torque", SOUND["target"])[0].name == "targets"
    (told,) = [one for one in found("target", SOUND["torque"]) if one.name == "commands"]
    assert "torques" in told.what


DELAYS = {
    "before": (Delay(seconds=-0.05, error=0.004), "negative", ("clock", "fails")),
    "before, by what may be chance": (Delay(seconds=-0.0096, error=0.0035, usable=True), "", ("clock", "warning")),
    "before, as the map applies it": (Delay(seconds=0.0, error=0.004, applied=0.05), "", ("clock", "fails")),
    "at the end of the table": (Delay(seconds=-0.03, error=0.1), "end", ("clock", "warning")),
    "that explains nothing": (Delay(seconds=0.02, error=0.1), "senseless", ("commands", "warning")),
    "of a log that nothing explains": (Delay(seconds=0.02, error=0.1), "rough", None),
    "far too long": (Delay(seconds=0.12, error=0.01, usable=True), "", ("late", "warning")),
    "as robots have": (Delay(seconds=0.02, error=0.004, usable=True), "", None),
    "that the map declares": (Delay(seconds=0.12, error=0.01, applied=0.12, usable=True), "", None),
    "that is not known": (Delay(seconds=0.03, error=0.03), "unmeasured", None),
}


@pytest.mark.parametrize("name", DELAYS)
def test_delays_that_no_robot_has_are_doubted(name: str):
    delay, doubt, cause = DELAYS[name]
    findings = found("torque", SOUND["torque"], delays={CONTROL: delay}, doubt=doubt, reason="measured: it is so")
    assert [(one.name, one.grade) for one in findings] == ([] if cause is None else [cause])


def test_a_check_can_be_added(monkeypatch: pytest.MonkeyPatch):
    more = Registry("check of logs", mine=lambda log: [Finding("mine", "warning", f"{len(log.rows)} rows", "log more")])
    monkeypatch.setattr(log_checks, "LOG_CHECKS", more)
    assert [one.name for one in found("torque", SOUND["torque"])] == ["mine"]


def test_velocities_from_differences_are_not_compared_with_positions():
    columns = harmed("torque", scaled(0.8, "qd"))
    assert not found("torque", columns, logged_rates=False)


def test_joints_that_turn_without_end_may_wrap():
    columns = {name: values.copy() for name, values in SOUND["torque"].items()}
    turning = tuple(JointSpec(name=joint.name, kind="revolute", continuous=True) for joint in JOINTS)
    columns["q"] = np.remainder(columns["q"] * 3.0 + np.pi, 2 * np.pi) - np.pi
    columns["qd"] *= 3.0
    rows = np.concatenate([columns[name] for name in ("q", "qd", "u")], axis=1)
    log = LogColumns(
        msgspec.structs.replace(spec("torque"), joints=turning), rows, np.array([0, len(rows) // 2, len(rows)])
    )
    assert not findings_of(log)
