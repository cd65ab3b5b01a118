# SPDX-License-Identifier: Apache-2.0
"""Analytic dynamics: the simulator itself."""

from neurodyn.dynamics.kinds import Kind

KIND = Kind("analytic", "simulator")
KIND.add("simulate", "neurodyn.dynamics.analytic.model:AnalyticDynamics")
