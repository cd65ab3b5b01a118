# SPDX-License-Identifier: Apache-2.0
"""Plain MuJoCo: assets read by its compiler, and the simulator."""
