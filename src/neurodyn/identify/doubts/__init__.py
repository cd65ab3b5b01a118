# SPDX-License-Identifier: Apache-2.0
"""Reasons to doubt an identification, each with what was measured and a next step."""
