# SPDX-License-Identifier: Apache-2.0
"""Dynamics of every kind behind one interface."""

from neurodyn.core.lazy import lazy

with lazy(__name__):
    from neurodyn.dynamics.analytic.model import AnalyticDynamics
    from neurodyn.dynamics.base import BaseDynamics, LearnedDynamics
    from neurodyn.dynamics.batch import Control, Environment, State, Step, Trajectory, Window
    from neurodyn.dynamics.closed_loop import ClosedLoop
    from neurodyn.dynamics.compared_rollouts import ComparedRollouts
    from neurodyn.dynamics.controllers import LAWS
    from neurodyn.dynamics.driven import driven
    from neurodyn.dynamics.files.artifact import Artifact, load
    from neurodyn.dynamics.files.export import export_model
    from neurodyn.dynamics.guard import DivergedError, Fault, watching
    from neurodyn.dynamics.hybrid.declared import declared_hybrid
    from neurodyn.dynamics.hybrid.model import HybridDynamics
    from neurodyn.dynamics.hybrid.observation import Mounted, Observation
    from neurodyn.dynamics.interface import Dynamics
    from neurodyn.dynamics.kinds import KINDS, Kind
    from neurodyn.dynamics.linearise import Linearisation, linearise
    from neurodyn.dynamics.measures import joint_distance
    from neurodyn.dynamics.neural.model import NeuralDynamics
    from neurodyn.dynamics.quantities import Quantities
    from neurodyn.dynamics.recorded_environment import RecordedEnvironments
    from neurodyn.dynamics.simulators import SIMULATORS
    from neurodyn.dynamics.simulators.write import Exported, export_identified
    from neurodyn.dynamics.tangent import position_difference
    from neurodyn.dynamics.world_model.model import WorldModel

__all__ = [
    "KINDS", "LAWS", "SIMULATORS", "AnalyticDynamics", "Artifact", "BaseDynamics", "ClosedLoop", "ComparedRollouts",
    "Control", "DivergedError", "Dynamics", "Environment", "Exported", "Fault", "HybridDynamics", "Kind",
    "LearnedDynamics", "Linearisation", "Mounted", "NeuralDynamics", "Observation", "Quantities",
    "RecordedEnvironments", "State", "Step", "Trajectory", "Window", "WorldModel", "declared_hybrid", "driven",
    "export_identified", "export_model", "joint_distance", "linearise", "load", "position_difference", "watching",
]  # fmt: skip
