# SPDX-License-Identifier: Apache-2.0
"""Sweeps: one training with many settings and seeds, by Ray Tune, resumable; the best by validation figures."""
