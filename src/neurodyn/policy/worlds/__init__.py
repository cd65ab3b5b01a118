# SPDX-License-Identifier: Apache-2.0
"""Worlds of a task in which policies act: robots drawn per world, disturbances, restarts."""
