# SPDX-License-Identifier: Apache-2.0
"""Contacts: which points and shapes touch, and the laws without MuJoCo's soft constraints."""
