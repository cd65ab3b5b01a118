# SPDX-License-Identifier: Apache-2.0
"""Sweeps: one training with many settings and seeds, with Ray Tune, resumable; best by validation figures."""
