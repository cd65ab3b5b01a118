# SPDX-License-Identifier: Apache-2.0
"""Adaptation from logs in one command: fit a worn robot's quantities in short windows, then networks for the rest."""
