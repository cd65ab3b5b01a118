# SPDX-License-Identifier: Apache-2.0
"""Declarations from assets: what a URDF, MJCF or USD does not say is chosen, tried, and explained."""
