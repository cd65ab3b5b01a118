# SPDX-License-Identifier: Apache-2.0
"""Policies: trained in any dynamics, played in any other."""
