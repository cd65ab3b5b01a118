# SPDX-License-Identifier: Apache-2.0
"""Mechanisms from models of MuJoCo's compiler."""
