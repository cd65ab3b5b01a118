# SPDX-License-Identifier: Apache-2.0
"""Heights over a grid: read from a file, checked, and summed up by blocks."""

from pathlib import Path

import numpy as np

from neurodyn.core.errors import InputError


def heightfield_heights(path: Path) -> np.ndarray:
    """Read heights [m], shape [rows along y, columns along x].

    Raises:
        InputError: The file is missing, is no array of at least 2 x 2 numbers, or holds numbers that are not finite.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; valid: a .npy file of heights")
    try:
        heights = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: cannot be read as .npy: {error}") from None
    return check_heights(heights, str(path))


def check_heights(heights: object, where: str) -> np.ndarray:
    """Return heights as float64 if they are a grid of finite numbers.

    Raises:
        InputError: They are not.
    """
    if not isinstance(heights, np.ndarray) or heights.dtype.kind not in "fiu":
        raise InputError(f"{where}: holds no array of numbers; valid: heights [m], shape [rows, columns]")
    if heights.ndim != 2 or min(heights.shape) < 2:
        raise InputError(f"{where}: heights have shape {list(heights.shape)}; valid: [rows, columns], at least 2 each")
    bad = ~np.isfinite(heights)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"{where}: {int(bad.sum())} heights are not finite, the first at row {row}, column {column}; "
            "valid: finite numbers [m]"
        )
    return heights.astype(np.float64)


def block_ranges(heights: np.ndarray, block: int) -> np.ndarray:
    """Return least and greatest height in blocks of block x block cells, shape [blocks, 2], row by row."""
    rows, columns = (np.array(heights.shape) - 1 + block - 1) // block
    padded = np.pad(
        heights, ((0, rows * block + 1 - heights.shape[0]), (0, columns * block + 1 - heights.shape[1])), mode="edge"
    )
    tiles = np.lib.stride_tricks.sliding_window_view(padded, (block + 1, block + 1))[::block, ::block]
    return np.stack([tiles.min((2, 3)), tiles.max((2, 3))], -1).reshape(-1, 2)
