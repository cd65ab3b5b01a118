# SPDX-License-Identifier: Apache-2.0
"""Structured forms of a blueprint's networks, which preserve physical properties for any weights.

One function per structure: conservative, dissipative, gyroscopic, passive, inertial, or free.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from neurodyn.core.description.blueprint import Augmentation
from neurodyn.core.errors import InputError
from neurodyn.core.registry import Registry
from neurodyn.multibody.articulated import RelativeMotion, Tree
from neurodyn.multibody.mass_matrix import TreeInertia, factorise, solve
from neurodyn.multibody.network import tangent_loop
from neurodyn.multibody.points import link_poses
from neurodyn.multibody.trace import Expression, Graph, Scalar, apply_loop, cos, sin


@dataclass
class AddedInertia:
    r"""A network's addition to the mass matrix of some joints, symmetric and positive semidefinite.

    `bias` holds the torques due to its change, $\dot M \dot q - \partial_q (\tfrac12 \dot q^T M \dot q)$.
    """

    joints: tuple[str, ...]
    matrix: list[list[Any]]
    bias: list[Any]


@dataclass
class ActingNetwork:
    """A network with its inputs and outputs in a step.

    Attributes:
        augmentation: The network.
        graph: Graph of the step.
        first_weight: Index of its first weight in the program's weights.
        inputs: Scaled inputs, including memory.
        outputs: Outputs, without those of a memory.
        read: Returns a quantity by name.
        inertias: List that receives additions to the mass matrix.
    """

    augmentation: Augmentation
    graph: Graph
    first_weight: int
    inputs: Sequence[Scalar]
    outputs: list[Expression]
    read: Callable[[str], Any]
    inertias: list[AddedInertia] = field(default_factory=list)

    @property
    def quantities(self) -> tuple[str, ...]:
        """Names of the quantities that the network acts on."""
        return self.augmentation.quantities

    @property
    def sizes(self) -> tuple[float, ...]:
        """Output scales, one per quantity."""
        return self.augmentation.output_scale or (1.0,) * len(self.quantities)

    def input_size(self, name: str) -> float:
        """Return the scale of an input by name; 1 if the network has no such input."""
        one = self.augmentation
        return abs(one.input_scale[one.inputs.index(name)]) if one.input_scale and name in one.inputs else 1.0

    def along(self, directions: Sequence[Scalar]) -> list[Any]:
        """Return the derivatives of the outputs along a direction in the inputs."""
        loop = tangent_loop(self.augmentation, self.first_weight, f"slope of {', '.join(self.quantities)}")
        return list(apply_loop(self.graph, loop, [*self.inputs, *directions]))[: self.augmentation.outputs]


Form = Callable[[ActingNetwork], list[Any]]
"""Returns the additions to a network's quantities (for "free": the values that its mode uses)."""


def free(net: ActingNetwork) -> list[Any]:
    """Return the scaled outputs."""
    return [output * size for output, size in zip(net.outputs, net.sizes, strict=True)]


