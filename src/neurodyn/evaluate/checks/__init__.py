# SPDX-License-Identifier: Apache-2.0
"""Checks of a robot's reference simulator; `run.CHECKS` lists them, and plug-ins add to it."""
