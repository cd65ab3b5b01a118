# SPDX-License-Identifier: Apache-2.0
"""The motion that an adaptation proposes is proposed again, played on a robot and in the model, and logged."""

from pathlib import Path

import numpy as np
import pytest

from neurodyn.cli.main import run as cli
from neurodyn.control.robot.motion import play_next_motion, read_motion
from neurodyn.core.artifacts import read_json
from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.identify import AdaptationSettings, adapt
from neurodyn.identify.run import next_motion
from neurodyn.identify.settings import FitStage
from tests.identify.two_joint_arm import declared, plant, text, write_log

SETTINGS = AdaptationSettings(
    stages=(FitStage(0.05, 150, 4), FitStage(0.25, 60, 4)), screen=60, networks=False, proposals=2,
    proposal_seconds=4.0, rollouts_each=20, reference_steps=0, refits=0,
)  # fmt: skip
WORN = {"friction": 0.3, "load": 0.4}
ROBOT = '''
import mujoco
import numpy as np


class Arm:
    """Stands where it was told to."""

    rate = 100.0
    realtime = False
    control = "command"
    start = {start}

    def __init__(self):
        self.model = mujoco.MjModel.from_xml_string("""{xml}""")
        self.model.opt.timestep = 0.001
        self.data = mujoco.MjData(self.model)

    def reset(self):
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = self.data.ctrl[:] = self.start
        mujoco.mj_step(self.model, self.data, 1500)

    def observe(self):
        return dict(q=self.data.qpos.tolist(), qd=self.data.qvel.tolist())

    def command(self, values):
        self.data.ctrl[:] = values
        mujoco.mj_step(self.model, self.data, 10)

    def stop(self):
        pass
'''


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arm")
    robot = declared(folder / "robot")
    write_log(folder / "log.h5", robot, plant(**WORN))
    adapt(folder / "robot", folder / "log.h5", folder / "run", settings=SETTINGS, threads=1)
    return folder / "run"


def arm(folder: Path, start: list[float]) -> str:
    (folder / "arm.py").write_text(ROBOT.format(xml=text(**WORN), start=start))
    return f"{folder / 'arm.py'}:Arm"


@pytest.mark.slow
def test_a_robot_makes_the_motion_and_its_log_is_imported(run: Path, tmp_path: Path):
    robot = declared(tmp_path / "robot")
    commands, _ = read_motion(run / "next-motion.csv", robot)
    out = tmp_path / "second"
    assert cli(["next-motion", str(run), "--robot", arm(tmp_path, commands[0].tolist()), "--out", str(out)]) == 0
    given = ["--reader", str(out / "robot.yaml"), "--robot", str(tmp_path / "robot"), "--out", str(tmp_path / "2.h5")]
    assert cli(["import", str(out / "robot.csv"), *given]) == 0
    store = Store.open(tmp_path / "2.h5")
    assert store.header.spec.control_kind == robot.command
    q, _, control = store.episode(0)
    assert control[:100] == pytest.approx(commands[:100].numpy(), abs=1e-5)
    assert np.ptp(q, axis=0).min() > 0.05


@pytest.mark.slow
def test_a_robot_that_is_elsewhere_is_not_moved(run: Path, tmp_path: Path):
    with pytest.raises(InputError, match=r"shoulder is at .* after reset\(\), and the motion begins at"):
        play_next_motion(run, arm(tmp_path, [1.5, 0.0]), tmp_path / "second")


@pytest.mark.slow
def test_the_model_makes_the_motion_that_it_expects(run: Path, tmp_path: Path):
    log = play_next_motion(run, "model", tmp_path)
    logged = np.genfromtxt(log, delimiter=",", names=True)
    expected = np.genfromtxt(run / "next-motion-expected.csv", delimiter=",", names=True)
    assert len(logged) == len(expected) == 400
    assert np.abs(logged["qshoulder"] - expected["qshoulder"]).max() < 0.01


@pytest.mark.slow
def test_a_motion_is_proposed_again_with_other_limits(run: Path):
    motion = next_motion(run, seconds=3.0, limits=None, threads=1)
    assert motion.seconds == pytest.approx(3.0)
    saved = read_json(run / "adaptation.json")
    assert saved["next"]["seconds"] == pytest.approx(3.0)
    assert "errors" in saved or saved["rungs"]


def test_no_run_no_motion(tmp_path: Path):
    with pytest.raises(InputError, match="no finished run of neurodyn adapt"):
        next_motion(tmp_path)
    with pytest.raises(InputError, match="no finished run of neurodyn adapt"):
        play_next_motion(tmp_path, "model")
