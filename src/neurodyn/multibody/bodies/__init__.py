# SPDX-License-Identifier: Apache-2.0
"""Bodies that touch each other, and bodies that slide on a plane."""
