# SPDX-License-Identifier: Apache-2.0
"""A robot that changed is refused before anything is learned from it or said of it."""

from pathlib import Path

import msgspec
import pytest
import torch

pytest.importorskip("newton", reason="the extra sim is not installed")

from neurodyn.core.errors import MismatchError
from neurodyn.data.store import Store
from neurodyn.dynamics import NeuralDynamics, load
from neurodyn.dynamics.neural.encoding import fit_encoding
from neurodyn.dynamics.neural.model import ModelConfig, ModelSpec, build_model
from neurodyn.dynamics.same_robot import require_robot, require_same_simulator
from neurodyn.nets.networks import NetConfig
from neurodyn.robots import Robot
from neurodyn.robots import load as load_robot
from neurodyn.robots.sections import ContactPointSelection
from neurodyn.sim.generation import generate

CHANGED = r"armature of joint 'hinge' is \[0\.5\] instead of \[0\.01\]"


def heavier(robot: Robot) -> Robot:
    replace = msgspec.structs.replace
    return replace(robot, joints=(robot.joints[0], replace(robot.joints[1], armature=0.5)))


def test_the_robot_itself_is_accepted(cartpole: Robot, simulator_file: Path):
    require_same_simulator(cartpole, Store.open(simulator_file))
    require_robot(load("pretrained:cartpole"), cartpole)


def test_a_robot_that_has_not_changed_is_not_built(cartpole: Robot, simulator_file: Path, monkeypatch):
    store = Store.open(simulator_file)
    monkeypatch.setattr("neurodyn.dynamics.same_robot._robot_as_built", None)
    require_same_simulator(cartpole, store)
    with pytest.raises(TypeError):
        require_same_simulator(heavier(cartpole), store)


def test_data_from_before_the_change_are_refused(cartpole: Robot, simulator_file: Path):
    with pytest.raises(MismatchError, match=CHANGED):
        require_same_simulator(heavier(cartpole), Store.open(simulator_file))


def test_a_model_from_before_the_change_is_refused(cartpole: Robot):
    with pytest.raises(MismatchError, match=CHANGED):
        require_robot(load("pretrained:cartpole"), heavier(cartpole))


@pytest.mark.parametrize(
    ("contact_points", "message"),
    [
        (ContactPointSelection(shapes=("upper",)), r"2 contact points instead of 4 \(lacks "),
        (ContactPointSelection(spacing=2.0), r"contact points instead of 4 \(has "),
        (None, "contact points are no longer declared"),
    ],
)
def test_data_and_models_with_other_contact_points_are_refused(
    contact_points: ContactPointSelection | None, message: str, tmp_path: Path
):
    pendulum = load_robot("pendulum")
    path = tmp_path / "data.h5"
    generate(pendulum, transitions=64, out=path, worlds=4, frames=16)
    store = Store.open(path)
    require_same_simulator(pendulum, store)
    changed = msgspec.structs.replace(pendulum, contact_points=contact_points)
    with pytest.raises(MismatchError, match=rf"data do not fit robot 'pendulum'.*{message}"):
        require_same_simulator(changed, store)
    model = untrained(pendulum, store)
    require_robot(model, pendulum)
    with pytest.raises(MismatchError, match=rf"robot 'pendulum' has other contact points.*{message}"):
        require_robot(model, changed)


def untrained(robot: Robot, store: Store) -> NeuralDynamics:
    layout = store.header.contact_points
    assert layout is not None
    none = torch.zeros(2, robot.spec.nv)
    encoding = fit_encoding(robot.spec, none, none, none, layout=layout)
    config = ModelConfig(
        kind="neural", net=NetConfig(kind="mlp", width=8, depth=1), encoding=encoding.config, robot=robot.name
    )
    return build_model(config, ModelSpec(robot.spec, store.header.fingerprint, contact_points=layout))
