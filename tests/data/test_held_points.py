# SPDX-License-Identifier: Apache-2.0
"""Pivots that a log has no column for: found from the motion of their points."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks._whole_walks import whole_walks

from neurodyn.cli.main import run
from neurodyn.core.errors import InputError
from neurodyn.data import Store
from neurodyn.data.held_points import HeldPoints
from neurodyn.data.readers import read_column_map, read_logs
from neurodyn.robots import load
from neurodyn.sim.pivots import pivot_places

ROBOT = Path(__file__).resolve().parents[2] / "examples" / "real_robots" / "compass_walk" / "robot.yaml"
LOG = Path(__file__).resolve().parents[3] / "shared" / "data" / "compass_gait" / "compass_gait.npz"
LENGTH = 0.2778
STEPS, LONG = 6, 0.7
MAP = f"""robot: {ROBOT}
format: npz
time: time
q:
  hip_x: {{column: "place[0]"}}
  hip_z: {{column: "place[1]"}}
  outer_leg: {{column: outer_leg}}
  hip: {{column: hip}}
qd: differentiate
control: {{hip: {{column: torque}}, outer_foot: FOUND, inner_foot: FOUND}}
alignment: 0
"""


@pytest.fixture
def walk():
    """A walk over six steps: each leg in turn stands, with encoder noise of a quarter of a milliradian."""
    time = 0.005 * np.arange(round(STEPS * LONG / 0.005))
    step, share = np.divmod(time / LONG, 1.0)
    stance, swing = -0.2 * np.cos(np.pi * share), 0.2 * np.cos(np.pi * share)
    outer_stands = step % 2 == 0
    foot = 2.0 * step * LENGTH * np.sin(0.2)
    rng = np.random.default_rng(0)
    noise = rng.normal(0.0, 2.5e-4, (2, len(time)))
    outer, inner = np.where(outer_stands, (stance, swing), (swing, stance)) + noise
    place = np.stack([foot + LENGTH * np.sin(stance), LENGTH * np.cos(stance)], 1)
    return {
        "time": time, "outer_leg": outer, "hip": inner - outer, "place": place, "torque": np.zeros(len(time)),
        "outer": outer_stands,
    }  # fmt: skip


def imported(folder, walk, text=MAP, found="found"):
    log, columns, out = (folder / name for name in ("walk.npz", "map.yaml", "walk.h5"))
    np.savez(log, **walk)
    columns.write_text(text.replace("FOUND", found))
    return run(["import", str(log), "--reader", str(columns), "--out", str(out), "--split", "train"])


def test_stance_feet_are_found_and_told(walk, tmp_path, capsys):
    assert imported(tmp_path, walk) == 0
    assert "outer_foot: found from the motion of its point: held 3 times, 0.7" in capsys.readouterr().out
    store = Store.open(tmp_path / "walk.h5")
    outer = np.interp(0.005 + 0.01 * np.arange(len(store.control) - 1), walk["time"], walk["outer"].astype(float)) > 0.5
    for column, stands in ((1, outer), (2, ~outer)):
        assert np.mean((store.control[:-1, column] > 0.5) == stands) > 0.98


def test_a_found_pivot_needs_the_robot(walk, tmp_path):
    np.savez(tmp_path / "walk.npz", **walk)
    (tmp_path / "map.yaml").write_text(MAP.replace("FOUND", "found"))
    with pytest.raises(InputError, match="control: found needs the links of a robot with pivots"):
        read_logs([tmp_path / "walk.npz"], read_column_map(tmp_path / "map.yaml"), load(str(ROBOT)).spec)


def test_a_motor_is_not_found(walk, tmp_path, capsys):
    assert imported(tmp_path, walk, MAP.replace("hip: {column: torque}", "hip: found")) == 2
    assert "'hip' is to be found, but is no pivot; valid: a column, or found for" in capsys.readouterr().err


def test_points_that_always_move_are_refused(tmp_path, walk, capsys):
    walk["place"] = walk["place"] + np.stack([3.0 * walk["time"], 0.0 * walk["time"]], 1)
    assert imported(tmp_path, walk) == 2
    assert "do not rest at some times and move at others" in capsys.readouterr().err


@pytest.mark.skipif(not LOG.exists(), reason=f"{LOG} is absent")
def test_feet_of_the_real_compass_walk_are_those_of_its_column():
    source = np.load(LOG)
    walks = whole_walks(source)
    places = pivot_places(load(str(ROBOT)))
    assert places is not None
    q = np.column_stack([walks["place"], walks["outer_leg"], walks["hip"]])
    runs = [slice(*ends) for ends in np.stack([walks["offsets"][:-1], walks["offsets"][1:]], 1)]
    found = HeldPoints.fit(places, [(walks["time"][one], q[one]) for one in runs])
    agree = [
        (found(walks["time"][one], q[one])[name] > 0.5) == (walks["held"][one, column] > 0.5)
        for one in runs
        for column, name in enumerate(("outer_foot", "inner_foot"))
    ]
    assert np.concatenate(agree).mean() > 0.99
