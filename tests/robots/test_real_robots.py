# SPDX-License-Identifier: Apache-2.0
"""The declarations and maps of examples/real_robots read logs with the columns that they name."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks._whole_walks import LENGTH, STEP, whole_walks

from neurodyn.data import Split, Store, import_logs, read_column_map
from neurodyn.robots import load

ROBOTS = Path(__file__).resolve().parents[2] / "examples" / "real_robots"
NAMES = sorted(path.parent.name for path in ROBOTS.glob("*/robot.yaml"))
ROWS = 240


def columns(text: str) -> dict[str, int]:
    """Return the arrays that a map names, with the columns that it reads of each."""
    widths: dict[str, int] = {}
    for word in text.replace('"', "'").replace("[", " [").replace(",", " ").replace("}", " ").split("\n"):
        name = ""
        for part in word.replace("'", " ").split():
            if part.startswith("[") and part.endswith("]") and part[1:-1].isdigit() and name:
                widths[name] = max(widths.get(name, 0), int(part[1:-1]) + 1)
            name = part
    return widths


def test_the_log_that_ships_is_imported_with_the_map_beside_it(tmp_path: Path):
    folder = ROBOTS / "go2"
    spec = load(str(folder)).spec
    import_logs([folder / "log.npz"], read_column_map(folder / "map.yaml"), spec, tmp_path / "log.h5")
    store = Store.open(tmp_path / "log.h5")
    assert [len(store.episodes(split)) for split in (Split.TRAIN, Split.VALIDATION, Split.TEST)] == [5, 1, 2]
    assert store.lengths.sum() * spec.dt == pytest.approx(16.4, abs=0.1)
    assert (folder / "log.npz").stat().st_size < 1_000_000


@pytest.mark.parametrize("name", NAMES)
def test_a_map_fits_its_robot(tmp_path: Path, name: str):
    robot = load(str(ROBOTS / name))
    assert robot.log_path is not None
    text, mapped = robot.log_path.read_text(), read_column_map(robot.log_path)
    rate = 2000 if name == "cassie" else 1000 if name in ("single", "double", "triple", "hopper") else 200
    time = np.arange(ROWS) / (mapped.rate or rate)
    wave = 0.3 * np.sin(2.0 * np.pi * time / time[-1])
    log: dict[str, np.ndarray] = {"time": time, "offsets": np.array([0, ROWS // 3, 2 * ROWS // 3, ROWS])}
    log |= {array: np.stack([wave] * width, -1) for array, width in columns(text).items()}
    log.setdefault("ati_force", np.stack([wave] * 3, -1))
    for array in ("position", "goal", "target", "torque", "outer_leg", "hip"):
        log.setdefault(array, wave)
    runs = 3
    log |= {"split": np.arange(runs), "run_names": np.array(["a_swing1", "b_swing2", "c_swing3"])}
    log |= {"group": np.zeros(runs, int), "group_names": np.array(["all"]), "tau_meas": log.get("tau_meas", wave)}
    log |= {"side": np.zeros(runs, int), "side_names": np.array(["left"])}
    if name == "crazyflie":
        zero = np.zeros((ROWS, 3))
        log |= {"position": zero + time[:, None], "velocity": zero + 1.0, "gyro": zero}
        log["quaternion_xyzw"] = np.tile([0.0, 0.0, 0.0, 1.0], (ROWS, 1))
    if name == "xl330":
        log |= {"torque_enable": np.ones(ROWS), "firmware_gain": np.full(ROWS, 400.0)}  # pieces end where they change
    if name == "cassie":
        log["x"][:, :4], log["x"][:, 23:29] = [1.0, 0.0, 0.0, 0.0], 0.0
        log["x"][:, 4:7] = 0.0
    np.savez(tmp_path / "log.npz", **log)
    import_logs([tmp_path / "log.npz"], mapped, robot.spec, tmp_path / "log.h5")
    store = Store.open(tmp_path / "log.h5")
    assert store.lengths.sum() > 0
    assert np.isfinite(store.episode(0)[0]).all()


def test_whole_walks_stand_on_one_foot_after_the_other():
    """Two steps whose rows beside the impact are missing: outer, then inner leg."""
    whole = STEP * np.arange(215)
    outer, inner = 0.3 * np.cos(3.0 * whole), -0.3 * np.cos(3.0 * whole)  # both feet meet the ground at .52 s
    kept = np.r_[0:97, 111:215]
    first = len(kept[kept < 97])
    stance = np.where(kept < 97, outer[kept], inner[kept])
    swing = np.where(kept < 97, inner[kept], outer[kept])
    log = {
        "time": whole[kept], "q": np.stack([stance, swing - stance], 1), "torque": np.full(len(kept), 0.1),
        "offsets": np.array([0, first, len(kept)]), "side": np.array([1, 0]), "walk": np.array([4, 4]),
    }  # fmt: skip
    walk = whole_walks(log)
    assert walk["offsets"].tolist() == [0, 215]
    assert walk["walk"].tolist() == [4]
    assert np.abs(walk["outer_leg"] - outer).max() < 1e-3
    assert np.abs(walk["hip"] - (inner - outer)).max() < 2e-3
    held = walk["held"].argmax(1)
    assert (np.flatnonzero(np.diff(held)) == [103]).all()  # in the middle of what is missing
    legs = np.stack([walk["outer_leg"], walk["outer_leg"] + walk["hip"]], 1)
    foot = walk["place"] - LENGTH * np.stack([np.sin(legs), np.cos(legs)], 1)[np.arange(215), :, held]
    assert np.ptp(foot[:104], axis=0).max() < 1e-12
    assert np.ptp(foot[104:], axis=0).max() < 1e-12
    assert np.abs(np.diff(walk["place"], axis=0)).max() < 0.01  # no jump at the switch
    assert walk["torque"][:97] == pytest.approx(0.1)
    assert walk["torque"][111:] == pytest.approx(-0.1)  # on the hip, whose child is the inner leg
