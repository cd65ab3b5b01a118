# SPDX-License-Identifier: Apache-2.0
"""What may differ from a declaration: quantities, their priors, and the space of their coordinates."""
