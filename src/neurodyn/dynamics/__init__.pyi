# SPDX-License-Identifier: Apache-2.0
from .analytic import AnalyticDynamics as AnalyticDynamics
from .artifact import Artifact as Artifact, load as load
from .base import BaseDynamics as BaseDynamics, LearnedDynamics as LearnedDynamics
from .batch import (
    Control as Control,
    Environment as Environment,
    RecordedEnvironments as RecordedEnvironments,
    State as State,
    Step as Step,
    Trajectory as Trajectory,
    Window as Window,
)
from .coordinates import position_difference as position_difference
from .behind_drives import DynamicsBehindDrives as DynamicsBehindDrives, put_behind_drives as put_behind_drives
from .guard import DivergedError as DivergedError, Fault as Fault, watching as watching
from .hybrid.declared import declared_hybrid as declared_hybrid
from .hybrid.model import HybridDynamics as HybridDynamics
from .hybrid.readings import MountedSensor as MountedSensor, SensorModel as SensorModel
from .interface import Dynamics as Dynamics
from .kinds import KINDS as KINDS, Kind as Kind, KindOperation as KindOperation
from .linearisation import Linearisation as Linearisation, linearise as linearise
from .measures import BASELINES as BASELINES, Baseline as Baseline, joint_distance as joint_distance
from .neural.model import NeuralDynamics as NeuralDynamics
from .quantities import Quantities as Quantities
from .rollout_errors import RolloutErrors as RolloutErrors
from .rollouts import roll_along as roll_along
from .world_model.model import WorldModel as WorldModel
