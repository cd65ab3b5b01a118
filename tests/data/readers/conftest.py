# SPDX-License-Identifier: Apache-2.0
"""A small robot, its column maps, and logs of a simulated pendulum."""

import numpy as np
import pytest

from neurodyn.core.config import from_dict
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.data.readers import ColumnMap

SPEC = StateSpec(
    robot="arm",
    joints=(JointSpec(name="lift", kind="prismatic"), JointSpec(name="turn", kind="revolute", continuous=True)),
    controls=("lift", "turn"),
    dt=0.02,
)
PENDULUM = StateSpec(
    robot="pendulum", joints=(JointSpec(name="hinge", kind="revolute", continuous=True),), controls=("hinge",), dt=0.01
)


MAPS = {
    "csv": {
        "format": "csv",
        "time": "t",
        "q": {"lift": {"column": "x"}, "turn": {"column": "a"}},
        "qd": {"lift": {"column": "dx"}, "turn": {"column": "da"}},
        "control": {"lift": {"column": "f"}, "turn": {"column": "m"}},
        "alignment": 0.0,
    },
    "npz": {
        "format": "npz",
        "time": "time",
        "q": {"lift": {"column": "pos[0]"}, "turn": {"column": "pos[1]"}},
        "qd": {"lift": {"column": "vel[0]"}, "turn": {"column": "vel[1]"}},
        "control": {"lift": {"column": "tau[0]"}, "turn": {"column": "tau[1]"}},
        "episodes": "offsets",
        "alignment": 0.0,
    },
}
"""Maps of `arm` logs in SI units."""
NAMES = {"split": "split", "group": "group", "group_names": "group_name", "run_names": "run_name"}


def csv_map(**changes):
    return from_dict({**MAPS["csv"], **changes}, ColumnMap)


def npz_map(**changes):
    return from_dict({**MAPS["npz"], **NAMES, **changes}, ColumnMap)


def smooth_motion(time):
    """Positions, velocities and controls that have known derivatives; shapes [N, 2]."""
    q = np.stack((0.3 * np.sin(2 * time), 1.5 * time + 0.2 * np.cos(3 * time)), axis=1)
    qd = np.stack((0.6 * np.cos(2 * time), 1.5 - 0.6 * np.sin(3 * time)), axis=1)
    return q, qd, np.stack((np.sin(time), 0.5 + time), axis=1)


def write_csv(path, time, names="t x a dx da f m", scale=1.0):
    q, qd, control = smooth_motion(time)
    rows = np.concatenate((time[:, None], scale * q, scale * qd, control), axis=1)
    lines = [",".join(names.split()), *(",".join(f"{value:.17g}" for value in row) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def npz_arrays(runs=3, rows=101, dt=0.02):
    time = np.tile(dt * np.arange(rows), runs)
    q, qd, control = smooth_motion(time)
    return {
        "time": time,
        "pos": q,
        "vel": qd,
        "tau": control,
        "offsets": rows * np.arange(runs + 1),
        "run_name": np.array([f"run{index}" for index in range(runs)]),
        "group": np.arange(runs) % 2,
        "group_name": np.array(["even", "odd"]),
        "split": np.array([0, 1, 2] * runs)[:runs],
    }


def simulate_pendulum(seconds=40.0, step=0.002, delay=0, seed=0, noise=0.0):
    """A damped pendulum whose torque acts `delay` steps after it is logged; time, q, qd, logged torque."""
    rng = np.random.default_rng(seed)
    count = round(seconds / step)
    torque = np.repeat(rng.uniform(-2, 2, count // 20 + 1), 20)[:count] + 0.3 * rng.normal(size=count)
    q, qd = np.zeros(count), np.zeros(count)
    for k in range(count - 1):
        acting = torque[k - delay] if k >= delay else 0.0
        qd[k + 1] = qd[k] + step * (acting - 0.1 * qd[k] - 6.0 * np.sin(q[k]))
        q[k + 1] = q[k] + 0.5 * step * (qd[k] + qd[k + 1])
    return step * np.arange(count), q, qd + noise * rng.normal(size=count), torque


@pytest.fixture
def npz_file(tmp_path):
    path = tmp_path / "log.npz"
    np.savez(path, **npz_arrays())
    return path
