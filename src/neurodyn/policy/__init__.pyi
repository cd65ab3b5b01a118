# SPDX-License-Identifier: Apache-2.0
from .learners.algorithms import ALGORITHMS as ALGORITHMS
from .artifact import load_policy as load_policy
from .worlds.environment import PolicyEnvironment as PolicyEnvironment
from .episodes.evaluation import evaluate as evaluate
from .episodes.logs import log_policies as log_policies
from .online_learning.loop import online as online
from .online_learning.settings import OnlineSettings as OnlineSettings
from .episodes.play import record_policy as record_policy
from .learners.ppo import TrackerWriter as TrackerWriter
from .settings import (
    AimSettings as AimSettings,
    NetworkSettings as NetworkSettings,
    PolicySettings as PolicySettings,
    ShacSettings as ShacSettings,
    load_settings as load_settings,
)
from .learners.training import train as train
