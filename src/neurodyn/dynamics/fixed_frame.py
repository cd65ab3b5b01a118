# SPDX-License-Identifier: Apache-2.0
"""A frame of dynamics with fixed buffers, for loops without allocation and for CUDA graphs."""

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
    """One frame of a batch of worlds without gradients; it holds the history of the worlds.

    The caller writes `q`, `qd` and `torque`, calls `run`, and reads `q_next` and `qd_next`.

    Attributes:
        q: Positions at the start [rad or m], shape [worlds, nq].
        qd: Velocities at the start [rad/s or m/s], shape [worlds, nv].
        torque: Torques during the frame [N m or N], shape [worlds, nu].
        q_next: Positions one frame later, shape [worlds, nq].
        qd_next: Velocities one frame later, shape [worlds, nv].
        capturable: Whether `run` consists of Warp launches only, which a graph can capture.
    """

    q: Tensor
    qd: Tensor
    torque: Tensor
    q_next: Tensor
    qd_next: Tensor
    capturable: bool

    def run(self) -> None:
        """Predict the frame. During a capture, its launches become part of the graph."""
        ...

    def refresh(self) -> None:
        """Take over weights of the model that have changed or moved since the last run."""
        ...

    def reset(self, mask: Tensor | None) -> None:
        """Clear the history of the worlds where `mask` is true, shape [worlds]; of all for None."""
        ...

    def moved(self, environment: Environment) -> "FixedFrame":
        """Return the frame in another environment with the same history: this one, or one with other buffers."""
        ...


class KeptFrames:
    """The last frames of one model, cached per thread so that several threads can step it; copies start empty."""

    def __init__(self) -> None:
        self._local = threading.local()

    def __deepcopy__(self, memo: Any) -> "KeptFrames":
        return KeptFrames()

    def __reduce__(self) -> Any:
        return KeptFrames, ()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the frame of a key, made at the first request."""
        frames: dict[Any, Any] = self._local.__dict__
        if key not in frames:
            while len(frames) >= _MOST:
                frames.pop(next(iter(frames)))
            with torch.inference_mode(False):  # buffers have to be writable in later calls of any mode
                frames[key] = make()
        return frames[key]

    def drop(self, key: Any) -> None:
        """Forget the frame of a key."""
        self._local.__dict__.pop(key, None)


_MOST = 4
"""Number of frames that are kept."""


class EagerFrame:
    """A `FixedFrame` of any dynamics, which calls their `step_` and copies the result."""

    capturable = False

    def __init__(self, dynamics: Dynamics, worlds: int, environment: Environment, like: Tensor) -> None:
        """Allocate the buffers. Arguments: see `BaseDynamics.fixed_frame`."""
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
        """Do nothing: the step reads the weights itself."""

    def reset(self, mask: Tensor | None) -> None:
        """Clear the history of some worlds; see `FixedFrame.reset`."""
        if self._carry is not None:
            state = State(self.q, self.qd)
            self._carry = None if mask is None else self._dynamics.reset(self._carry, state, mask)

    def moved(self, environment: Environment) -> "EagerFrame":
        """Return this frame, moved to another environment."""
        self._environment = environment
        if self._carry is not None:
            self._carry = replace(self._carry, environment=environment)
        return self


def wants_torch(tensors: Iterable[Tensor], parameters: Iterable[dict[str, Any]]) -> bool:
    """Return whether a step with these inputs and parameters needs torch: for gradients, tracing or transforms."""
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
