# SPDX-License-Identifier: Apache-2.0
from .algorithms import ALGORITHMS as ALGORITHMS
from .artifact import load_policy as load_policy
from .environment import PolicyEnvironment as PolicyEnvironment
from .evaluation import evaluate as evaluate
from .logs import log_policies as log_policies
from .online_learning.loop import online as online
from .online_learning.settings import OnlineSettings as OnlineSettings
from .play import record_policy as record_policy
from .ppo import TrackerWriter as TrackerWriter
from .settings import (
    NetworkSettings as NetworkSettings,
    PolicySettings as PolicySettings,
    ShacSettings as ShacSettings,
    load_settings as load_settings,
)
from .training import train as train
