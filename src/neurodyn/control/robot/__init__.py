# SPDX-License-Identifier: Apache-2.0
"""A robot of the user's in the loop: its interface, the process that it runs in, limits, watchdogs and its log."""
