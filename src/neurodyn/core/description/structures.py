# SPDX-License-Identifier: Apache-2.0
"""What a network of a blueprint can be made to keep of physics, whatever its weights are.

The functions from a network's outputs to what they do are `multibody.structures.FORMS`, under the same names.
"""

from collections.abc import Callable
from dataclasses import dataclass

from neurodyn.core.registry import Registry


@dataclass(frozen=True)
class Structure:
    """One structure.

    Attributes:
        outputs: Number of outputs of a network that acts on so many quantities.
        start: Size of the first weights of its last layer; not 0 where effects are quadratic in the outputs, since at
            0 no gradient would reach these.
        least: Fewest quantities.
    """

    outputs: Callable[[int], int]
    start: float = 0.0
    least: int = 1


_START = 0.1

FREE = "free"
STRUCTURES: Registry[Structure] = Registry(
    "structure",
    free=Structure(lambda n: n),
    dissipative=Structure(lambda n: n * (n + 1) // 2, _START),
    gyroscopic=Structure(lambda n: n * (n - 1) // 2, least=2),
    passive=Structure(lambda n: n * n, _START),
    conservative=Structure(lambda n: 1),
    inertial=Structure(lambda n: n * (n + 1) // 2, _START),
)
"""Structures by name; "free" for none."""
