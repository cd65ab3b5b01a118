# SPDX-License-Identifier: Apache-2.0
r"""Torques of a potential energy, $\tau_j = -\partial V/\partial q_j$: over a closed path they do no work."""

from typing import Any

from neurodyn.core.errors import InputError
from neurodyn.multibody.structures.acting import ActingNetwork
from neurodyn.multibody.trace import cos, sin


def conservative(net: ActingNetwork) -> list[Any]:
    """Return the torques of the energy that is the network's output times its greatest `output_scale` [J].

    Raises:
        InputError: It acts on other quantities than torques, or sees others than the positions of their joints.
    """
    joints = joints_of(net, "torque")
    size = max(abs(x) for x in net.sizes)
    return [-(size * net.along(direction(net, joint))[0]) for joint in joints]


def joints_of(net: ActingNetwork, prefix: str) -> list[str]:
    """Return the joints whose quantities `prefix`.JOINT a network acts on.

    Raises:
        InputError: It acts on others, or sees others than the positions of these joints.
    """
    one, joints = net.augmentation, []
    for name in one.quantities:
        first, _, joint = name.partition(".")
        if first != prefix or not joint:
            raise InputError(f"blueprint: structure {one.structure} does not act on {name!r}; valid: {prefix}.JOINT")
        joints.append(joint)
    valid = [text.format(joint) for joint in joints for text in ("q.{}", "sin(q.{})", "cos(q.{})")]
    for name in one.inputs:
        if name not in valid or one.memory:
            raise InputError(
                f"blueprint: structure {one.structure} is of positions alone, without a memory; {name!r} is no valid "
                f"input, but {', '.join(valid)}"
            )
    return joints


def direction(net: ActingNetwork, joint: str) -> list[Any]:
    """Return the derivative of the network's inputs by the position of a joint."""
    position = net.read(f"q.{joint}")
    slopes = {f"q.{joint}": 1.0, f"sin(q.{joint})": cos(position), f"cos(q.{joint})": -sin(position)}
    scales = net.augmentation.input_scale or (1.0,) * len(net.augmentation.inputs)
    return [slopes.get(name, 0.0) / scale for name, scale in zip(net.augmentation.inputs, scales, strict=True)]
