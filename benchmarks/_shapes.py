# SPDX-License-Identifier: Apache-2.0
"""Test meshes made without a simulator."""

import numpy as np


def torus() -> tuple[np.ndarray, np.ndarray]:
    """Return vertices and triangles of a torus: closed, with convex and concave edges."""
    around, across = 24, 16
    u, v = np.meshgrid(np.arange(around) / around * 2 * np.pi, np.arange(across) / across * 2 * np.pi, indexing="ij")
    r = 0.5 + 0.2 * np.cos(v)
    vertices = np.stack([r * np.cos(u), r * np.sin(u), 0.2 * np.sin(v)], -1).reshape(-1, 3)
    i, j = (x.ravel() for x in np.meshgrid(np.arange(around), np.arange(across), indexing="ij"))
    a, b = i * across + j, (i + 1) % around * across + j
    c, d = (i + 1) % around * across + (j + 1) % across, i * across + (j + 1) % across
    return vertices, np.concatenate([np.stack([a, b, c], -1), np.stack([a, c, d], -1)])
