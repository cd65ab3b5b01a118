# SPDX-License-Identifier: Apache-2.0
"""`evaluate --states`: estimated states of a base beside motion capture."""

import json
from pathlib import Path

import msgspec
import pytest

from neurodyn.cli.main import main
from neurodyn.core.config import to_yaml
from neurodyn.core.errors import InputError
from neurodyn.dynamics.hybrid.declared import write_declared_hybrid
from neurodyn.evaluate import estimated_states
from neurodyn.evaluate.requests import EvaluationRequest
from tests.estimate.tripod import declaration, tracked_log


def test_states_are_compared_with_motion_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_declared_hybrid(tmp_path / "run", declaration())
    tracked_log().write(tmp_path / "log.h5")
    command = ["evaluate", str(tmp_path / "run"), "--data", str(tmp_path / "log.h5"), "--states"]
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--json", str(tmp_path / "states.json")])
    shown = capsys.readouterr().out
    assert "smoother" in shown
    assert "filter after 1 s" in shown
    ways = {one["way"]: one for one in json.loads((tmp_path / "states.json").read_text())["ways"]}
    assert ways["smoother"]["linear"] < 0.05
    assert ways["smoother"]["height"] < 0.005
    assert ways["filter after 1 s"]["height"] < 0.01


def test_sensors_sit_where_the_settings_of_the_run_say(tmp_path: Path):
    """Declared by neither robot nor log: as if the IMU sat in the base's origin, upright, without them."""
    write_declared_hybrid(tmp_path / "run", declaration())
    log = tracked_log(1)
    sensors = dict(log.header.sensors)
    msgspec.structs.force_setattr(log.header, "sensors", {})
    log.write(tmp_path / "log.h5")
    request = EvaluationRequest(str(tmp_path / "run"), data=str(tmp_path / "log.h5"), states=True)
    wrong = estimated_states(request).ways[0]
    (tmp_path / "run" / "config.yaml").write_text(to_yaml({"settings": {"sensors": sensors, "seed": 0}}))
    right = estimated_states(request).ways[0]
    assert right.linear < 0.05 < 0.3 * wrong.linear


def test_a_log_without_motion_capture_or_imu_is_refused(tmp_path: Path):
    write_declared_hybrid(tmp_path / "run", declaration())
    log = tracked_log(1)
    msgspec.structs.force_setattr(log.header, "base", "estimated")
    log.write(tmp_path / "estimated.h5")
    request = EvaluationRequest(str(tmp_path / "run"), data=str(tmp_path / "estimated.h5"), states=True)
    with pytest.raises(InputError, match="a log with motion capture"):
        estimated_states(request)
    with pytest.raises(InputError, match="name one with --data"):
        estimated_states(EvaluationRequest(str(tmp_path / "run"), states=True))
