# SPDX-License-Identifier: Apache-2.0
"""Several machines, on Ray: workers that share out calls, and sweeps of trainings."""

from typing import TYPE_CHECKING

from neurodyn.core.lazy import lazy

if TYPE_CHECKING:
    from neurodyn.cluster.sweep.sweep import SweepResult, sweep
    from neurodyn.cluster.workers import Cluster

__all__ = ["Cluster", "SweepResult", "sweep"]

lazy(__name__)