def triangle(outputs: Sequence[Any], n: int) -> list[list[Any]]:
    """Return the rows of a lower triangular matrix with these entries."""
    return [list(outputs[i * (i + 1) // 2 :][: i + 1]) for i in range(n)]


def conservative(net: ActingNetwork) -> list[Any]:
    """Return the torques of a potential: the output times the greatest `output_scale` [J]; see `joints_of`."""
    joints = joints_of(net, "torque")
    size = max(abs(x) for x in net.sizes)
    return [-(size * net.along(direction(net, joint))[0]) for joint in joints]


def joints_of(net: ActingNetwork, prefix: str) -> list[str]:
    """Return the joints whose quantities `prefix`.JOINT a network acts on.

    Raises:
        InputError: It acts on other quantities, or has inputs other than the positions of these joints.
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
    """Return the derivative of the network's inputs with respect to a joint's position."""
    position = net.read(f"q.{joint}")
    slopes = {f"q.{joint}": 1.0, f"sin(q.{joint})": cos(position), f"cos(q.{joint})": -sin(position)}
    scales = net.augmentation.input_scale or (1.0,) * len(net.augmentation.inputs)
    return [slopes.get(name, 0.0) / scale for name, scale in zip(net.augmentation.inputs, scales, strict=True)]


def inertial(net: ActingNetwork) -> list[Any]:
    """Record an addition to the mass matrix; add nothing to torques. See `joints_of`."""
    joints = joints_of(net, "mass_matrix")
    n, gains = len(joints), [math.sqrt(abs(size)) for size in net.sizes]
    lower = triangle(net.outputs, n)
    slopes = [triangle(net.along(direction(net, joint)), n) for joint in joints]
    rates = [net.read(f"qd.{joint}") for joint in joints]
    moving = [g * rate for g, rate in zip(gains, rates, strict=True)]
    change = [[sum(s[i][k] * v for s, v in zip(slopes, rates, strict=True)) for k in range(i + 1)] for i in range(n)]
    y = _down(lower, moving)
    across = [a + b for a, b in zip(_up(change, y), _up(lower, _down(change, moving)), strict=True)]
    energy = [sum(a * b for a, b in zip(y, _down(slope, moving), strict=True)) for slope in slopes]
    bias = [g * a - e for g, a, e in zip(gains, across, energy, strict=True)]
    matrix = [
        [gains[i] * gains[j] * sum(lower[i][k] * lower[j][k] for k in range(min(i, j) + 1)) for j in range(n)]
        for i in range(n)
    ]
    net.inertias.append(AddedInertia(tuple(joints), matrix, bias))
    return [0.0] * n


def heavier(
    tree: Tree, motions: Sequence[RelativeMotion], acceleration: list[Any], added: Sequence[AddedInertia]
) -> list[Any]:
    r"""Return the solution of $(M + \Delta M) \ddot q = M \ddot q_0 - b$ from $\ddot q_0$, without $\Delta M$."""
    inertia = TreeInertia(tree, link_poses(tree, motions))
    right, matrix = inertia.times(acceleration), [list(row) for row in inertia.matrix]
    for one in added:
        places = [tree.dofs[name] for name in one.joints]
        for i, row, bias in zip(places, one.matrix, one.bias, strict=True):
            right[i] = right[i] - bias
            for j, entry in zip(places, row, strict=True):
                if j <= i:
                    matrix[i][j] = matrix[i][j] + entry
    return solve(*factorise(matrix), right)


def _up(lower: list[list[Any]], vector: Sequence[Any]) -> list[Any]:
    return [sum(x * y for x, y in zip(row, vector, strict=False)) for row in lower]


def _down(lower: list[list[Any]], vector: Sequence[Any]) -> list[Any]:
    """Return L^T times a vector."""
    n = len(lower)
    return [sum(lower[i][k] * vector[i] for i in range(k, n)) for k in range(n)]


_TORQUES = ("torque", "passive", "actuator")
_WRENCHES = {"force": "velocity", "moment": "spin"}


def conjugate(name: str) -> str:
    """Return the velocity conjugate to a force: qd.JOINT for torque.JOINT, velocity.LINK.x for a wrench's force.x.

    Raises:
        InputError: The quantity is not a force.
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
    gains, moving = _scale(net)
    lower = triangle(net.outputs, len(moving))
    across = _down(lower, moving)
    return [-(g * sum(x * y for x, y in zip(row, across, strict=False))) for g, row in zip(gains, lower, strict=True)]


def gyroscopic(net: ActingNetwork) -> list[Any]:
    """Return forces that do no work."""
    return _turning(net, net.outputs)


def passive(net: ActingNetwork) -> list[Any]:
    """Return forces whose power is never positive, with a damping matrix that need not be symmetric."""
    n = len(net.quantities)
    return [a + b for a, b in zip(dissipative(net), _turning(net, net.outputs[n * (n + 1) // 2 :]), strict=True)]


def _turning(net: ActingNetwork, entries: list[Any]) -> list[Any]:
    gains, moving = _scale(net)
    forces: list[Any] = [0.0] * len(moving)
    pairs = [(i, j) for i in range(len(moving)) for j in range(i)]
    for (i, j), entry in zip(pairs, entries, strict=False):
        forces[i] = forces[i] + gains[i] * (entry * moving[j])
        forces[j] = forces[j] - gains[j] * (entry * moving[i])
    return forces


def _scale(net: ActingNetwork) -> tuple[list[float], list[Any]]:
    """Return the gains G and the scaled velocities G v."""
    names = [conjugate(name) for name in net.quantities]
    gains = [math.sqrt(abs(size) / net.input_size(name)) for size, name in zip(net.sizes, names, strict=True)]
    return gains, [g * net.read(name) for g, name in zip(gains, names, strict=True)]


FORMS: Registry[Form] = Registry(
    "structure", free=free, dissipative=dissipative, gyroscopic=gyroscopic, passive=passive, conservative=conservative,
    inertial=inertial,
)  # fmt: skip
"""Forms by the name of their structure (`core.description.blueprint.STRUCTURES`)."""
