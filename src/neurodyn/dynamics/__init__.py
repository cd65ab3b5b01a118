# SPDX-License-Identifier: Apache-2.0
"""Dynamics of every kind behind one interface."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.dynamics.analytic import AnalyticDynamics
    from neurodyn.dynamics.artifact import Artifact, load
    from neurodyn.dynamics.base import BaseDynamics, LearnedDynamics
    from neurodyn.dynamics.batch import Control, Environment, RecordedEnvironments, State, Step, Trajectory, Window
    from neurodyn.dynamics.coordinates import position_difference
    from neurodyn.dynamics.driven import driven
    from neurodyn.dynamics.guard import DivergedError, Fault, watching
    from neurodyn.dynamics.hybrid.closed_loop import LAWS, ClosedLoop
    from neurodyn.dynamics.hybrid.declared import declared_hybrid
    from neurodyn.dynamics.hybrid.model import HybridDynamics
    from neurodyn.dynamics.hybrid.readings import MountedSensor, SensorModel
    from neurodyn.dynamics.interface import Dynamics
    from neurodyn.dynamics.kinds import KINDS, Kind, KindPart
    from neurodyn.dynamics.linearisation import Linearisation, linearise
    from neurodyn.dynamics.measures import ComparedRollouts, joint_distance
    from neurodyn.dynamics.neural.model import NeuralDynamics
    from neurodyn.dynamics.quantities import Quantities
    from neurodyn.dynamics.world_model.model import WorldModel

__all__ = [
    "KINDS", "LAWS", "AnalyticDynamics", "Artifact", "BaseDynamics", "ClosedLoop", "ComparedRollouts", "Control",
    "DivergedError", "Dynamics", "Environment", "Fault", "HybridDynamics", "Kind", "KindPart", "LearnedDynamics",
    "Linearisation", "MountedSensor", "NeuralDynamics", "Quantities", "RecordedEnvironments", "SensorModel", "State",
    "Step", "Trajectory", "Window", "WorldModel", "declared_hybrid", "driven", "joint_distance", "linearise", "load",
    "position_difference", "watching",
]  # fmt: skip
