# SPDX-License-Identifier: Apache-2.0
"""A decision by a network, in few calls of numpy: equal to its plain form."""

import numpy as np
import pytest
import torch

from neurodyn.walking.convex_mpc import MpcSettings
from neurodyn.walking.force_network import ForceNetwork, ImitatedForces, ImitationConfig, Matrices
from neurodyn.walking.gait import GAITS
from neurodyn.walking.state import CONTACT, FORCE_INPUTS, ForceInputs

WEIGHT, GREATEST = 135.0, 80.0


def situation(worlds: int, gait: str) -> ForceInputs:
    rng = np.random.default_rng(3)
    return ForceInputs(
        tilt=rng.normal(size=(worlds, 2)), yaw=rng.normal(size=worlds), height=rng.normal(size=worlds),
        spin=rng.normal(size=(worlds, 3)), velocity=rng.normal(size=(worlds, 3)), command=rng.normal(size=(worlds, 3)),
        feet=rng.normal(size=(worlds, 4, 3)), phase=GAITS[gait].phase(rng.uniform(0, 2, worlds)), gait=GAITS[gait],
    )  # fmt: skip


def network(widths: tuple[int, ...]) -> ForceNetwork:
    torch.manual_seed(0)
    made = ForceNetwork(WEIGHT, widths).eval()
    made.normaliser.fit(np.random.default_rng(1).normal(0.5, 2.0, (100, FORCE_INPUTS)).astype(np.float32))
    return made


@pytest.mark.parametrize("gait", ["trot", "walk", "stand"])
def test_features_are_the_situation(gait):
    here, found = situation(20, gait), situation(20, gait).features()
    assert (found.shape, found.dtype) == ((20, FORCE_INPUTS), np.float32)
    plain = [here.tilt, here.yaw[:, None], here.height[:, None], here.spin, here.velocity, here.command,
             here.feet.reshape(20, 12), here.contact, here.gait.left(here.phase), np.sin(2 * np.pi * here.phase),
             np.cos(2 * np.pi * here.phase)]  # fmt: skip
    assert found == pytest.approx(np.hstack(plain), abs=1e-6)
    assert (found[:, CONTACT] == here.contact).all()


@pytest.mark.parametrize("worlds", [1, 30])
@pytest.mark.parametrize("widths", [(192, 192), (16,)])
def test_a_decision_is_that_of_the_plain_network_inside_the_pyramids(worlds, widths):
    settings, here, made = MpcSettings(friction=0.45), situation(worlds, "trot"), network(widths)
    config = ImitationConfig(robot="a1", gait="trot", settings=settings, widths=widths, mass=13.7, height=0.28)
    plain = made.double()(torch.as_tensor(here.features()).double()).detach().numpy().reshape(worlds, 4, 3)
    vertical = np.where(here.contact, np.clip(plain[..., 2], 0.0, GREATEST), 0.0)[..., None]
    across = np.clip(plain[..., :2], -0.45 * vertical, 0.45 * vertical)
    found = ImitatedForces(Matrices(made.float()), config, GREATEST)(here)
    assert found == pytest.approx(np.concatenate([across, vertical], -1), abs=1e-6 * WEIGHT)
    assert (vertical > 0).any()
