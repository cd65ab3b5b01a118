# SPDX-License-Identifier: Apache-2.0
"""Grounds and what touches them: shapes, meshes, terrain and distances to contact points, as Warp kernels."""
