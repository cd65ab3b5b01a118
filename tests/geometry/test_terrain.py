# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from neurodyn.core.description.scene import Terrain
from neurodyn.core.errors import InputError
from neurodyn.geometry.solids import terrain_heights

STYLES = ["rough", "steps", "stairs", "slopes", "mixed"]


@pytest.mark.parametrize("style", STYLES)
def test_size_amplitude_and_seed(style):
    terrain = Terrain(style=style, seed=3, size=(9.0, 6.0), cell=0.05, amplitude=0.2)
    heights = terrain_heights(terrain)
    assert heights.shape == (121, 181)
    assert 0.1 < np.abs(heights).max() <= 0.2 + 1e-9
    np.testing.assert_array_equal(heights, terrain_heights(terrain))
    others = [
        terrain_heights(Terrain(style=style, seed=s, size=(9.0, 6.0), cell=0.05, amplitude=0.2)) for s in range(6)
    ]
    assert any((heights != other).any() for other in others)


def test_rough_ground_has_no_steps():
    heights = terrain_heights(Terrain(style="rough", cell=0.05, amplitude=0.1, feature=0.5))
    assert np.abs(np.diff(heights, axis=0)).max() < 0.05


def test_steps_are_flat_blocks_of_the_feature_size():
    heights = terrain_heights(Terrain(style="steps", size=(4.0, 4.0), cell=0.05, feature=0.5))
    change = np.abs(np.diff(heights, axis=1)) > 0
    np.testing.assert_array_equal(np.flatnonzero(change.any(0)), np.arange(9, 80, 10))


def test_slopes_climb_the_amplitude_along_the_feature_and_tiles_are_as_chosen():
    heights = terrain_heights(Terrain(style="slopes", size=(8.0, 8.0), cell=0.05, amplitude=0.15, feature=0.6))
    climb = np.abs(np.diff(heights[80])) / 0.05
    assert np.median(climb) == pytest.approx(0.25)
    assert climb.max() == pytest.approx(0.25)
    tiled = terrain_heights(Terrain(style="mixed", size=(24.0, 24.0), amplitude=0.15, feature=0.6, tiles=("slopes",)))
    assert np.abs(np.diff(tiled, axis=1)).max() == pytest.approx(0.25 * 0.05)


def test_no_step_between_tiles_is_higher_than_a_stair():
    for feature in (0.3, 0.56, 1.0):
        ground = Terrain(style="mixed", size=(24.0, 24.0), amplitude=0.15, feature=feature, tiles=("stairs", "slopes"))
        heights = terrain_heights(ground)
        assert max(np.abs(np.diff(heights, axis=axis)).max() for axis in (0, 1)) == pytest.approx(0.05)


def test_stairs_and_mixed_terrain_are_flat_where_robots_begin():
    for style in ("stairs", "mixed"):
        heights = terrain_heights(Terrain(style=style, size=(10.0, 10.0), cell=0.05, feature=1.0))
        assert np.abs(heights[95:106, 95:106]).max() == 0


def test_grids_too_small_or_too_large_are_refused():
    with pytest.raises(InputError, match="valid: at least 2 each"):
        terrain_heights(Terrain(style="rough", size=(0.01, 1.0), cell=0.05))
    with pytest.raises(InputError, match="16000000 in all"):
        terrain_heights(Terrain(style="rough", size=(1000.0, 1000.0), cell=0.01))
