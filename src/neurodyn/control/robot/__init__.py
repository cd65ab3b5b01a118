# SPDX-License-Identifier: Apache-2.0
"""A user's robot in the loop: its interface, its process, limits, watchdogs and log."""
