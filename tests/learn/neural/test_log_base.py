# SPDX-License-Identifier: Apache-2.0
"""Known physics under a network that learns from logs: the declared mechanism, or the one that was identified."""

import json
from pathlib import Path

import msgspec
import pytest
import torch

from neurodyn.core.description.drive import Drive
from neurodyn.core.errors import InputError, Notice
from neurodyn.dynamics.artifact import load, save
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.behind_drives import put_behind_drives
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.same_robot import as_declared
from neurodyn.learn.neural.settings import load_settings
from neurodyn.learn.neural.train import known_base
from neurodyn.learn.training import train
from neurodyn.robots import load as load_robot
from tests import stand_in

FOUND = ("slider.mass=60:10:200", "slider.damping=40:0:100", "hinge.damping=.15:0:1")


@pytest.fixture(scope="module", params=[True, False], ids=["targets", "torques"])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "log.h5"
    stand_in.log(targets=request.param).write(path)
    return path


def test_a_log_gets_mechanism_and_substeps_of_the_declaration():
    found = as_declared(load_robot("cartpole"), stand_in.log(2, 5)).header
    assert found.mechanism is not None
    assert found.mechanism.drives["slider"] == Drive(kind="pd", kp=800.0, kd=250.0, effort_limit=1500.0)
    assert found.simulator is not None
    assert found.simulator["substeps"] == 5
    assert found.source == "log"


def test_a_base_of_a_log_is_what_the_network_begins_from(log: Path, tmp_path: Path):
    train("cartpole", log, tmp_path / "run", base="contact", steps=1, seed=0)
    model = load(tmp_path / "run")
    assert model.from_logs
    alone = model.base_alone()
    robot = load_robot("cartpole")
    declared: Dynamics = declared_hybrid(robot)
    if model.spec.control_kind == "target":
        declared = put_behind_drives(declared, robot.behind(stand_in.DRIVES).drives)
    store = stand_in.log(2, 5)
    start = State(torch.tensor(store.q[:3]), torch.tensor(store.qd[:3]))
    command = torch.full((3, 4, 1), 0.5 if model.spec.control_kind == "target" else 200.0)
    torch.testing.assert_close(
        alone.rollout(start, command).q[:, -1], declared.rollout(start, command).q[:, -1].float(), rtol=0, atol=2e-4
    )


def test_a_base_may_be_the_run_of_an_identified_model(log: Path, tmp_path: Path):
    """Its error before any training is that of the identified mechanism, far below the declared one's."""
    model = declared_hybrid("cartpole", parameters=FOUND)
    save(tmp_path / "found", model)
    scores = {}
    for base in ("contact", str(tmp_path / "found")):
        out = tmp_path / f"run-{len(scores)}"
        train("cartpole", log, out, base=base, steps=1, seed=0)
        scores[base] = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])["rollout_score"]
    declared, found = scores.values()
    assert found < 0.6 * declared


def test_late_drives_of_a_base_are_left_to_the_network():
    robot = load_robot("cartpole")
    late = msgspec.structs.replace(robot, drives={"slider": Drive(lag=0.02, delay=0.01)})
    header = as_declared(late, stand_in.log(2, 5)).header
    settings = msgspec.structs.replace(load_settings(robot, "small"), base="contact")
    with pytest.warns(Notice, match=r"delay, lag and spring of the drives \(slider\) are left to the network"):
        _, mechanism = known_base(settings, header)
    assert mechanism is not None
    assert not mechanism.drives["slider"].remembers


def test_a_base_that_is_no_run_is_refused(log: Path, tmp_path: Path):
    with pytest.raises(
        InputError, match="unknown base 'nowhere'; valid: contact, free, impulses, or the run of a hybrid model"
    ):
        train("cartpole", log, tmp_path / "run", base="nowhere")
