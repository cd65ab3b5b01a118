# SPDX-License-Identifier: Apache-2.0
"""Analytic dynamics: Newton's solvers."""
