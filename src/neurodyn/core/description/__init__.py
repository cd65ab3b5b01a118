# SPDX-License-Identifier: Apache-2.0
"""Robots, their mechanisms, drives, sensors and surroundings, and what a network adds to them, as plain data."""
