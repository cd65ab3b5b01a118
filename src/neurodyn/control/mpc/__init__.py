# SPDX-License-Identifier: Apache-2.0
"""Convex model-predictive control of quadrupeds, and its imitation by a network."""
