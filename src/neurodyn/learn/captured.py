# SPDX-License-Identifier: Apache-2.0
"""The gradient of a loss as a CUDA graph: launches, not arithmetic, are the time of a small network."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from neurodyn.dynamics.capture import Recorder, copied, cuda_graph, write


class CapturedGradient:
    """The gradient of a loss over batches of one shape, recorded once and replayed."""

    def __init__(
        self,
        loss: Callable[[Any], Callable[[], Tensor]],
        batch: Any,
        parameters: Iterable[nn.Parameter],
        *,
        record: Recorder = cuda_graph,
    ) -> None:
        """Record the gradient.

        Args:
            loss: Takes the buffers that hold every later batch, a tree like `batch`; returns the function that computes
                the loss of what they hold, without reading a number from the device.
            batch: A tree of tensors.
            parameters: What the gradient is taken with respect to.
            record: Records a call.
        """
        self._buffers, self._parameters = copied(batch), [p for p in parameters if p.requires_grad]
        self._gradients = [torch.zeros_like(p) for p in self._parameters]
        device, compute = self._gradients[0].device, loss(self._buffers)
        self._loss = torch.zeros((), device=device)

        def work() -> None:
            self._take()
            torch._foreach_zero_(self._gradients)  # pyright: ignore[reportPrivateImportUsage]
            value = compute()
            value.sum().backward()
            self._loss.copy_(value.detach().mean())

        self._recording = record(work, device, ())

    def _take(self) -> None:
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient

    def __call__(self, batch: Any) -> Tensor:
        """Set the gradients of the parameters; return the mean loss, shape []."""
        write(self._buffers, batch)
        self._take()
        self._recording.replay()
        return self._loss.clone()
