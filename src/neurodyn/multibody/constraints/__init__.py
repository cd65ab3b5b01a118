# SPDX-License-Identifier: Apache-2.0
"""Soft constraints of contacts, limits and joint friction, as MuJoCo has them."""
