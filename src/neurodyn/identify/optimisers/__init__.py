# SPDX-License-Identifier: Apache-2.0
"""Searches for parameters: gradients, populations, restarts."""
