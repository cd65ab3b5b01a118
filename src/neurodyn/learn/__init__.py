# SPDX-License-Identifier: Apache-2.0
"""Training: one loop, its optimisers, run folders and metrics, and what each kind of dynamics adds."""
