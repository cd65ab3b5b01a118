# SPDX-License-Identifier: Apache-2.0
"""A network of NeRD as dynamics: of robots whose base is fixed, without ground.

At every frame the network sees the last `window` frames, wrapped positions, velocities and torques of all joints, and
predicts the change of state. History is kept as a window, which worlds fill from its beginning.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from neurodyn.core.description.fingerprint import Fingerprint
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.interface import Control, Environment, State, Step, Window, present_state
from neurodyn.dynamics.nerd.network import NerdNet, NerdNetConfig
from neurodyn.geometry.array_shapes import WorldMask

Part = Literal["states", "torques"]
"""What a network sees of a frame: positions and velocities, or torques of all joints."""


@dataclass(frozen=True)
class NerdCarry:
    """History of a batch of worlds.

    Attributes:
        frames: Inputs of the last frames, the oldest first, shape [worlds, window, inputs].
        filled: How many of these there are in each world, shape [worlds].
    """

    frames: Tensor
    filled: Tensor


class NerdDynamics(LearnedDynamics):
    """A network of NeRD; see `dynamics.nerd.model`.

    Attributes:
        window: Frames that the network sees, the present one included.
        parts: What it sees of a frame, in order: "states" (positions and velocities) and "torques" (of all joints).
    """

    kind = "nerd"

    _continuous: Tensor
    _driven: Tensor

    def __init__(
        self,
        spec: StateSpec,
        net: NerdNetConfig,
        window: int,
        parts: tuple[Part, ...],
        fingerprint: Fingerprint | None = None,
        declaration: str | None = None,
    ) -> None:
        """Build dynamics with fresh weights.

        Raises:
            InputError: The base floats, or the network has other inputs or outputs than the robot.
        """
        super().__init__(spec.with_context(window - 1), declaration)
        if spec.floating or spec.nq != spec.nv:
            raise InputError(f"robot {spec.robot!r}: its base floats; valid for networks of NeRD: a fixed base")
        sizes = {"states": spec.nq + spec.nv, "torques": spec.nv}
        expected = sum(sizes[part] for part in parts), spec.nq + spec.nv
        if (net.inputs, net.outputs) != expected:
            raise InputError(
                f"robot {spec.robot!r} has {expected[0]} inputs and {expected[1]} outputs, the network has "
                f"{net.inputs} and {net.outputs}; valid: the robot that it was trained for"
            )
        self.window, self.parts, self.fingerprint, self.net = window, parts, fingerprint, NerdNet(net)
        self.register_buffer("_continuous", torch.tensor(spec.continuous), persistent=False)
        driven = torch.tensor([spec.qd_names.index(name) for name in spec.controls], dtype=torch.long)
        self.register_buffer("_driven", driven, persistent=False)

    @property
    def network(self) -> str:
        """What kind of network it is."""
        return "transformer"

    def begin(self, context: State | Window, environment: Environment | None = None) -> NerdCarry:
        """Return the carry of worlds whose history is `context`; a bare state has none."""
        self.resolve_environment(environment)
        state = present_state(context)
        shape = state.worlds, self.window, self.net.config.inputs
        carry = NerdCarry(state.q.new_zeros(shape), torch.zeros(state.worlds, dtype=torch.long, device=state.q.device))
        return self._primed(carry, context)

    def step(self, carry: NerdCarry, state: State, control: Control) -> tuple[NerdCarry, Step]:
        """Predict one frame; `carry` stays valid."""
        carry = self._with(carry, self._inputs(state.q, state.qd, frame_torque(self.spec, state, control)))
        change = self.net(carry.frames)[torch.arange(state.worlds, device=state.q.device), carry.filled - 1]
        dq, dqd = change.split([self.spec.nq, self.spec.nv], -1)
        return carry, Step.unchecked(state=State.unchecked(q=state.q + dq, qd=state.qd + dqd))

    def reset(self, carry: NerdCarry, context: State | Window, mask: WorldMask) -> NerdCarry:
        """Begin anew in the worlds where `mask` is true, shape [worlds]."""
        fresh = self.begin(context)
        frames = torch.where(mask[:, None, None], fresh.frames, carry.frames)
        return NerdCarry(frames, torch.where(mask, fresh.filled, carry.filled))

    def require_ground(self) -> None:
        """Refuse every ground: the network feels none."""
        raise InputError(f"network of NeRD of {self.spec.robot!r}: feels no ground; valid: no ground")

    def require_gravity(self, gravity: Tensor) -> None:
        """Refuse a gravity that the network does not know."""
        own = None if self.fingerprint is None else torch.tensor(self.fingerprint.gravity)
        if own is not None and not torch.allclose(gravity.cpu().float(), own, atol=1e-6):
            raise InputError(f"network of NeRD of {self.spec.robot!r}: knows one gravity; valid: {own.tolist()} m/s^2")

    def _primed(self, carry: NerdCarry, context: State | Window) -> NerdCarry:
        if not isinstance(context, Window):
            return carry
        frames = self._inputs(context.q[:, :-1], context.qd[:, :-1], context.torque)
        for frame in frames[:, max(0, frames.shape[1] - self.window + 1) :].unbind(1):
            carry = self._with(carry, frame)
        return carry

    def _with(self, carry: NerdCarry, frame: Tensor) -> NerdCarry:
        """Return a history with one more frame; where it is full, the oldest goes."""
        full = carry.filled == self.window
        frames = torch.where(full[:, None, None], carry.frames.roll(-1, 1), carry.frames)
        place = torch.where(full, carry.filled - 1, carry.filled)
        there = torch.arange(self.window, device=frame.device) == place[:, None]
        return replace(carry, frames=torch.where(there[..., None], frame[:, None], frames), filled=place + 1)

    def _inputs(self, q: Tensor, qd: Tensor, torque: Tensor) -> Tensor:
        """Return what the network sees of frames, shape [..., inputs]."""
        wrapped = torch.where(self._continuous, torch.remainder(q + torch.pi, 2 * torch.pi) - torch.pi, q)
        whole = torch.zeros_like(qd).index_copy(-1, self._driven, torque)
        known: dict[str, list[Any]] = {"states": [wrapped, qd], "torques": [whole]}
        return torch.cat([tensor for part in self.parts for tensor in known[part]], -1)
