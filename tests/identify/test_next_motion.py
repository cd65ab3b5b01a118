# SPDX-License-Identifier: Apache-2.0
"""The motion to log next is safe in the robot itself, and says what it will tell."""

import csv
import dataclasses
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

import neurodyn.identify.next_motion as next_motions
from neurodyn.identify import AdaptationSettings, Identification, adapt
from neurodyn.identify.identification import finished_fit
from neurodyn.identify.motion.limits import SMOOTH, MotionLimits, MotionLimitSettings
from neurodyn.identify.run import open_adaptation
from neurodyn.identify.settings import FitStage
from neurodyn.identify.stages.stage_windows import most_windows
from neurodyn.sim.mujoco.clearance import RobotClearance
from tests.identify.two_joint_arm import declared, plant, played, write_log

SETTINGS = AdaptationSettings(
    stages=(FitStage(0.05, 150, 6), FitStage(0.15, 80, 4)), structures=False, networks=False, proposals=4,
    proposal_seconds=45.0, rollouts_each=20, reference_steps=0, refits=0,
)  # fmt: skip
WORN = {"friction": 0.3, "load": 0.4, "kp": 180.0}


def adapted(folder: Path, *, settings: AdaptationSettings = SETTINGS) -> Identification:
    robot = declared(folder / "robot")
    write_log(folder / "log.h5", robot, plant(**WORN))
    return adapt(folder / "robot", folder / "log.h5", folder / "run", settings=settings, threads=1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Identification]:
    folder = tmp_path_factory.mktemp("arm")
    return folder / "run", adapted(folder)


def table(path: Path) -> tuple[list[str], np.ndarray]:
    with path.open() as file:
        head, *rows = csv.reader(file)
    return head, np.array(rows, float)


def test_it_is_safe_in_the_robot_itself(run: tuple[Path, Identification]):
    out, found = run
    motion = found.figures.next
    assert motion is not msgspec.UNSET
    head, rows = table(out / motion.file)
    assert head == ["time", "shoulder", "elbow"]
    assert rows[-1, 0] == pytest.approx(motion.seconds - 0.01)
    targets = rows[:, 1:]
    floor = '<geom type="plane" size="5 5 .1"/>'
    path = played(plant(**WORN, extra=floor), targets, 0.01, targets[0])
    assert not path["contacts"].any()
    frames = round(SMOOTH / 0.01)
    acceleration = np.abs(path["qd"][frames:] - path["qd"][:-frames]) / SMOOTH
    for k, name in enumerate(("shoulder", "elbow")):
        limits = motion.limits[name]
        for q in (targets[:, k], path["q"][:, k]):
            assert limits["lower"] <= q.min()
            assert q.max() <= limits["upper"]
        assert np.abs(path["qd"][:, k]).max() <= limits["speed"]
        assert acceleration[:, k].max() <= limits["acceleration"]
        assert np.abs(path["torque"][:, k]).max() <= limits["torque"]
    assert np.ptp(path["q"], axis=0).min() > 0.2  # it moves
    assert path["q"][-1] == pytest.approx(path["q"][0], abs=0.05)
    assert np.abs(path["qd"][-1]).max() < 0.05


def test_it_begins_and_ends_at_rest_and_is_smooth(run: tuple[Path, Identification]):
    targets = table(run[0] / "next-motion.csv")[1][:, 1:]
    assert targets[0] == pytest.approx(targets[-1], abs=1e-6)
    rates = np.diff(targets, axis=0) / 0.01
    bends = np.diff(rates, axis=0) / 0.01
    for ends in (rates[:10], rates[-10:], bends[:10], bends[-10:]):
        assert np.abs(ends).max() < 1e-2
    assert np.abs(np.diff(bends, axis=0)).max() < 0.35 * np.abs(bends).max()


def test_it_says_what_it_will_tell_and_expects(run: tuple[Path, Identification]):
    out, found = run
    motion = found.figures.next
    assert motion is not msgspec.UNSET
    assert motion.tells[0].startswith(f"narrows {motion.target} from +-")
    now, then = motion.deviations[motion.target]
    assert then <= 0.5 * now or motion.beyond[0].startswith("no motion within these limits is sure to narrow ")
    assert all(then <= now for now, then in motion.deviations.values())
    assert motion.sources["speed"] == "100% of the logs' largest"
    assert "from a floor at 0 m" in motion.sources["contacts"]
    head, rows = table(out / motion.expected)
    assert head == ["time", "q.shoulder", "q.elbow", "torque.shoulder", "torque.elbow"]
    targets = table(out / motion.file)[1][:, 1:]
    path = played(plant(**WORN), targets, 0.01, targets[0])
    assert rows[:, 1:3] == pytest.approx(path["q"], abs=0.03)


def test_without_a_safe_motion_there_is_no_file_but_a_reason(tmp_path: Path):
    limits = MotionLimitSettings(torque=0.001)
    settings = msgspec.structs.replace(SETTINGS, limits=limits, proposals=2)
    figures = adapted(tmp_path, settings=settings).figures
    assert figures.next is not msgspec.UNSET
    assert figures.next.file == ""
    assert figures.next.why_not == "no motion is safe: the torque limit of elbow (2 candidates)"
    assert not list((tmp_path / "run").glob("next-motion*"))


