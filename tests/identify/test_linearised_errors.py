# SPDX-License-Identifier: Apache-2.0
"""Tests of roll-out errors that are linearised along a log."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.data.header import StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, select_windows
from neurodyn.data.writer import StoreWriter
from neurodyn.dynamics.batch import RecordedEnvironments, State, Window
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.ladder.linearised_errors import TorqueNetworks, can_be_linearised, linearise_along
from neurodyn.learn.hybrid import split_weights

PAST, SETTLING, FRAMES = 3, 4, 12
NETWORKS = Blueprint(
    (
        Augmentation(
            ("torque.slider", "torque.hinge"),
            ("q.slider", "qd.slider", "sin(q.hinge)", "cos(q.hinge)", "qd.hinge", "control.slider"),
            hidden=(8,), memory=3, input_scale=(0.5, 2.0, 1.0, 1.0, 2.0, 5.0), output_scale=(0.5, 0.02),
        ),
    )
)  # fmt: skip


@pytest.fixture(scope="module")
def models() -> tuple[HybridDynamics, HybridDynamics]:
    """A cart-pole with a late motor, without and with networks."""
    plain = declared_hybrid("cartpole", substeps=4)
    made = HybridDynamics(
        plain.spec, plain.mechanism, msgspec.structs.replace(plain.config, blueprint=NETWORKS), (), scene=plain.scene,
        declaration="cartpole", seed=3,
    )  # fmt: skip
    with torch.no_grad():
        made.weights.copy_(0.4 * torch.randn(len(made.weights), generator=torch.Generator().manual_seed(1)))
    return plain, made


@pytest.fixture(scope="module")
def windows(models: tuple[HybridDynamics, HybridDynamics], tmp_path_factory: pytest.TempPathFactory) -> Windows:
    """Motion of the model with networks, from which the one without differs by their effect."""
    plain, made = models
    random = np.random.default_rng(0)
    control = torch.from_numpy(np.repeat(random.uniform(-4.0, 4.0, (3, 12, 1)), 5, axis=1))
    start = torch.from_numpy(random.uniform(-0.5, 0.5, (3, 4)))
    with torch.no_grad():
        path = made.rollout(State(start[:, :2], start[:, 2:]), control)
    file = tmp_path_factory.mktemp("log") / "log.h5"
    with StoreWriter(str(file), StoreHeader(spec=plain.spec, source="log")) as writer:
        writer.append(path.q, path.qd, control)
    return select_windows(Store.open(file), None, PAST + SETTLING + FRAMES, stride=4)


def _networks(made: HybridDynamics, scale: float) -> TorqueNetworks:
    """Return the networks with a share of their torques."""
    leaves = [leaf.clone() for leaf in split_weights(NETWORKS, made.weights)]
    leaves[-2][:2] *= scale
    leaves[-1][:2] *= scale
    return TorqueNetworks(NETWORKS.augmentations, leaves, made.spec.dt, made.config.substeps)


def _simulated(made: HybridDynamics, windows: Windows, scale: float) -> torch.Tensor:
    """Return the errors of true roll-outs after windows' past, shape [W, FRAMES, 2 nv]."""
    weights = torch.cat([leaf.flatten() for leaf in _scaled(made, scale)])
    begin = PAST + SETTLING
    past = Window(windows.q[:, : begin + 1], windows.qd[:, : begin + 1], windows.control[:, :begin])
    with torch.no_grad():
        path = made.simulate(past, windows.control[:, begin:], made.physical(), weights)
    return torch.cat([path.q - windows.q[:, begin:], path.qd - windows.qd[:, begin:]], -1)[:, 1:]


def _scaled(made: HybridDynamics, scale: float) -> list[torch.Tensor]:
    leaves = [leaf.clone() for leaf in split_weights(NETWORKS, made.weights)]
    leaves[-2][:2] *= scale
    leaves[-1][:2] *= scale
    return leaves


@pytest.mark.parametrize("scale", [0.0, 0.5])
def test_linearised_errors_are_those_of_roll_outs(
    models: tuple[HybridDynamics, HybridDynamics], windows: Windows, scale: float
):
    plain, made = models
    assert can_be_linearised(plain, NETWORKS)
    errors = linearise_along(plain, made, windows, PAST, SETTLING, RecordedEnvironments.like(plain.home))
    linear = errors.roll_out(_networks(made, scale)).double()
    true = _simulated(made, windows, scale)
    assert linear.shape == true.shape
    assert float((linear - true).abs().max()) < 0.05 * float(true.abs().max())


def test_roll_outs_from_other_first_states_begin_with_their_errors(
    models: tuple[HybridDynamics, HybridDynamics], windows: Windows
):
    plain, made = models
    counted = windows.after(PAST + SETTLING)
    moved = replace(counted, q=counted.q + 0.01, qd=counted.qd - 0.02)
    where = RecordedEnvironments.like(plain.home)
    errors = linearise_along(plain, made, windows, PAST, SETTLING, where, moved)
    same = linearise_along(plain, made, windows, PAST, SETTLING, where)
    silent = _networks(made, 0.0)
    before = PAST + SETTLING
    past = Window(
        torch.cat([windows.q[:, :before], moved.q[:, :1]], 1), torch.cat([windows.qd[:, :before], moved.qd[:, :1]], 1),
        windows.control[:, :before],
    )  # fmt: skip
    with torch.no_grad():
        path = plain.simulate(past, windows.control[:, before:], plain.physical(), plain.weights)
    true = torch.cat([path.q - windows.q[:, before:], path.qd - windows.qd[:, before:]], -1)[:, 1:]
    linear = errors.roll_out(silent).double()
    assert float((linear - true).abs().max()) < 0.1 * float(true.abs().max())
    assert float((errors.roll_out(silent) - same.roll_out(silent)).abs().max()) > 0.01


def test_networks_of_the_whole_torque_leave_little(models: tuple[HybridDynamics, HybridDynamics], windows: Windows):
    """The log is that of the networks; they are taken as constant over a frame here, and not in the engine."""
    plain, made = models
    errors = linearise_along(plain, made, windows, PAST, SETTLING, RecordedEnvironments.like(plain.home))
    without, with_all = (errors.roll_out(_networks(made, scale)).abs().mean() for scale in (0.0, 1.0))
    assert float(with_all) < 0.1 * float(without)


def test_gradients_are_those_of_differences(models: tuple[HybridDynamics, HybridDynamics], windows: Windows):
    plain, made = models
    errors = linearise_along(plain, made, windows, PAST, SETTLING, RecordedEnvironments.like(plain.home))
    leaves = [leaf.clone().requires_grad_() for leaf in _scaled(made, 1.0)]

    def cost(moved: list[torch.Tensor]) -> torch.Tensor:
        networks = TorqueNetworks(NETWORKS.augmentations, moved, made.spec.dt, made.config.substeps)
        return 1e3 * errors.roll_out(networks).square().mean()

    given = torch.autograd.grad(cost(leaves), leaves)
    direction = [torch.randn_like(leaf) for leaf in leaves]
    slope = sum(float((a * b).sum()) for a, b in zip(given, direction, strict=True))
    step = 1e-3
    ends = [
        float(cost([leaf.detach() + sign * step * along for leaf, along in zip(leaves, direction, strict=True)]))
        for sign in (1.0, -1.0)
    ]
    assert (ends[0] - ends[1]) / (2.0 * step) == pytest.approx(slope, rel=1e-2)


def test_contacts_are_not_linearised():
    blueprint = Blueprint((Augmentation(("torque.hip_1",), ("qd.hip_1",)),))
    assert not can_be_linearised(declared_hybrid("ant", contact="soft"), blueprint)
