# SPDX-License-Identifier: Apache-2.0
"""Algorithms that train policies, and their networks."""
