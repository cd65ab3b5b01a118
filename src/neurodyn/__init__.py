# SPDX-License-Identifier: Apache-2.0
"""Robot dynamics that are known, learned, or part each, behind one interface."""
