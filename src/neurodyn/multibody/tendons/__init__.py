# SPDX-License-Identifier: Apache-2.0
"""Tendons: lengths over attachments, joints and wraps, and the forces along them."""
