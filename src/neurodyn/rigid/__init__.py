# SPDX-License-Identifier: Apache-2.0
"""Rigid bodies and what they touch: pure, differentiable, on Warp arrays; no simulator."""
