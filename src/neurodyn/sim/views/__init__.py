# SPDX-License-Identifier: Apache-2.0
"""Robots in motion, to look at: pictures, and Newton's viewer."""
