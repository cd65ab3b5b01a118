# SPDX-License-Identifier: Apache-2.0
"""Identification from logs: residuals, solvers, intervals, and discovery of missing effects."""
