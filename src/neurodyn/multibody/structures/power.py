# SPDX-License-Identifier: Apache-2.0
r"""Forces whose power has a sign: $f = -G L L^T G v$ takes energy, $f = G S G v$ with $S^T = -S$ does no work.

v are the velocities along which the forces f act, so that $f \cdot v$ is their power; the entries of L and S are the
network's outputs, functions of any inputs. G scales them, $g_i^2$ being the size of a force over that of its velocity
(`output_scale` over `input_scale`).
"""

import math
from typing import Any

from neurodyn.core.errors import InputError
from neurodyn.multibody.structures.acting import ActingNetwork, triangle

_TORQUES = ("torque", "passive", "actuator")
_WRENCHES = {"force": "velocity", "moment": "spin"}


def conjugate(name: str) -> str:
    """Return the velocity that makes power of a force: qd.JOINT of torque.JOINT, velocity.LINK.x of a wrench's force.x.

    Raises:
        InputError: The quantity is no force.
    """
    first, _, rest = name.partition(".")
    if first in _TORQUES and rest:
        return f"qd.{rest}"
    parts = rest.rsplit(".", 2)
    if first == "wrench" and len(parts) == 3 and parts[1] in _WRENCHES:
        return f"{_WRENCHES[parts[1]]}.{parts[0]}.{parts[2]}"
    raise InputError(
        f"blueprint: {name!r} is no force, whose power could be bounded; valid: torque.JOINT, passive.JOINT, "
        "actuator.JOINT, wrench.LINK.force.x, wrench.LINK.moment.x, or structure: free"
    )


def dissipative(net: ActingNetwork) -> list[Any]:
    """Return forces whose power is never positive."""
    gains, moving = _scaled(net)
    lower = triangle(net.outputs, len(moving))
    across = [sum(lower[j][k] * moving[j] for j in range(k, len(moving))) for k in range(len(moving))]
    return [-(g * sum(x * y for x, y in zip(row, across, strict=False))) for g, row in zip(gains, lower, strict=True)]


def gyroscopic(net: ActingNetwork) -> list[Any]:
    """Return forces that do no work."""
    return _turning(net, net.outputs)


def passive(net: ActingNetwork) -> list[Any]:
    """Return forces whose power is never positive, of a damping that need not be symmetric."""
    n = len(net.quantities)
    return [a + b for a, b in zip(dissipative(net), _turning(net, net.outputs[n * (n + 1) // 2 :]), strict=True)]


def _turning(net: ActingNetwork, entries: list[Any]) -> list[Any]:
    gains, moving = _scaled(net)
    forces: list[Any] = [0.0] * len(moving)
    pairs = [(i, j) for i in range(len(moving)) for j in range(i)]
    for (i, j), entry in zip(pairs, entries, strict=False):
        forces[i] = forces[i] + gains[i] * (entry * moving[j])
        forces[j] = forces[j] - gains[j] * (entry * moving[i])
    return forces


def _scaled(net: ActingNetwork) -> tuple[list[float], list[Any]]:
    """Return G, and G v."""
    names = [conjugate(name) for name in net.quantities]
    gains = [math.sqrt(abs(size) / net.input_size(name)) for size, name in zip(net.sizes, names, strict=True)]
    return gains, [g * net.read(name) for g, name in zip(gains, names, strict=True)]
