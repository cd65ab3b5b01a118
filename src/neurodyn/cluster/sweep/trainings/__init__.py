# SPDX-License-Identifier: Apache-2.0
"""Trainings that a sweep can repeat, one file for each kind of result."""
