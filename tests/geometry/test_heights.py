# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from neurodyn.core.errors import InputError
from neurodyn.geometry.solids import block_ranges, heightfield_heights


def save(path, array):
    np.save(path, array)
    return path


def test_heights_are_read(tmp_path):
    heights = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(heightfield_heights(save(tmp_path / "h.npy", heights)), heights)


def test_bad_heights_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"none\.npy: no such file; valid: a \.npy file of heights"):
        heightfield_heights(tmp_path / "none.npy")
    broken = np.zeros((4, 5))
    broken[2, 3] = np.inf
    with pytest.raises(InputError, match="1 heights are not finite, the first at row 2, column 3"):
        heightfield_heights(save(tmp_path / "inf.npy", broken))
    with pytest.raises(InputError, match=r"shape \[5\]; valid"):
        heightfield_heights(save(tmp_path / "flat.npy", np.zeros(5)))
    with pytest.raises(InputError, match="no array of numbers"):
        heightfield_heights(save(tmp_path / "words.npy", np.array([["a", "b"], ["c", "d"]])))
    (tmp_path / "text.npy").write_text("1 2 3")
    with pytest.raises(InputError, match=r"cannot be read as \.npy"):
        heightfield_heights(tmp_path / "text.npy")


def test_ranges_cover_the_cells_of_each_block():
    heights = np.random.default_rng(0).normal(size=(12, 9))
    ranges = block_ranges(heights, 4).reshape(3, 2, 2)
    for i in range(3):
        for j in range(2):
            block = heights[4 * i : 4 * i + 5, 4 * j : 4 * j + 5]
            np.testing.assert_array_equal(ranges[i, j], [block.min(), block.max()])
