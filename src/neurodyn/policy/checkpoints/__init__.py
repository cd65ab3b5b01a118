# SPDX-License-Identifier: Apache-2.0
"""Policies as other trainers save them: one layout a file."""

from collections.abc import Callable
from pathlib import Path

from neurodyn.core.registry import Registry

POLICY_FORMATS: Registry[Callable[[str | Path, Path], Path]] = Registry(
    "format of a policy", **{"rsl-rl": "neurodyn.policy.checkpoints.rsl_rl:export_rsl_rl"}
)
"""Writers by the name of the format: (policy, folder to write) to the file that the other trainer loads."""
