# SPDX-License-Identifier: Apache-2.0
from .sweeps import SweepResult as SweepResult, sweep as sweep
from .workers import Cluster as Cluster
