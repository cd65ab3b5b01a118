# SPDX-License-Identifier: Apache-2.0
"""A frame of dynamics between buffers that stay where they are: for loops that allocate nothing, and for graphs."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from neurodyn.dynamics.batch import Control, Environment, State
from neurodyn.dynamics.interface import Dynamics


@runtime_checkable
class FixedFrame(Protocol):
    """One frame of a batch of worlds, without gradients; holds the history of the worlds.

    Attributes:
        q: Positions at the start, to be written, shape [worlds, nq].
        qd: Velocities at the start, to be written, shape [worlds, nv].
        torque: Torques during the frame [N m or N], to be written, shape [worlds, nu].
        q_next: Positions one frame later, shape [worlds, nq].
        qd_next: Velocities one frame later, shape [worlds, nv].
        capturable: Whether `run` is Warp launches alone, which a graph can hold.
    """

    q: Tensor
    qd: Tensor
    torque: Tensor
    q_next: Tensor
    qd_next: Tensor
    capturable: bool

    def run(self) -> None:
        """Predict the frame; within a capture its launches join the graph."""
        ...

    def refresh(self) -> None:
        """Look at the model's weights anew, where they have moved since the last run."""
        ...

    def reset(self, mask: Tensor | None) -> None:
        """Forget the history of the worlds where `mask` is true, shape [worlds]; of all without a mask."""
        ...

    def moved(self, environment: Environment) -> "FixedFrame":
        """Return the frame in another environment, with the history of its worlds: itself, or one with other buffers.

        Raises:
            InputError: The ground is for another number of worlds.
        """
        ...


class KeptFrames:
    """The last frames of one model, for each thread its own: two threads may step the same model; copies have none."""

    def __init__(self) -> None:
        self._local = threading.local()

    def __deepcopy__(self, memo: Any) -> "KeptFrames":
        return KeptFrames()

    def __reduce__(self) -> Any:
        return KeptFrames, ()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the frame of a key, made now where there is none."""
        frames: dict[Any, Any] = self._local.__dict__
        if key not in frames:
            while len(frames) >= _MOST:
                frames.pop(next(iter(frames)))
            with torch.inference_mode(False):  # kept for later calls, in whatever mode
                frames[key] = make()
        return frames[key]

    def drop(self, key: Any) -> None:
        """Forget the frame of a key."""
        self._local.__dict__.pop(key, None)


_MOST = 4
"""Frames that are kept: those of the last numbers of worlds and environments."""


class EagerFrame:
    """A `FixedFrame` of any dynamics: their own step, between buffers."""

    capturable = False

    def __init__(self, dynamics: Dynamics, worlds: int, environment: Environment, like: Tensor) -> None:
        """Make the buffers.

        Args:
            dynamics: The dynamics.
            worlds: Number of worlds.
            environment: What they are in.
            like: Tensor of the precision and on the device of the buffers.
        """
        spec = dynamics.spec
        self._dynamics, self._environment, self._carry = dynamics, environment, None
        self.q, self.q_next = (like.new_zeros(worlds, spec.nq) for _ in range(2))
        self.qd, self.qd_next = (like.new_zeros(worlds, spec.nv) for _ in range(2))
        self.torque = like.new_zeros(worlds, spec.nu)

    @torch.no_grad()
    def run(self) -> None:
        """Predict the frame."""
        state = State.unchecked(q=self.q, qd=self.qd, channels=None)
        carry: Any = self._dynamics.begin(state, self._environment) if self._carry is None else self._carry
        self._carry, step = self._dynamics.step_(carry, state, Control(torque=self.torque))
        self.q_next.copy_(step.state.q)
        self.qd_next.copy_(step.state.qd)

    def refresh(self) -> None:
        """Nothing is kept that could be elsewhere now."""

    def reset(self, mask: Tensor | None) -> None:
        """Forget the history of some worlds."""
        if self._carry is not None:
            state = State(self.q, self.qd)
            self._carry = None if mask is None else self._dynamics.reset(self._carry, state, mask)

    def moved(self, environment: Environment) -> "EagerFrame":
        """Return the frame in another environment: itself."""
        self._environment = environment
        if self._carry is not None:
            self._carry = replace(self._carry, environment=environment)
        return self


def wants_torch(tensors: Iterable[Tensor], parameters: Iterable[dict[str, Any]]) -> bool:
    """Return whether torch has to see the operations of a step: for gradients, tracing or transforms.

    Args:
        tensors: What the step is computed from.
        parameters: The parameters that it is computed with, one dictionary for each module.
    """
    if torch.is_grad_enabled():
        if any(tensor.requires_grad for tensor in tensors):
            return True
        if any(p is not None and p.requires_grad for group in parameters for p in group.values()):
            return True
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())  # whose graph outlives the buffers
        or any(type(tensor) not in _PLAIN for tensor in tensors)
    )


_PLAIN = (Tensor, nn.Parameter)
