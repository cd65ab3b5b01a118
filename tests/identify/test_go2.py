# SPDX-License-Identifier: Apache-2.0
"""A real Unitree Go2 in the air: from its URDF and one log of positions and targets to a model, by the command line."""

from pathlib import Path

import numpy as np
import pytest

from neurodyn.cli.main import main
from neurodyn.data.header import Split
from neurodyn.data.store import Store
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.identify import AdaptationSettings
from neurodyn.identify.ladder.rungs import held_out_errors, held_out_windows
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.motors import with_motors
from neurodyn.robots import asset_path, is_installed, load
from tests.plant import repository

pytest.importorskip("newton")

LOG = repository().parent / "shared/data/go2_air/go2_air.npz"
KEPT = 0.6
PAST, HORIZON = 7, 1.0  # frames; s
CONTROLLER = "controller: {kp: 20.0, kd: 1.5}\n"
BRIEF = """
stages: [{seconds: 0.05, windows: 40, iterations: 5}, {seconds: 0.2, windows: 8, iterations: 3}]
untouched: {seconds: 0.5, windows: 8, iterations: 3}
structures: false
rollouts_each: 20
proposals: 0
reference_steps: 0
refits: 0
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not LOG.is_file(), reason="the Go2's log is not there"),
    pytest.mark.skipif(not is_installed(load("go2")), reason="no package with the Go2's URDF is installed"),
]


def cut(path: Path, rows: slice) -> None:
    log = np.load(LOG)
    np.savez(path, **{name: log[name][rows] for name in ("time", "joint_position", "joint_command")})


def test_a_real_quadruped_is_adapted_from_its_urdf_and_one_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    frames = len(np.load(LOG)["time"])
    cut(tmp_path / "first.npz", slice(round(KEPT * frames)))
    cut(tmp_path / "last.npz", slice(round(KEPT * frames), None))
    commands = [
        ["init", str(asset_path(load("go2"))), "--fixed-base", "--no-check", "--out", "go2"],
        ["inspect", "first.npz", "--robot", "./go2", "--map", "map.yaml"],
    ]
    for command in commands:
        main_of(command)
    with open("map.yaml", "a", encoding="utf-8") as columns:
        columns.write(CONTROLLER)
    Path("brief.yaml").write_text(BRIEF)
    for command in (
        ["import", "first.npz", "--reader", "map.yaml", "--alignment", "0", "--out", "first.h5"],
        ["import", "last.npz", "--reader", "map.yaml", "--alignment", "0", "--split", "test", "--out", "last.h5"],
        ["adapt", "./go2", "--data", "first.h5", "--mechanism", "--settings", "brief.yaml", "--out", "run"],
    ):
        main_of(command)
    store = Store.open("last.h5")
    robot = with_motors(load("./go2"), store)
    declared = FitModel.declared(robot, str(tmp_path / "go2"), AdaptationSettings()).dynamics(Store.open("first.h5"), 1)
    windows, frames = held_out_windows(store, Split.TEST, PAST, (HORIZON,), 60)
    assert frames == [round(HORIZON / robot.dt)]
    before, after = (
        float(held_out_errors(model, store, windows).tangents[:, -1].abs().mean())
        for model in (declared, HYBRID.load(Path("run")))
    )
    assert after < 0.25 * before


def main_of(command: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert not ended.value.code, command
