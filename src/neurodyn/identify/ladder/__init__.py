# SPDX-License-Identifier: Apache-2.0
"""Models from the declaration to the robot, each judged on held-out logs, beside references."""
