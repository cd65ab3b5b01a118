# SPDX-License-Identifier: Apache-2.0
"""From logs to a model in one command: what a worn robot has, fitted in short windows, then networks for the rest."""
