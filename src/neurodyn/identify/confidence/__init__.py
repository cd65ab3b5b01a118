# SPDX-License-Identifier: Apache-2.0
"""Whether a search converged, what a log determines, and how far a value may be off."""
