# SPDX-License-Identifier: Apache-2.0
"""Torques linear in inertial parameters, against forward dynamics."""

import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.inverse_dynamics import link_parameters, regressor
from tests.multibody.machines import hopper
from tests.multibody.reference import random_mechanism, random_motion

NAMES = ("mass", "com", "inertia")


@pytest.mark.parametrize("seed", range(4))
def test_torques_are_those_that_forward_dynamics_turn_into_the_accelerations(seed):
    rng = np.random.default_rng(seed)
    mechanism = random_mechanism(rng, ["revolute", "prismatic", "revolute", "revolute"], [-1, 0, 1, 0])
    tree = Tree(mechanism, mechanism.quantities().__getitem__)
    samples = [random_motion(rng, mechanism) for _ in range(3)]
    q, qd, torque = (np.array([np.asarray(sample[k], dtype=float) for sample in samples]) for k in range(3))
    qdd = np.array(
        [
            tree.accelerations(tree.motions(list(a), list(b)), list(a), list(c))
            for a, b, c in zip(q, qd, torque, strict=True)
        ]
    )
    mass, com, inertia = (torch.tensor([getattr(x, name) for x in mechanism.links]).double() for name in NAMES)
    parameters = link_parameters(mass, com, inertia).flatten().numpy()
    armature = np.array([x.armature for x in mechanism.links])
    found = regressor(mechanism, q, qd, qdd) @ parameters + armature * qdd
    np.testing.assert_allclose(found, torque, rtol=1e-6, atol=1e-6 * np.abs(torque).max())


def test_a_floating_base_is_refused():
    mechanism = hopper()
    with pytest.raises(InputError, match="joint 'base' is free; valid: a bolted robot"):
        regressor(mechanism, np.zeros((1, mechanism.nq)), np.zeros((1, mechanism.nv)), np.zeros((1, mechanism.nv)))
