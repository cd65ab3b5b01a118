# SPDX-License-Identifier: Apache-2.0
"""Open-loop errors beside a reference simulator, logs and baselines; calibration; long-run stability."""
