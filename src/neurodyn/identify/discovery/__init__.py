# SPDX-License-Identifier: Apache-2.0
"""Which augmentations of the dynamics a log asks for."""
