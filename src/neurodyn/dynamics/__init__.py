# SPDX-License-Identifier: Apache-2.0
"""Dynamics of every kind behind one interface."""

from neurodyn.dynamics.analytic.model import AnalyticDynamics
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import (
    Control,
    Dynamics,
    Environment,
    State,
    Step,
    Trajectory,
    Window,
)
from neurodyn.dynamics.neural.model import NeuralDynamics

__all__ = [
    "AnalyticDynamics",
    "Control",
    "Dynamics",
    "Environment",
    "HybridDynamics",
    "NeuralDynamics",
    "State",
    "Step",
    "Trajectory",
    "Window",
    "load",
]
