# SPDX-License-Identifier: Apache-2.0
"""PD: kp (target - q) - kd qd."""

from collections.abc import Mapping

from torch import Tensor

from neurodyn.dynamics.controllers import Driven


def law(joints: Driven, gains: Mapping[str, Tensor]) -> Tensor:
    """Return torques [N m or N], shape [worlds, nu]."""
    return gains["kp"] * joints.error - gains["kd"] * joints.qd
