# SPDX-License-Identifier: Apache-2.0
"""Heights of terrains that are made from a seed."""

import numpy as np

from neurodyn.core.description.scene import Terrain
from neurodyn.core.errors import InputError

_TILE = 4.0
"""Edge of the tiles of a mixed terrain [m]."""

_MOST_HEIGHTS = 16_000_000


def terrain_heights(terrain: Terrain) -> np.ndarray:
    """Return the heights of a terrain [m], shape [rows along y, columns along x], centred at its origin.

    Vertices are `cell` apart; the same declaration gives the same heights on every machine up to rounding. At
    the centre of the terrain the height is zero for all styles but "rough" and "steps".

    Raises:
        InputError: The grid would have fewer than 2 or more than 16 million vertices.
    """
    columns, rows = (round(edge / terrain.cell) + 1 for edge in terrain.size)
    if min(rows, columns) < 2 or rows * columns > _MOST_HEIGHTS:
        raise InputError(
            f"terrain of {terrain.size[0]:g} x {terrain.size[1]:g} m with cells of {terrain.cell:g} m has "
            f"{rows} x {columns} heights; valid: at least 2 each and {_MOST_HEIGHTS} in all; change size or cell"
        )
    generator = np.random.default_rng([terrain.seed, 0x7E44])
    makers = {"rough": _rough, "steps": _steps, "stairs": _stairs, "mixed": _mixed}
    return makers[terrain.style](generator, rows, columns, terrain)


def _rough(generator: np.random.Generator, rows: int, columns: int, terrain: Terrain) -> np.ndarray:
    """Gaussian noise, smoothed to bumps of the length `feature`, scaled to the amplitude."""
    noise = generator.standard_normal((rows, columns))
    frequency = np.fft.fftfreq(rows)[:, None] ** 2 + np.fft.rfftfreq(columns)[None] ** 2
    width = terrain.feature / terrain.cell / 4  # standard deviation of the smoothing, in cells
    smooth = np.fft.irfft2(np.fft.rfft2(noise) * np.exp(-2 * (np.pi * width) ** 2 * frequency), s=(rows, columns))
    smooth -= smooth.mean()
    return terrain.amplitude * smooth / max(float(np.abs(smooth).max()), 1e-12)


def _steps(generator: np.random.Generator, rows: int, columns: int, terrain: Terrain) -> np.ndarray:
    """Square blocks, each at a height of its own, with walls one cell wide."""
    edge = max(2, round(terrain.feature / terrain.cell))
    blocks = generator.uniform(-terrain.amplitude, terrain.amplitude, (-(-rows // edge), -(-columns // edge)))
    return np.repeat(np.repeat(blocks, edge, 0), edge, 1)[:rows, :columns]


def _stairs(generator: np.random.Generator, rows: int, columns: int, terrain: Terrain) -> np.ndarray:
    """Square rings around a flat centre; treads as deep as `feature`, three steps down or up to the amplitude."""
    y, x = (np.abs(np.arange(count) - (count - 1) / 2) * terrain.cell for count in (rows, columns))
    ring = np.floor(np.maximum(y[:, None], x[None]) / terrain.feature + 0.5)
    level = 3 - np.abs(3 - ring % 6)  # 0 1 2 3 2 1 0 ...
    direction = -1.0 if generator.random() < 0.5 else 1.0
    return direction * terrain.amplitude * level / 3


def _mixed(generator: np.random.Generator, rows: int, columns: int, terrain: Terrain) -> np.ndarray:
    """Tiles of all styles in random order, and flat ones; the tile in the centre is flat.

    Rough tiles fade to zero at their borders, so that tiles meet in steps no higher than the amplitude.
    """
    edge = max(2, round(_TILE / terrain.cell))
    makers = (_rough, _steps, _stairs, None)
    across, along = -(-rows // edge), -(-columns // edge)
    styles = generator.integers(0, len(makers), (across, along))
    styles[across // 2, along // 2] = len(makers) - 1
    heights = np.zeros((across * edge, along * edge))
    for i in range(across):
        for j in range(along):
            maker = makers[styles[i, j]]
            if maker is not None:
                heights[i * edge : (i + 1) * edge, j * edge : (j + 1) * edge] = maker(generator, edge, edge, terrain)
    return heights[:rows, :columns]
