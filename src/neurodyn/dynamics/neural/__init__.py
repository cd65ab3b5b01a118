# SPDX-License-Identifier: Apache-2.0
"""Neural dynamics: a network in place of a simulator's solver."""
