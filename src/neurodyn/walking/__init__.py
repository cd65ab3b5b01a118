# SPDX-License-Identifier: Apache-2.0
"""Quadrupeds that walk: convex model-predictive control, gaits, and its imitation by a network."""
