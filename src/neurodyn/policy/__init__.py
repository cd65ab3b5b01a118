# SPDX-License-Identifier: Apache-2.0
"""Policies: trained in one model of the dynamics, evaluated in any other."""

import os

from neurodyn.core.registry import lazy

# rsl_rl imports GitPython, whose import fails without git unless this is set.
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

with lazy(__name__):
    from neurodyn.control.starts import LoggedStarts, SampledStarts
    from neurodyn.policy.algorithms import ALGORITHMS
    from neurodyn.policy.artifact import load_policy
    from neurodyn.policy.environment import PolicyEnvironment
    from neurodyn.policy.evaluation import evaluate_policy as evaluate
    from neurodyn.policy.logs import log_policies
    from neurodyn.policy.online_learning.loop import online
    from neurodyn.policy.online_learning.settings import OnlineSettings
    from neurodyn.policy.play import record_policy
    from neurodyn.policy.ppo import TrackerWriter
    from neurodyn.policy.settings import NetworkSettings, PolicySettings, ShacSettings, load_settings
    from neurodyn.policy.training import train_policy as train

__all__ = [
    "ALGORITHMS", "LoggedStarts", "NetworkSettings", "OnlineSettings", "PolicyEnvironment", "PolicySettings",
    "SampledStarts", "ShacSettings", "TrackerWriter", "evaluate", "load_policy", "load_settings", "log_policies",
    "online", "record_policy", "train",
]  # fmt: skip
