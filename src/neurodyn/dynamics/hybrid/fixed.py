# SPDX-License-Identifier: Apache-2.0
"""A frame of hybrid dynamics on a plane or in free space, faster than a roll-out of one frame.

As a `FixedFrame` it is one recorded kernel launch. Differentiated by state and torques alone, it converts parameters
and weights once.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.dynamics.batch import Environment, State
from neurodyn.dynamics.capture import FixedFrame, KeptFrames, wants_torch
from neurodyn.dynamics.hybrid.parameters import Parameters
from neurodyn.geometry.launching import Chain
from neurodyn.multibody.engine import Engine, EngineConfig
from neurodyn.multibody.trace.program import TracedProgram

# ruff: noqa: D102  # the members of a protocol are documented in the class that it stands for


class FrameSource(Protocol):
    """What these frames need of `HybridDynamics`, which documents the members."""

    config: EngineConfig
    physical: Parameters
    compute_device: str | None

    @property
    def _parameters(self) -> Any: ...

    @property
    def threads(self) -> int: ...

    @property
    def weights(self) -> Tensor: ...

    @property
    def spec(self) -> StateSpec: ...

    @property
    def memory(self) -> int: ...

    @property
    def plane_engine(self) -> Engine: ...

    def parallel(self, environment: Environment) -> bool: ...

    def versions(self, environment: Environment) -> list[object]: ...

    def values(self, environment: Environment, q: Tensor, qd: Tensor) -> tuple[Tensor | None, Tensor, Tensor]: ...

    def fixed_frame(self, worlds: int, environment: Environment, like: Tensor) -> FixedFrame: ...


class HybridFixedFrame:
    """See `FixedFrame`."""

    capturable = True

    def __init__(
        self, dynamics: FrameSource, program: TracedProgram, worlds: int, environment: Environment, like: Tensor
    ) -> None:
        """Allocate the buffers and record the launch of the program.

        Args:
            dynamics: The dynamics.
            program: Their compiled step on planes.
            worlds: Number of worlds.
            environment: Gravity, and a plane or no ground.
            like: Tensor whose dtype and device the buffers get.
        """
        spec = dynamics.spec
        self._dynamics, self._environment, self._like = dynamics, environment, like
        state = like.new_zeros(worlds, spec.nq + spec.nv)
        self.q, self.qd = state[:, : spec.nq], state[:, spec.nq :]
        self.torque = like.new_zeros(worlds, spec.nu)
        self._versions: list[object] = []
        self._values = self._read()
        held, parameters, weights = self._values
        run = program.run(
            state, frames=1, substeps=dynamics.config.substeps, control=self.torque[:, None],
            held=None if held is None else held[:, None], parameters=parameters, weights=weights,
        )  # fmt: skip
        path, command = program.bind(run, state)
        self.q_next, self.qd_next = path[:, -1, : spec.nq], path[:, -1, spec.nq :]
        self._chain = Chain([command], like.device, (state, run, path))

    @torch.no_grad()
    def after(self, state: State, torque: Tensor) -> State:
        """Return the states one frame later under torques [N m or N], shape [worlds, nu]."""
        if self._dynamics.versions(self._environment) != self._versions:  # `refresh` without a call
            self._write()
        self.q.copy_(state.q)
        self.qd.copy_(state.qd)
        self.torque.copy_(torque)
        self._chain()
        return State.make_unchecked(q=self.q_next.clone(), qd=self.qd_next.clone(), channels=None)

    def run(self) -> None:
        """Predict the frame from the buffers `q`, `qd` and `torque`."""
        self._chain()

    def refresh(self) -> None:
        """Update the buffers if parameters, weights, gravity or ground poses have changed."""
        if self._dynamics.versions(self._environment) != self._versions:
            self._write()

    def reset(self, mask: Tensor | None) -> None:
        """Do nothing: these dynamics have no memory."""

    def in_environment(self, environment: Environment) -> FixedFrame:
        """Return the frame in another environment: this one if that is a plane too."""
        other = self._dynamics.fixed_frame(len(self.q), environment, self._like)
        if not isinstance(other, HybridFixedFrame) or other._shapes != self._shapes:
            return other
        self._environment = environment
        self._write()
        return self

    @property
    def _shapes(self) -> list[torch.Size | None]:
        return [None if value is None else value.shape for value in self._values]

    def _write(self) -> None:
        for buffer, value in zip(self._values, self._read(), strict=True):
            if buffer is not None and value is not None:
                buffer.copy_(value)

    @torch.no_grad()
    def _read(self) -> tuple[Tensor | None, Tensor, Tensor]:
        """Return copies of ground, parameters and weights."""
        self._versions = self._dynamics.versions(self._environment)
        held, parameters, weights = self._dynamics.values(self._environment, self.q, self.qd)
        return (
            None if held is None else held.to(self._like).contiguous().clone(),
            parameters.to(self._like).contiguous().clone(),
            weights.to(self._like).contiguous().clone(),
        )


_MOST_WORLDS = 64
"""Maximum number of worlds for which fixed buffers are preferred to several threads or another device."""


class BufferedFrames:
    """Frames of one model between fixed buffers, without gradients, on a CPU."""

    def __init__(self) -> None:
        self._kept = KeptFrames()

    def after(self, dynamics: FrameSource, environment: Environment, state: State, torque: Tensor) -> State | None:
        """Return the states one frame later; None if fixed buffers cannot be used or are not worthwhile.

        Torques [N m or N] have shape [worlds, nu]; the environment is resolved.
        """
        q, qd, worlds = state.q, state.qd, len(state.q)
        if dynamics.memory or not worlds or not q.is_cpu:
            return None
        if worlds > _MOST_WORLDS and (dynamics.threads > 1 or dynamics.compute_device is not None):
            return None
        if wants_torch((q, qd, torque), [dynamics._parameters, dynamics.physical._parameters]):
            return None
        if qd.dtype != q.dtype or torque.dtype != q.dtype:
            return None
        key = (q.shape, qd.shape, torque.shape, q.dtype, id(environment))
        # The entry keeps the environment alive, so that its id is not reused.
        frame, _ = self._kept.get(key, lambda: (_fixed_frame(dynamics, environment, state, torque), environment))
        return None if frame is None else frame.after(state, torque)


def _fixed_frame(
    dynamics: FrameSource, environment: Environment, state: State, torque: Tensor
) -> HybridFixedFrame | None:
    spec, worlds = dynamics.spec, len(state.q)
    shapes = [(worlds, spec.nq), (worlds, spec.nv), (worlds, spec.nu)]
    if [tuple(tensor.shape) for tensor in (state.q, state.qd, torque)] != shapes:
        return None
    frame = dynamics.fixed_frame(worlds, environment, state.q)
    return frame if isinstance(frame, HybridFixedFrame) else None


class TrackedFrames:
    """Frames of one model that are differentiated by state and torques alone, on a CPU."""

    def __init__(self) -> None:
        self._key: object = None
        self._values: tuple[Tensor | None, Tensor, Tensor] | None = None

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Drop cached values on copy and pickle."""
        return TrackedFrames, ()

    def after(self, dynamics: FrameSource, environment: Environment, state: State, torque: Tensor) -> State | None:
        """Return the states one frame later; None if more is to be differentiated, or the ground is not a plane.

        Torques [N m or N] have shape [worlds, nu]; the environment is resolved.
        """
        if not _is_tracked(dynamics, environment, state, torque):
            return None
        key = (dynamics.versions(environment), state.worlds, state.q.dtype, environment)
        if self._values is None or self._key != key:
            with torch.no_grad():
                held, parameters, weights = dynamics.values(environment, state.q, state.qd)
                self._values, self._key = (held, parameters.to(state.q), weights.to(state.q)), key
        held, parameters, weights = self._values
        q, qd = dynamics.plane_engine.program.frame_after(
            state.q, state.qd, substeps=dynamics.config.substeps, control=torque, held=held, parameters=parameters,
            weights=weights,
        )  # fmt: skip
        return State.make_unchecked(q=q, qd=qd, channels=None)


def _is_tracked(dynamics: FrameSource, environment: Environment, state: State, torque: Tensor) -> bool:
    """Return whether a frame is differentiated, by state and torques alone, on a CPU and a plane."""
    q, qd, given, ground = state.q, state.qd, environment.parameters, environment.ground
    others = [
        dynamics.weights, dynamics.physical.raw, environment.gravity, None if given is None else given.numbers,
        None if ground is None else ground.pose,
    ]  # fmt: skip
    return (
        torch.is_grad_enabled()
        and (q.requires_grad or qd.requires_grad or torque.requires_grad)
        and q.is_cpu
        and not dynamics.memory
        and q.dtype == qd.dtype == torque.dtype
        and not any(other is not None and other.requires_grad for other in others)
        and dynamics.parallel(environment)
    )
