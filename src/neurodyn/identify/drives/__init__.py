# SPDX-License-Identifier: Apache-2.0
"""Drives from logs: numbers, starts and networks."""
