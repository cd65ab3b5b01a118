# SPDX-License-Identifier: Apache-2.0
"""Discovery of augmentations: friction that a model lacks is found where it acts, and nowhere else."""

import pytest
import torch

from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.description.contacts import ChainJoint
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.discovery.sparse_groups import (
    DiscoverySettings,
    default_candidates,
    discover,
    first_layers,
    shrink_,
    strengths,
    torque_sizes,
)
from neurodyn.learn.metrics import read_metrics
from neurodyn.multibody.engine import EngineConfig
from tests.learn.callbacks import StopAt, Stopped

SPEC = StateSpec(
    robot="double",
    joints=tuple(JointSpec(name=f"joint{i}", kind="revolute", continuous=True) for i in (1, 2)),
    controls=(),
    dt=0.02,
)


def pendulum(damping: float) -> HybridDynamics:
    """Return two rods of 1 m."""
    links = []
    for i in (0, 1):
        place = (0.0, 0.0, -1.0 if i else 0.0, 0.0, 0.0, 0.0, 1.0)
        joint = ChainJoint(
            name=f"joint{i + 1}", kind="revolute", parent=i - 1, parent_frame=place,
            child_frame=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0), axis=(0.0, 1.0, 0.0),
        )  # fmt: skip
        inertia = (0.1, 0.1, 0.01, 0.0, 0.0, 0.0)
        links.append(Link(joint=joint, mass=1.0, com=(0.0, 0.0, -0.5), inertia=inertia, damping=damping))
    return HybridDynamics(SPEC, Mechanism(links=tuple(links)), EngineConfig(substeps=1))


def windows(truth: HybridDynamics, count: int, frames: int, seed: int) -> Windows:
    """Return roll-outs of the truth."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(count, 4, generator=generator, dtype=torch.float64) - 0.5
    controls = torch.zeros(count, frames, 0, dtype=torch.float64)
    with torch.no_grad():
        path = truth.rollout(State(4 * draw[:, :2], 6 * draw[:, 2:]), controls)
    return Windows(path.q, path.qd, controls)


@pytest.fixture(scope="module")
def logs():
    truth = pendulum(0.3)
    return windows(truth, 48, 15, 0), windows(truth, 48, 15, 1)


@pytest.mark.trains
@pytest.mark.slow
def test_friction_is_found_at_the_joints_where_it_acts_and_nowhere_else(logs):
    settings = DiscoverySettings(steps=150, refit=250, kappas=(0.1, 1.0))
    found = discover(pendulum(0.0), *logs, settings)
    assert set(found.chosen.pairs) == {("torque.joint1", "qd.joint1"), ("torque.joint2", "qd.joint2")}
    assert found.chosen.error < 0.1 * found.error_without_networks
    with torch.no_grad():
        path = found.dynamics.rollout(State(logs[1].q[:, 0], logs[1].qd[:, 0]), logs[1].control)
        bare = pendulum(0.0).rollout(State(logs[1].q[:, 0], logs[1].qd[:, 0]), logs[1].control)
    error, without = (float((p.q[:, -1] - logs[1].q[:, -1]).abs().mean()) for p in (path, bare))
    assert error < 0.15 * without


def test_every_joint_is_a_candidate_with_all_that_moves_as_inputs(logs):
    blueprint = default_candidates(pendulum(0.0), logs[0], (8,))
    assert [a.quantities for a in blueprint.augmentations] == [("torque.joint1",), ("torque.joint2",)]
    assert blueprint.augmentations[0].inputs == (
        "sin(q.joint1)", "cos(q.joint1)", "sin(q.joint2)", "cos(q.joint2)", "qd.joint1", "qd.joint2",
    )  # fmt: skip


def test_torques_are_as_large_as_inertia_times_acceleration(logs):
    sizes = torque_sizes(pendulum(0.0).mechanism, SPEC, logs[0])
    spread = (logs[0].qd.diff(dim=1) / SPEC.dt).square().mean((0, 1)).sqrt()
    assert 0.05 * spread[0] < sizes["joint1"] < 3.0 * spread[0]
    assert 0.05 * spread[1] < sizes["joint2"] < 0.4 * spread[1]


def test_a_proximal_step_leaves_zeros_and_shrinks_the_rest():
    blueprint = Blueprint((Augmentation(("torque.a",), ("x", "y"), hidden=(3,)),))
    (layer,) = layers = first_layers(blueprint)
    weights = torch.zeros(blueprint.weights, dtype=torch.float64)
    layer.of(weights).copy_(torch.tensor([[1.0, 0.01], [-2.0, 0.02], [0.05, -0.01]]))
    shrink_(weights, layers, 0.1, group=0.5)
    matrix = layer.of(weights)
    soft = torch.tensor([0.95, -1.95, 0.0], dtype=torch.float64)
    expected = soft * (1 - 0.05 * 3**0.5 / soft.norm())
    torch.testing.assert_close(matrix[:, 0], expected)
    assert (matrix[:, 1] == 0).all()
    assert strengths(weights, layers)[0].tolist() == pytest.approx([float(expected.norm()), 0.0])
    assert (weights[6:] == 0).all()


def test_refuses_candidates_that_cannot_be_told_apart(logs):
    shared = Blueprint((Augmentation(("torque.joint1", "torque.joint2"), ("qd.joint1",)),))
    with pytest.raises(InputError, match="one quantity for each"):
        discover(pendulum(0.0), *logs, candidates=shared)


@pytest.mark.slow
def test_a_discovery_that_was_stopped_goes_on_bitwise(logs, tmp_path):
    settings = DiscoverySettings(hidden=(3,), steps=4, refit=6, polish=2, kappas=(0.3, 30.0))
    whole = discover(pendulum(0.0), *logs, settings)
    with pytest.raises(Stopped):  # at the second strength, with a refit behind it
        discover(pendulum(0.0), *logs, settings, run=tmp_path, callbacks=[StopAt(18)])
    found = discover(pendulum(0.0), *logs, settings, run=tmp_path, resume=True)
    assert found.summary() == whole.summary()
    assert torch.equal(found.dynamics.weights, whole.dynamics.weights)
    refits = [line["pairs"] for line in read_metrics(tmp_path) if "pairs" in line]
    assert refits == [len(candidate.pairs) for candidate in whole.path]
