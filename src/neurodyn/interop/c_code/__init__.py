# SPDX-License-Identifier: Apache-2.0
"""Policies, drives and models as C99 without dependencies."""
