# SPDX-License-Identifier: Apache-2.0
"""Meshes, ellipsoids and cylinders on a plane: the step is MuJoCo's, and its derivatives are those of differences."""

import mujoco
import numpy as np
import pytest
import torch

from tests.multibody.differences import require_along
from tests.multibody.mujoco_models import EXACT, Stepper, engine, mechanism_of, random_states, stepped

PRISM = [[x, y, z] for z in (-0.03, 0.04) for x, y in ((0.1, 0), (0.06, 0.07), (-0.05, 0.08), (-0.1, 0), (0, -0.09))]
WEDGE = [[x, y, z] for x in (-0.1, 0.09) for y, z in ((-0.05, -0.03), (0.06, -0.03), (0, 0.05))]
STONE = np.random.default_rng(5).normal(size=(40, 3))
STONE = STONE / np.linalg.norm(STONE, axis=1, keepdims=True) * [0.1, 0.12, 0.07]
SHAPES = {"prism": PRISM, "wedge": WEDGE, "stone": STONE}
"""Corners of meshes: two above ten corners, of which one has faces with five, and one with fewer."""


def model_of_shapes():
    """A body of each kind of shape, none of which touches another."""
    meshes = "".join(
        f'<mesh name="{name}" vertex="{" ".join(repr(float(x)) for corner in corners for x in corner)}"/>'
        for name, corners in SHAPES.items()
    )
    kinds = {name: f'type="mesh" mesh="{name}"' for name in SHAPES}
    kinds["egg"] = 'type="ellipsoid" size=".1 .06 .08" solref=".03 .9"'
    kinds["tin"] = 'type="cylinder" size=".07 .05" condim="4"'
    bodies = "".join(
        f'<body pos="0 {number} 0"><freejoint name="{name}"/><geom name="{name}" contype="0" priority="1" {kind}'
        ' gap=".001" margin=".003" pos=".01 0 .02"/></body>'
        for number, (name, kind) in enumerate(kinds.items())
    )
    return mujoco.MjModel.from_xml_string(
        f'<mujoco><option timestep=".002" {EXACT}/><asset>{meshes}</asset><worldbody>'
        f'<geom type="plane" size="9 9 1"/>{bodies}</worldbody></mujoco>'
    )


@pytest.fixture(scope="module")
def on_ground():
    """Model, its engine, and states in which shapes lie in the ground: some flat, some nearly, some anyhow.

    The prism never lies flat: which four of its five corners touch would be a matter of rounding.
    """
    model = model_of_shapes()
    mechanism = mechanism_of(model, ground=range(1, model.ngeom))
    assert {one.shape.kind for one in mechanism.ground_shapes.values()} == {"mesh", "ellipsoid", "cylinder"}
    states = random_states(mechanism, 48, 0, 1.0, 0.5)
    rng = np.random.default_rng(1)
    for row, state in enumerate(states):
        for start in range(0, 7 * (model.ngeom - 1), 7):
            turn = rng.normal(size=4) * (0.0 if start else 0.01, 0.01, 1.0)[row % 3] + [0, 0, 0, 1]
            state[start : start + 3] = torch.tensor([0, start / 7, rng.uniform(0.0, 0.06)])
            state[start + 3 : start + 7] = torch.from_numpy(turn / np.linalg.norm(turn))
    return model, engine(mechanism, model.opt.timestep), states


def test_a_step_of_shapes_on_the_ground_is_that_of_mujoco(on_ground):
    model, of, states = on_ground
    stepper, counts = Stepper(model), set()
    theirs = []
    for state in states:
        theirs.append(stepper.step(state))
        own = stepper.data.contact.geom[:, 1]
        counts |= {(model.geom(geom).name, int((own == geom).sum())) for geom in range(1, model.ngeom)}
    assert {("prism", 4), ("wedge", 4), ("stone", 1), ("stone", 3), ("egg", 1), ("tin", 3)} <= counts
    ours, nq = stepped(of, states), 7 * (model.ngeom - 1)
    assert (ours - torch.stack(theirs))[:, nq:].abs().max() < 1e-9
    assert (ours - torch.stack(theirs))[:, :nq].abs().max() < 1e-9


def test_derivatives_of_shapes_on_the_ground_are_those_of_differences(on_ground):
    _, of, states = on_ground
    states = states[2::3]  # where no corner is as low as another one
    weights = torch.from_numpy(np.random.default_rng(2).normal(size=states.shape))
    way = torch.from_numpy(np.random.default_rng(3).normal(size=states.shape))
    require_along(lambda x: (stepped(of, x) * weights).sum(1), states, way, least=10)
