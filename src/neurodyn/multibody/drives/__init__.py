# SPDX-License-Identifier: Apache-2.0
"""Drives of a robot: motors, servos and networks between a command and a joint's torque."""
