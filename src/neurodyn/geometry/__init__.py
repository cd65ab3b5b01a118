# SPDX-License-Identifier: Apache-2.0
"""Grounds and contact geometry: shapes, meshes, terrain and distances to contact points, as Warp kernels."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
