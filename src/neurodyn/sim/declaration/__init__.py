# SPDX-License-Identifier: Apache-2.0
"""Declarations from assets: values that a URDF, MJCF or USD lacks are chosen, tested and explained."""
