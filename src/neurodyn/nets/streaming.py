# SPDX-License-Identifier: Apache-2.0
"""Predictors as functions of tensors alone: one frame in, one frame out, with the memory as plain tensors.

That is what other runtimes can hold.
"""

from torch import Tensor, nn

from neurodyn.nets.predictor import Predictor

Memory = tuple[Tensor, ...]


class StreamingPredictor(nn.Module):
    """One frame of a predictor; inputs and outputs in physical units."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.predictor = predictor
        self.begin(1)  # what a network keeps for itself is made before it is traced

    @property
    def memory_names(self) -> tuple[str, ...]:
        """Names of the memory's tensors."""
        return self.predictor.net.stream_names

    def begin(self, worlds: int) -> Memory:
        """Return the memory of worlds without history; worlds are the first axis of every tensor."""
        return self.predictor.net.stream_begin(worlds)

    def forward(self, x: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        """Predict one frame.

        Args:
            x: Inputs, shape [worlds, inputs].
            memory: What the last call returned, or `begin`.

        Returns:
            Outputs, shape [worlds, outputs], and the memory.
        """
        predictor = self.predictor
        n = predictor.normalise_input(x)
        y, memory = predictor.net.stream(n, memory)
        if predictor.skip is not None:
            y = y + predictor.skip(n)
        return (predictor.denormaliser.inverse(y), *memory)
