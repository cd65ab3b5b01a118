# SPDX-License-Identifier: Apache-2.0
"""When a step takes the compiled frame, and the frames that a model keeps."""

from typing import Any

import torch
from torch import Tensor

from neurodyn.dynamics.fixed_frame import KeptFrames, wants_torch
from neurodyn.dynamics.interface import Environment, State
from neurodyn.dynamics.neural.compiled.frame import CompiledFrame, felt_ground
from neurodyn.dynamics.neural.compiled.network import is_plain
from neurodyn.dynamics.neural.encoding import Encoding
from neurodyn.dynamics.neural.outputs import Predict
from neurodyn.nets.predictor import Predictor

NETWORK_WORLDS = 16
"""Most worlds for which the compiled network is the faster one on a CPU; beyond, torch's matrix products are.

Measured by benchmarks/neural_step.py: they meet at 8 to 24 worlds for the ant and ANYmal C, at 32 to 48 for the
cartpole, depending on how busy the caches are.
"""


class CompiledFrames:
    """The frames of one model, for each thread its own: two threads may step the same model."""

    def __init__(self, encoding: Encoding, predictor: Predictor) -> None:
        self._encoding, self._predictor = encoding, predictor
        modules = [module for part in (encoding, predictor) for module in part.modules()]
        self._parameters: list[dict[str, Any]] = [m._parameters for m in modules if m._parameters]
        self._kept = KeptFrames()

    def of(self, encoding: Encoding, predictor: Predictor) -> bool:
        """Return whether they are those of this encoding and predictor."""
        return encoding is self._encoding and predictor is self._predictor

    def step(
        self,
        state: State,
        torque: Tensor,
        memory: Any,
        environment: Environment,
        predict: Predict,
        *,
        spread: int = 0,
        mean: bool = True,
    ) -> tuple[State, State | None, Any] | None:
        """Return the state one frame later, the members' states, and the network's memory; None for a step in torch.

        Args:
            state: The state.
            torque: Torques during the frame [N m or N], shape [worlds, nu].
            memory: The network's memory; it stays valid unless `predict` uses it up.
            environment: Gravity and ground.
            predict: The predictor's frame in torch, for many worlds and for networks without a compiled form.
            spread: Members whose states are wanted, [spread, worlds, ...]; 0 for none of them.
            mean: Whether the worlds follow a single network, or the mean of all that there are.

        Raises:
            InputError: The ground is for another number of worlds.
        """
        q, qd = state.q, state.qd
        hidden = memory if isinstance(memory, tuple) else ()
        if wants_torch((q, qd, torque, *hidden), self._parameters):
            return None
        frame = self._frame(q, qd, torque, environment, spread, mean)
        if frame is None:
            return None
        with torch.no_grad():
            frame.q.copy_(q)
            frame.qd.copy_(qd)
            frame.torque.copy_(torque)
            if frame.network is None:
                frame.encode()
                outputs, memory = predict(frame.x, memory)
                frame.y.copy_(outputs.followed)
                if outputs.members is not None:
                    frame.members_y.copy_(outputs.members)
                frame.decode()
            else:
                for own, given in zip(frame.network.cells, hidden, strict=True):
                    own.copy_(given)
                frame.run()
                memory = tuple(cell.clone() for cell in frame.network.cells) or None
            after = State.unchecked(q=frame.q_next.clone(), qd=frame.qd_next.clone(), channels=None)
            if not spread:
                return after, None, memory
            # Read before the next frame; nobody keeps them.
            return after, State.unchecked(q=frame.members_q_next, qd=frame.members_qd_next, channels=None), memory

    def _frame(
        self, q: Tensor, qd: Tensor, torque: Tensor, environment: Environment, spread: int, mean: bool
    ) -> CompiledFrame | None:
        """Return the frame for such states; None where they, or the weights, are not as a compiled frame wants them."""
        ground = felt_ground(self._encoding, environment)
        pose = None if ground is None else ground.pose
        key = (
            q.shape, qd.shape, torque.shape, q.dtype, q.device, None if pose is None else pose.shape,
            None if ground is None else id(ground.compiled), spread, mean,
        )  # fmt: skip
        frame: CompiledFrame | None = self._kept.get(key, lambda: self._made(q, qd, torque, environment, spread, mean))
        if frame is None:
            return None
        if frame.network is not None and not frame.network.refresh():
            self._kept.drop(key)
            return None
        frame.place(environment)
        return frame

    def _made(
        self, q: Tensor, qd: Tensor, torque: Tensor, environment: Environment, spread: int, mean: bool
    ) -> CompiledFrame | None:
        spec, worlds, like = self._encoding.spec, q.shape[0], self._encoding.dt
        shapes = [(worlds, spec.nq), (worlds, spec.nv), (worlds, spec.nu)]
        given = (q, qd, torque)
        if not worlds or [tuple(tensor.shape) for tensor in given] != shapes:
            return None
        if like.dtype not in (torch.float32, torch.float64) or like.device.type not in ("cpu", "cuda"):
            return None
        if any(tensor.dtype != like.dtype or tensor.device != like.device for tensor in given):
            return None
        network = mean and like.device.type == "cpu" and worlds <= NETWORK_WORLDS and is_plain(self._predictor, like)
        return CompiledFrame(self._encoding, self._predictor, worlds, environment, network=network, members=spread)
