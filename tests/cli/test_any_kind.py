# SPDX-License-Identifier: Apache-2.0
"""`neurodyn train --kind any`: an adaptation in a time budget, which says what it picked and why."""

import numpy as np
import pytest

from neurodyn.cli.main import run
from neurodyn.core.artifacts import read_json
from neurodyn.core.config import read_plain
from neurodyn.evaluate import evaluate
from neurodyn.evaluate.run import OWN_NETWORK
from tests.cli.calls import call

ARM = """<mujoco><option gravity="0 0 -9.81"/><worldbody><body name="swing"><joint name="swing" axis="0 1 0"
damping="{damping}"/><geom type="capsule" size=".03" fromto="0 0 0 0 0 -.5" mass="1"/></body></worldbody></mujoco>"""
MAP = """robot: robot.yaml
format: npz
period: 0.01
episodes: offsets
split: split
q: {swing: {column: q}}
qd: differentiate
control: {}
"""


@pytest.fixture
def swinging(tmp_path):
    """A pendulum's declaration, and a store of swings of one with more damping."""
    mujoco = pytest.importorskip("mujoco")
    (tmp_path / "robot.xml").write_text(ARM.format(damping=0.01))
    (tmp_path / "robot.yaml").write_text(
        "name: swing\nasset: robot.xml\nfixed_base: true\njoints: [{name: swing, kind: revolute}]\nactuated: {}\n"
        "dt: 0.01\nsimulator: {solver: mujoco-c}\n"
    )
    (tmp_path / "map.yaml").write_text(MAP)
    model, q = mujoco.MjModel.from_xml_string(ARM.format(damping=0.2)), []
    for k in range(8):
        data = mujoco.MjData(model)
        data.qpos[0] = 0.4 + 0.2 * k
        for _ in range(120):
            q.append(float(data.qpos[0]))
            mujoco.mj_step(model, data, 5)
    offsets = np.arange(9) * 120
    log = tmp_path / "log.npz"
    np.savez(log, q=np.array(q), offsets=offsets, split=np.array([0, 0, 0, 0, 0, 1, 1, 2], np.int8))
    call("import", log, "--reader", tmp_path / "map.yaml", "--out", tmp_path / "log.h5")
    return tmp_path


@pytest.mark.slow
def test_the_kind_is_picked_by_held_out_errors_in_a_time_budget(swinging, capsys):
    words = ("--kind", "any", "--minutes", 0.05, "--threads", 1)
    call("train", swinging, "--data", swinging / "log.h5", "--out", swinging / "run", *words)
    told, figures = capsys.readouterr().out, read_json(swinging / "run" / "adaptation.json")
    assert set(figures["kinds"]) == {"gru", "world-model"}
    assert "beside " in told
    assert (swinging / "run" / "model").is_dir()
    assert read_plain(swinging / "run" / "config.yaml")["settings"]["minutes"] == 0.05
    assert figures["chosen"] == "identified"
    assert [rung["name"] for rung in figures["rungs"]] == ["declared", "identified"]  # networks would begin too late
    kept = swinging / "run" / "mechanism"  # beside a network that was picked
    found = evaluate(kept if kept.is_dir() else swinging / "run", data=str(swinging / "log.h5"), threads=1)
    assert set(found.beside) == {OWN_NETWORK}
    assert (not figures.get("network")) or OWN_NETWORK in str(found.verdict)


def test_flags_of_one_kind_are_refused(swinging, capsys):
    words = ["train", str(swinging), "--data", "log.h5", "--out", str(swinging / "run")]
    assert run([*words, "--kind", "any", "--net", "mlp"]) == 2
    assert "--net is for one kind; valid with --kind any: --minutes, --seed" in capsys.readouterr().err
