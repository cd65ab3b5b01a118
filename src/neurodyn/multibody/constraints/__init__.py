# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's soft constraints: contacts, joint limits and joint friction."""
