# SPDX-License-Identifier: Apache-2.0
"""Contact features in torch's own operations: those of the kernels."""

import pytest
import torch

from neurodyn.core.description.scene import Plane, Scene
from neurodyn.geometry.contact_features import ContactFeatures, PlaneContacts
from neurodyn.geometry.ground import Ground
from tests.geometry.chains import all_kinds, random_state


@pytest.mark.parametrize("first", ["free", "revolute", "prismatic", "ball", "screw"])
def test_they_are_those_of_the_kernels(first):
    layout = all_kinds(first)
    margins = [2.0 + 0.1 * i for i in range(len(layout.contact_points))]
    wall = Plane(position=(-1.0, 0.0, 0.0), rotation=(0.0, 0.5**0.5, 0.0, 0.5**0.5))
    kernels = ContactFeatures(layout, margins, 0.5)
    sight = [(point.radius, margin, 0.5) for point, margin in zip(layout.contact_points, margins, strict=True)]
    planes = [(0.0, 0.0, 0.0, 0.0, 0.0, 1.0), (-1.0, 0.0, 0.0, 1.0, 0.0, 0.0)]
    ours = PlaneContacts(layout, sight, planes).double()
    q, qd = random_state(kernels.proximity, 40)
    wanted = kernels(Ground(Scene(shapes=(Plane(), wall))), q, qd)
    assert float((wanted == 0).double().mean()) > 0.01
    torch.testing.assert_close(ours(q, qd), wanted, rtol=1e-6, atol=1e-6)  # axes and margins are single precision
