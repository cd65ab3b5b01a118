# SPDX-License-Identifier: Apache-2.0
"""Chains of contact points as the kernels walk them, and shapes that share their triangles and heights."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.geometry.chain import FROM_BASE, FROM_BEFORE, FROM_ROOT
from neurodyn.geometry.device_arrays import PRECISIONS, ShapeArrays, layout_arrays
from neurodyn.geometry.solids import Solid, closed_mesh
from tests.geometry.chains import all_kinds

SINGLE = PRECISIONS[torch.float32]
HOME = np.array([0, 0, 0, 0, 0, 0, 1.0])


def walked(*, one_by_one: bool) -> list[tuple[int, list[int]]]:
    """Return where the path to each contact point starts, and the joints along it from there."""
    start, chain_start, chain, *_ = layout_arrays(all_kinds(), "cpu", SINGLE, one_by_one=one_by_one)
    ends = chain_start.numpy()
    parts = [chain.numpy()[a:b].tolist() for a, b in pairwise(ends)]
    return list(zip(start.numpy().tolist(), parts, strict=True))


def test_each_path_starts_at_the_root_or_where_the_one_before_it_ended():
    root, base, before = (int(one) for one in (FROM_ROOT, FROM_BASE, FROM_BEFORE))
    # Contact points are on joints 0, 1, 3, 2, 3, 4, 1; joints 0-1-2-3 are a chain, and 4 branches off at 0.
    whole = [[0], [0, 1], [0, 1, 2, 3], [0, 1, 2], [0, 1, 2, 3], [0, 4], [0, 1]]
    assert walked(one_by_one=True) == [(root, path) for path in whole]
    assert walked(one_by_one=False) == [
        (root, [0]), (before, [1]), (before, [2, 3]), (base, [1, 2]), (before, [3]), (base, [4]), (base, [1]),
    ]  # fmt: skip


def test_solids_share_triangles_and_heights_but_not_places():
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
    mesh = closed_mesh(corners, np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]), "here")
    heights = np.arange(12.0).reshape(3, 4)
    field = Solid("heightfield", HOME, (0.5, 0.5, 0.0), heights=heights)
    meshes = [Solid("mesh", HOME + shift, mesh=mesh) for shift in (0.0, 1.0)]
    shapes = ShapeArrays([*meshes, field], [], "cpu", SINGLE)
    _, rows, normals, stored, _ = (array.numpy() for array in shapes.arrays)
    assert rows["mesh"][0] == rows["mesh"][1] != 0
    assert (rows["origin"][1] == 1.0).all()
    assert len(normals) == 4
    np.testing.assert_array_equal(stored, heights.ravel())
    with pytest.raises(InputError, match="the ground is for 2 worlds; valid: a ground for 3 worlds"):
        ShapeArrays([], [[field], [field]], "cpu", SINGLE).require_worlds(3)
