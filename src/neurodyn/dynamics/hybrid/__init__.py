# SPDX-License-Identifier: Apache-2.0
"""Hybrid dynamics: identified rigid bodies, with networks where a blueprint puts them."""
