# SPDX-License-Identifier: Apache-2.0
"""Articulated bodies, from a mechanism to a compiled, differentiable step."""
