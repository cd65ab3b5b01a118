# SPDX-License-Identifier: Apache-2.0
"""Velocity control: kd (target - qd), with a target in rad/s or m/s."""

from collections.abc import Mapping

from torch import Tensor

from neurodyn.dynamics.controllers import Driven


def law(joints: Driven, gains: Mapping[str, Tensor]) -> Tensor:
    """Return torques [N m or N], shape [worlds, nu]."""
    return gains["kd"] * (joints.target - joints.qd)
