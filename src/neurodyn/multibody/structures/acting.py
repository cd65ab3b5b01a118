# SPDX-License-Identifier: Apache-2.0
"""A network of a blueprint in a traced step, as the forms of structures see it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from neurodyn.core.description.blueprint import Augmentation
from neurodyn.multibody.structures.tangent import tangent_loop
from neurodyn.multibody.trace import Expression, Graph, Scalar, apply_loop


@dataclass
class AddedInertia:
    r"""What a network adds to the equations of motion of some joints.

    Attributes:
        joints: Names of the joints.
        matrix: What it adds to the mass matrix, symmetric and nowhere negative.
        bias: The torques of its change, $\dot M \dot q - \partial_q (\tfrac12 \dot q^T M \dot q)$.
    """

    joints: tuple[str, ...]
    matrix: list[list[Any]]
    bias: list[Any]


@dataclass
class ActingNetwork:
    """A network and its outputs.

    Attributes:
        augmentation: The network.
        graph: Graph of the step.
        first_weight: Where its weights begin.
        inputs: Its inputs, scaled, memory included.
        outputs: Its outputs, those of a memory left out.
        read: Returns a quantity by name.
        inertias: Where additions to the mass matrix are noted.
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
        """Names of the quantities that it acts on."""
        return self.augmentation.quantities

    @property
    def sizes(self) -> tuple[float, ...]:
        """What outputs are multiplied by, one a quantity."""
        return self.augmentation.output_scale or (1.0,) * len(self.quantities)

    def input_size(self, name: str) -> float:
        """Return what an input of this name is divided by; 1 where there is none."""
        one = self.augmentation
        return abs(one.input_scale[one.inputs.index(name)]) if one.input_scale and name in one.inputs else 1.0

    def along(self, directions: Sequence[Scalar]) -> list[Any]:
        """Return the derivatives of the outputs along a direction in the inputs."""
        loop = tangent_loop(self.augmentation, self.first_weight, f"slope of {', '.join(self.quantities)}")
        return list(apply_loop(self.graph, loop, [*self.inputs, *directions]))[: self.augmentation.outputs]


Form = Callable[[ActingNetwork], list[Any]]
"""From a network to what is added to each of its quantities (without a structure: what its mode makes use of)."""


def free(net: ActingNetwork) -> list[Any]:
    """Return the scaled outputs."""
    return [output * size for output, size in zip(net.outputs, net.sizes, strict=True)]


def triangle(outputs: Sequence[Any], n: int) -> list[list[Any]]:
    """Return the rows of a lower triangular matrix with these entries."""
    return [list(outputs[i * (i + 1) // 2 :][: i + 1]) for i in range(n)]
