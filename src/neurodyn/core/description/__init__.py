# SPDX-License-Identifier: Apache-2.0
"""Robots, mechanisms, drives, sensors, scenes and learned augmentations as plain data."""
