# SPDX-License-Identifier: Apache-2.0
"""Checks of a robot's reference simulator, listed in `run.CHECKS`; plug-ins can add to it."""
