# SPDX-License-Identifier: Apache-2.0
"""Several machines, with Ray: workers that share calls, and sweeps of trainings."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.cluster.sweeps.sweep import SweepResult, sweep
    from neurodyn.cluster.workers import Cluster

__all__ = ["Cluster", "SweepResult", "sweep"]
