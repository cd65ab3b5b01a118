# SPDX-License-Identifier: Apache-2.0
"""Least squares along windows of logs: readings, residuals, solvers and intervals."""