def test_limits_come_from_the_declaration_or_the_log(tmp_path: Path):
    robot = declared(tmp_path / "robot")
    store = write_log(tmp_path / "log.h5", robot, plant())
    limits = MotionLimits.of(robot, store, MotionLimitSettings(speeds={"elb*": 1.5}))
    assert limits.upper.tolist() == pytest.approx([0.95 * 2.5, 0.95 * 2.8])
    assert limits.torque.tolist() == pytest.approx([32.0, 12.0])
    assert float(limits.speed[1]) == 1.5
    largest = max(float(np.abs(store.episode(k)[1][:, 0]).max()) for k in range(len(store.lengths)))
    assert 0.8 * largest < float(limits.speed[0]) < 1.05 * largest
    drives = dict(robot.drives)
    drives["shoulder"] = msgspec.structs.replace(drives["shoulder"], saturation_effort=50.0, velocity_limit=2.0)
    rated = MotionLimits.of(msgspec.structs.replace(robot, drives=drives), store, MotionLimitSettings())
    assert float(rated.speed[0]) == pytest.approx(2.0)
    assert rated.sources["speed"].startswith("100% of the declared for 1 joints")


def test_links_touch_each_other_and_the_floor(tmp_path: Path):
    robot = declared(tmp_path / "robot")
    clearance = RobotClearance(robot, np.zeros(2))
    assert clearance.floor == 0.0
    poses = torch.tensor([[[0.0, 0.0], [0.3, 0.5]], [[2.2, 0.0], [2.2, 0.0]]], dtype=torch.float64)
    assert clearance.first_contact(poses[:1]) is None
    touching = clearance.first_contact(poses[1:])
    assert touching is not None
    assert "the floor" in touching
    post = '<geom name="post" type="box" size=".02 .02 .6" pos=".3 0 .6"/>'
    beside = RobotClearance(declared(tmp_path / "beside", extra=post), np.zeros(2))
    assert beside.first_contact(torch.tensor([[[0.0, 0.0], [0.0, 1.5]]], dtype=torch.float64)) == ("lower", "post", 1)
    hanging = RobotClearance(robot, np.array([2.4, 0.0]))
    assert hanging.floor is None  # it rests below its mounting


def test_the_base_of_a_bolted_robot_may_touch_its_first_link(tmp_path: Path):
    """MuJoCo looks for contacts of a base that does not move with the link that it carries."""
    robot = declared(tmp_path / "robot", height=1.0)
    stand = '<body name="stand"><geom type="cylinder" size=".05 .48" pos="0 0 .48"/>'
    xml = (tmp_path / "robot" / "robot.xml").read_text()
    xml = xml.replace("<worldbody>", f"<worldbody>{stand}").replace("</worldbody>", "</body></worldbody>")
    (tmp_path / "robot" / "robot.xml").write_text(xml)
    clearance = RobotClearance(robot, np.zeros(2))
    assert clearance.floor == pytest.approx(0.0, abs=1e-9)
    paths = torch.tensor([[[0.0, 0.0], [2.4, 0.0]], [[2.0, 2.2], [2.0, 2.2]]], dtype=torch.float64)
    assert clearance.first_contact(paths[:1]) is None
    assert clearance.first_contact(paths[1:]) == ("lower", "stand", 0)


@pytest.mark.slow
def test_a_robot_of_torques_follows_positions(tmp_path: Path):
    """Torques alone would drift; the file holds positions, and what torques to expect beside it."""
    robot = declared(tmp_path / "robot")
    store = write_log(tmp_path / "log.h5", robot, plant(**WORN))
    torques = msgspec.structs.replace(robot, drives={})
    header = msgspec.structs.replace(store.header, spec=torques.spec)
    frames = np.array(store.frames)
    frames[:, -2:] = np.array([180.0, 80.0]) * (frames[:, -2:] - frames[:, :2]) - np.array([6.0, 2.0]) * frames[:, 2:4]
    changed = dataclasses.replace(store, header=header, frames=frames)
    figures = adapt(torques, changed, tmp_path / "run", settings=SETTINGS, threads=1).figures
    motion = figures.next
    assert motion is not msgspec.UNSET
    assert motion.kind == "target"
    rows = table(tmp_path / "run" / motion.file)[1]
    head, expected = table(tmp_path / "run" / motion.expected)
    assert expected[:, 1:3] == pytest.approx(rows[:, 1:], abs=1e-5)
    for name, most in (("shoulder", 32.0), ("elbow", 12.0)):
        assert np.abs(expected[:, head.index(f"torque.{name}")]).max() <= most
    path = played(plant(**WORN), rows[:, 1:], 0.01, rows[0, 1:])
    assert not path["contacts"].any()


def test_a_promise_counts_the_windows_that_a_fit_compares_and_no_more():
    stage, frames, minute = FitStage(0.7, 60, 5), 70, 6000.0
    assert most_windows(stage, frames, minute, [60.0]) == 60
    assert most_windows(stage, frames, 3 * minute, [60.0, 120.0]) == 180  # each minute of one of several logs counts
    assert most_windows(stage, frames, 3 * minute, [59.9, 119.88]) == 180  # import leaves a little less
    assert most_windows(stage, frames, minute, [15.0] * 4) == 240
    assert most_windows(stage, frames, minute, [3.0] * 20) == 60  # no logs, but episodes
    assert most_windows(stage, frames, 700.0, []) == 30  # overlaps say the same again


def test_motions_are_the_same_in_several_parts(run: tuple[Path, Identification], monkeypatch: pytest.MonkeyPatch):
    problem, settings, _ = open_adaptation(run[0])
    fitting, fit = finished_fit(problem, run[0], settings)
    search = next_motions._MotionSearch(fitting, fit.searched.point.x[0], fit.known.analysis)
    waves, values = torch.stack([search._waves() for _ in range(3)]), search.fitted
    together = list(search._motions(waves, values))
    monkeypatch.setattr(next_motions, "_MOST_NUMBERS", 1e5)
    apart = list(search._motions(waves, values))
    assert len(apart) == len(together) == 3
    for one, other in zip(apart, together, strict=True):
        assert one is not None
        assert other is not None
        assert torch.allclose(one[0].q, other[0].q, atol=1e-9)
        assert torch.equal(one[1], other[1])
