# SPDX-License-Identifier: Apache-2.0
"""Rerun files hold the links' poses and the coordinates that were recorded."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Trajectory
from neurodyn.report.recording import Recording
from neurodyn.report.recording_files import format_of, require_rerun, write_recording
from neurodyn.robots import Robot


@pytest.fixture
def recording(cartpole: Robot) -> Recording:
    q = torch.rand(2, 5, 2, dtype=torch.float64)
    paths = Trajectory(q, torch.zeros_like(q)), Trajectory(q + 0.5, torch.zeros_like(q))
    return Recording(cartpole, "at rest", *paths, "neural", "analytic", ("first", "second"))


def values(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Return columns by entity: name of the column to rows."""
    from rerun.chunk import RrdReader

    found: dict[str, dict[str, np.ndarray]] = {}
    for chunk in RrdReader(path).stream():
        batch = chunk.to_record_batch()
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if ":" in name or name == "time":
                found.setdefault(str(chunk.entity_path), {})[name] = np.array(column.to_pylist(), dtype=object)
    return found


def test_a_recording_comes_back(recording: Recording, tmp_path: Path):
    pytest.importorskip("rerun")
    pytest.importorskip("newton")
    from neurodyn.sim.pictures import link_motion

    path = tmp_path / "a.rrd"
    write_recording(recording, path, "rrd")
    found = values(path)
    for label, motion in (("neural", recording.predicted), ("analytic", recording.truth)):
        for i, name in enumerate(("slider", "hinge")):
            rows = found[f"/coordinates/{name}/{label}"]["Scalars:scalars"]
            assert [float(row[0]) for row in rows] == pytest.approx(motion.q[0, :, i].tolist())
        links = link_motion(recording.robot, motion.q[0])
        for i, name in enumerate(links.names):
            rows = found[f"/{label}/{name}"]["Transform3D:translation"]
            assert np.allclose([row[0] for row in rows], links.poses[:, i, :3], atol=1e-6)


def test_without_rerun_there_is_a_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "rerun", None)
    with pytest.raises(InputError, match=r"pip install 'neurodyn\[rerun\]'"):
        require_rerun()


def test_the_kind_of_a_recording_is_what_is_asked_or_what_the_name_says():
    assert format_of(None, None) == "html"
    assert format_of(Path("a.RRD"), None) == "rrd"
    assert format_of(Path("a.b"), "gif") == "gif"
    with pytest.raises(InputError, match=r"a\.b: no known kind of recording"):
        format_of(Path("a.b"), None)
