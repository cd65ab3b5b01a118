# SPDX-License-Identifier: Apache-2.0
"""Small models, fitted in seconds to short roll-outs of the simulator."""

from pathlib import Path

import numpy as np
import pytest
import torch

from neurodyn import robots
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.neural.base_prediction import BasePrediction
from neurodyn.dynamics.neural.encoding import fit_encoding
from neurodyn.dynamics.neural.model import NEURAL, ModelConfig, ModelSpec, build_model
from neurodyn.nets.networks import NetConfig
from neurodyn.sim.newton.articulation import newton_articulation

pytest.importorskip("newton")

TILTED = Path(__file__).resolve().parents[1] / "sim" / "assets" / "tilted.yaml"
NETS = {
    "gru": NetConfig(kind="gru", width=24, depth=1, head=0),
    "mlp": NetConfig(kind="mlp", width=48, depth=2),
    "transformer": NetConfig(kind="transformer", width=16, depth=1, heads=2, window=4, head=0),
}


def make_run(folder: Path, name: str, net: NetConfig, *, steps: int = 60) -> Path:
    from neurodyn.sim.newton.fingerprints import fingerprint
    from neurodyn.sim.newton.simulator import ReferenceSimulator
    from neurodyn.sim.sampling import sample_states, sample_torques

    robot = robots.load(name)
    rng = np.random.default_rng(0)
    simulator = ReferenceSimulator(robot, 128)
    torques = sample_torques(robot, 128, 12, rng)
    q, qd = simulator.rollout(*sample_states(robot, 128, rng), torques)
    dq, dqd = position_difference(robot.spec, q[:, 1:], q[:, :-1]), qd[:, 1:] - qd[:, :-1]
    encoding = fit_encoding(robot.spec, qd[:, :-1].flatten(0, 1), dq.flatten(0, 1), dqd.flatten(0, 1))
    torch.manual_seed(0)
    config = ModelConfig(kind="neural", net=net, encoding=encoding.config, robot=name)
    model = build_model(config, ModelSpec(state=robot.spec, fingerprint=fingerprint(simulator.model)))
    base_prediction = BasePrediction(q[:, :-1], qd[:, :-1])
    inputs = model.encoding.encode(base_prediction, torques)
    targets = model.encoding.target(base_prediction, q[:, 1:], qd[:, 1:])
    model.predictor.fit(inputs.flatten(0, 1), targets.flatten(0, 1))
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        loss = (model(q[:, :-1], qd[:, :-1], torques)[1] - model.predictor.normalise_target(targets)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    NEURAL.save(folder, model)
    return folder


@pytest.fixture(scope="session", params=sorted(NETS))
def any_run(request, tmp_path_factory):
    return make_run(tmp_path_factory.mktemp(request.param), "cartpole", NETS[request.param])


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A cartpole with memory, so that history matters."""
    return make_run(tmp_path_factory.mktemp("memory"), "cartpole", NETS["gru"])


@pytest.fixture(scope="session")
def tilted_run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("tilted"), str(TILTED), NETS["mlp"], steps=20)


def make_contact_run(folder: Path, name: str, net: NetConfig) -> Path:
    """Save a model that feels the ground, with random weights: what it predicts depends on all that it is given."""
    from neurodyn.dynamics.neural.encoding import ContactConfig, EncodingConfig, default_margins
    from neurodyn.sim import build
    from neurodyn.sim.contact_points import contact_point_layout
    from neurodyn.sim.newton.fingerprints import fingerprint

    robot = robots.load(name)
    built = build(robot)
    layout = contact_point_layout(newton_articulation(built, robot), robot)
    encoding = EncodingConfig(
        invariant=(),
        limits=(),
        kappa=(1.0,) * robot.spec.nv,
        velocity_products=False,
        base_com=layout.base_com,
        contact=ContactConfig(margins=default_margins(layout, 0.3)),
    )
    torch.manual_seed(0)
    config = ModelConfig(kind="neural", net=net, encoding=encoding, robot=name)
    spec = ModelSpec(state=robot.spec, fingerprint=fingerprint(built), contact_points=layout)
    model = build_model(config, spec)
    inputs = torch.randn(512, model.encoding.inputs)
    model.predictor.fit(inputs, 0.02 * torch.randn(512, model.encoding.outputs))
    for weight in model.predictor.parameters():  # the output layer begins at zero
        torch.nn.init.normal_(weight, std=0.3)
    NEURAL.save(folder, model)
    return folder


@pytest.fixture(scope="session", params=["gru", "transformer"])
def any_ant_run(request, tmp_path_factory):
    return make_contact_run(tmp_path_factory.mktemp(f"ant-{request.param}"), "ant", NETS[request.param])


@pytest.fixture(scope="session")
def ant_run(tmp_path_factory):
    return make_contact_run(tmp_path_factory.mktemp("ant"), "ant", NETS["gru"])


@pytest.fixture(scope="session")
def pendulum_run(tmp_path_factory):
    return make_contact_run(tmp_path_factory.mktemp("pendulum"), "pendulum", NETS["mlp"])


@pytest.fixture(scope="session")
def anymal_run(tmp_path_factory):
    if not robots.is_installed(robots.load("anymal-c")):
        pytest.skip("the asset of anymal-c needs the extra 'robots'")
    return make_contact_run(tmp_path_factory.mktemp("anymal"), "anymal-c", NETS["mlp"])
