# SPDX-License-Identifier: Apache-2.0
"""Neural dynamics: a network in place of a simulator's dynamics and contact solver (NeRD, arXiv 2508.15755)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from neurodyn.core.errors import InputError
from neurodyn.core.fingerprint import Fingerprint
from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.encoding import Encoding
from neurodyn.dynamics.interface import Control, Environment, State, Step, Trajectory, Window, present_state
from neurodyn.nets.predictor import Predictor


@dataclass(frozen=True)
class NeuralCarry:
    """History of a batch of worlds, as the network keeps it.

    Attributes:
        memory: The network's own carry (hidden state, or keys and values of recent frames).
    """

    memory: Any


class NeuralDynamics(nn.Module):
    """A network that predicts one frame at a time from state, torque and its own memory.

    Gradients flow through `step` and `rollout` to the initial state, the torques and the weights. Loaded models
    have frozen weights; `requires_grad_(True)` makes them trainable.

    Attributes:
        spec: Names, order, units and dt of state and control.
        encoding: From state and torque to network inputs, and back.
        predictor: Normalisation, network and linear skip.
        fingerprint: The articulation that the model was trained on; None for a model of logs.
    """

    differentiable = True

    def __init__(self, encoding: Encoding, predictor: Predictor, fingerprint: Fingerprint | None = None) -> None:
        super().__init__()
        self.encoding = encoding
        self.predictor = predictor
        self.fingerprint = fingerprint
        self.spec: StateSpec = encoding.spec.with_context(predictor.context)

    def begin(self, context: State | Window, environment: Environment | None = None) -> NeuralCarry:
        """Return the carry of worlds whose history is `context`; a bare state has none.

        Raises:
            InputError: `environment` asks for another gravity than the model was trained in.
        """
        self._require_own_environment(environment)
        state = present_state(context)
        memory = self.predictor.begin(state.worlds)
        if isinstance(context, Window):
            memory = self.predictor.prime(memory, self._window_inputs(context))
        return NeuralCarry(memory)

    def step(self, carry: NeuralCarry, state: State, control: Control) -> tuple[NeuralCarry, Step]:
        """Predict one frame; `carry` stays valid, so that two futures can be tried from one past."""
        torque = frame_torque(self.spec, state, control)
        output, memory = self.predictor.step(self.encoding.encode(state.q, state.qd, torque), carry.memory)
        return NeuralCarry(memory), Step(self.encoding.next_state(state, output))

    @torch.no_grad()
    def step_(self, carry: NeuralCarry, state: State, control: Control) -> tuple[NeuralCarry, Step]:
        """Predict one frame without gradients, faster than `step`: the carry that is passed in is used up."""
        torque = frame_torque(self.spec, state, control)
        output, memory = self.predictor.step_(self.encoding.encode(state.q, state.qd, torque), carry.memory)
        return NeuralCarry(memory), Step(self.encoding.next_state(state, output))

    def reset(self, carry: NeuralCarry, context: State | Window, mask: Tensor) -> NeuralCarry:
        """Begin anew in the worlds where `mask` is true, shape [worlds]; the others stay bitwise alone."""
        if isinstance(context, Window):
            return NeuralCarry(self.predictor.prime(carry.memory, self._window_inputs(context), mask))
        return NeuralCarry(self.predictor.reset(carry.memory, mask))

    def rollout(self, context: State | Window, controls: Tensor, environment: Environment | None = None) -> Trajectory:
        """Predict T frames under torques `controls` [N m or N], shape [worlds, T, nu].

        Runs the fast path (no copies of the history) unless something asks for gradients: the context, the
        controls, or weights that are not frozen.
        """
        tracked = torch.is_grad_enabled() and any(t.requires_grad for t in self._leaves(context, controls))
        advance = self.step if tracked else self.step_
        carry, state = self.begin(context, environment), present_state(context)
        q, qd = [state.q], [state.qd]
        for torque in controls.unbind(1):
            carry, step = advance(carry, state, Control(torque=torque))
            state = step.state
            q.append(state.q)
            qd.append(state.qd)
        return Trajectory(torch.stack(q, 1), torch.stack(qd, 1))

    def forward(self, q: Tensor, qd: Tensor, torque: Tensor) -> Tensor:
        """Return normalised predictions along true states (teacher forcing), shape [batch, T, outputs].

        Args:
            q: Positions at the starts of the frames [rad or m], shape [batch, T, nq].
            qd: Velocities, shape [batch, T, nv].
            torque: Torques during the frames [N m or N], shape [batch, T, nu].
        """
        return self.predictor.forward_normalised(self.encoding.encode(q, qd, torque))

    def _window_inputs(self, window: Window) -> Tensor:
        return self.encoding.encode(window.q[:, :-1], window.qd[:, :-1], window.torque)

    def _leaves(self, context: State | Window, controls: Tensor) -> list[Tensor]:
        tensors = [context.q, context.qd, controls, *self.parameters()]
        return [*tensors, context.torque] if isinstance(context, Window) else tensors

    def _require_own_environment(self, environment: Environment | None) -> None:
        if environment is None or environment.gravity is None or self.fingerprint is None:
            return
        own = torch.tensor(self.fingerprint.gravity, dtype=environment.gravity.dtype, device=environment.gravity.device)
        if not torch.allclose(environment.gravity, own.expand_as(environment.gravity), atol=1e-4):
            raise InputError(
                f"model of {self.spec.robot!r}: gravity {environment.gravity.flatten()[:3].tolist()} is not the "
                f"{own.tolist()} that it was trained in; train a model in that gravity"
            )
