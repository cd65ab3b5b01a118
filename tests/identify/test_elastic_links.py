# SPDX-License-Identifier: Apache-2.0
"""An ant in plain MuJoCo whose lower legs bend, and the springs that an adaptation finds in them."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from neurodyn.data.header import Split, StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter
from neurodyn.identify import AdaptationSettings, Identification, adapt
from neurodyn.identify.ladder.structures import SPRINGS
from neurodyn.identify.settings import FitStage
from neurodyn.identify.stages.stage_windows import past_frames
from neurodyn.report.adaptation import unexplained_tables
from neurodyn.robots import load

pytest.importorskip("newton")

ROOT = Path(__file__).resolve().parents[2]
ANKLES = {f"ankle_{leg}" for leg in (1, 2, 3, 4)}
SETTINGS = AdaptationSettings(
    quantities=("*.damping", "motors.delay"), stages=(FitStage(0.05, 40, 2),), screen=40, screen_iterations=3,
    networks=False, rollouts_each=10, seconds=(0.05, 0.15), proposals=0, reference_steps=0, refits=0,
)  # fmt: skip


def elastic_log(path: Path, *, episodes: int = 12, frames: int = 60) -> Store:
    """Write a log of an ant as declared but for springs in its lower legs, under random torques."""
    kind = runpy.run_path(str(ROOT / "examples" / "worn_ant.py"))["ElasticAnt"]
    ant = type("ElasticLegs", (kind,), {"wear": 0.0})()
    ant.random, robot = np.random.default_rng(0), load("ant")
    q, qd, control = (np.zeros((episodes, frames + 1, width), np.float32) for width in (15, 14, 8))
    for episode in range(episodes):
        ant.reset()
        for frame in range(frames + 1):
            seen = ant.observe()
            q[episode, frame], qd[episode, frame] = seen["q"], seen["qd"]
            control[episode, frame] = ant.random.uniform(-100, 100, 8)
            ant.command(control[episode, frame])
    split = np.full(episodes, Split.TRAIN, np.int8)
    split[-4:] = Split.VALIDATION
    with StoreWriter(path, StoreHeader(spec=robot.spec, source="log")) as writer:
        writer.append(q, qd, control[:, :-1], lengths=np.full(episodes, frames), split=split)
    return Store.open(path)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "elastic.h5"
    elastic_log(path)
    return path


@pytest.fixture(scope="module")
def found(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Identification:
    return adapt("ant", log, tmp_path_factory.mktemp("runs") / "elastic", settings=SETTINGS, threads=1)


@pytest.mark.slow
def test_springs_explain_the_ankles(found: Identification):
    figures = found.figures
    assert SPRINGS in figures.structure
    before, after = (
        {one.name: one.error for one in which} for which in (figures.unexplained_before, figures.unexplained)
    )
    assert {one.name for one in figures.unexplained_before[:6]} >= ANKLES
    assert all(after[name] < 0.65 * before[name] for name in ANKLES)
    assert [one.title for one in unexplained_tables(figures)] == [
        "Unexplained by the identified model [rad or m]",
        "Unexplained with rigid links [rad or m]",
    ]


@pytest.mark.slow
def test_springs_swing_before_a_window_begins(found: Identification):
    assert past_frames(found.dynamics, SETTINGS) == 12  # .2 s
