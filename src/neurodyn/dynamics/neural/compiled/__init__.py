# SPDX-License-Identifier: Apache-2.0
"""A frame of neural dynamics in compiled kernels, without gradients: the same numbers as torch, a few launches."""
