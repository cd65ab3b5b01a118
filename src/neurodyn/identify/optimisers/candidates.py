# SPDX-License-Identifier: Apache-2.0
"""What is computed for candidates, here or by the workers of a cluster: every candidate is a row of its own.

No row depends on the others of its batch, to the bit (on one kind of processor), so that results do not depend on how
many workers share the candidates out.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.core.workers import Executor
from neurodyn.identify.optimisers.least_squares import levenberg_marquardt
from neurodyn.identify.residuals import Point, Residuals
from neurodyn.learn.devices import threads

Rows = Callable[[Tensor], tuple[Tensor, ...]]
"""From coordinates, shape [S, n], to tensors of S rows."""


@dataclass(frozen=True)
class LocalSearches:
    """Local searches from S starts; coordinates, costs and whether each has converged.

    Attributes:
        residuals: What is minimised.
        iterations: Most iterations.
    """

    residuals: Residuals
    iterations: int

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """Search from some starts."""
        solution = levenberg_marquardt(self.residuals, self.residuals.start(x), self.iterations)
        return solution.point.x, solution.cost, solution.converged


@dataclass(frozen=True)
class Costs:
    """Costs of S candidates, in all but the coordinates at one point.

    Attributes:
        residuals: What is minimised.
        start: The point, of one set.
    """

    residuals: Residuals
    start: Point

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the costs of some candidates."""
        local, initial = (part.expand(len(x), *part.shape[1:]) for part in (self.start.local, self.start.initial))
        return (self.residuals.cost(Point(x, local, initial)),)


@contextmanager
def shared_out(function: Rows, executor: Executor | None) -> Iterator[Rows]:
    """Yield a function of candidates whose rows the workers of an executor compute; the function itself for None."""
    if executor is None:
        yield function
        return
    with executor.workers(OnOneThread(function)) as calls:

        def joined(x: Tensor) -> tuple[Tensor, ...]:
            parts = list(calls.map([part.clone() for part in x.tensor_split(min(len(x), calls.count))]))
            return tuple(torch.cat(column) for column in zip(*parts, strict=True))

        yield joined


@dataclass(frozen=True)
class OnOneThread:
    """A function in the process of a worker, where sums are in the order of a search on one machine."""

    function: Callable[..., tuple[Tensor, ...]]

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """Call it."""
        with threads(1):
            return self.function(x)
