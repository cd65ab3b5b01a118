# SPDX-License-Identifier: Apache-2.0
"""Grounds and contact geometry: shapes, meshes, terrain and distances to contact points, as Warp kernels."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.geometry.ground import Ground
    from neurodyn.geometry.proximity import ProximityQuery, Readings
    from neurodyn.geometry.solids import terrain_heights

__all__ = ["Ground", "ProximityQuery", "Readings", "terrain_heights"]
