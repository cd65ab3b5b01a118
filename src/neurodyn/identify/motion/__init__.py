# SPDX-License-Identifier: Apache-2.0
"""Motions that a robot can be asked for: limits, and waves within them."""
