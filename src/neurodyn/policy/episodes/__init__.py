# SPDX-License-Identifier: Apache-2.0
"""Episodes of trained policies: returns, logs, recordings, pages."""
