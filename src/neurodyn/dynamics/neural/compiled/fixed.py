# SPDX-License-Identifier: Apache-2.0
"""A frame of neural dynamics as a `FixedFrame`, with the history of its worlds."""

from typing import Any

import torch
from torch import Tensor

from neurodyn.dynamics.interface import Environment
from neurodyn.dynamics.neural.compiled.frame import CompiledFrame, felt_ground
from neurodyn.dynamics.neural.compiled.frames import NETWORK_WORLDS
from neurodyn.dynamics.neural.compiled.network import is_plain
from neurodyn.dynamics.neural.encoding import Encoding
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.launching import is_capturing
from neurodyn.nets.predictor import Predictor


class NeuralFixedFrame:
    """See `FixedFrame`."""

    def __init__(self, encoding: Encoding, predictor: Predictor, worlds: int, environment: Environment) -> None:
        """Take a model's parts; an error where the ground is for another number of worlds."""
        self._encoding, self._predictor = encoding, predictor
        like = encoding.dt
        plain = is_plain(predictor, like)
        self._members = predictor.members > 1
        members = predictor.members if plain and self._members else 0
        self._frame = frame = CompiledFrame(encoding, predictor, worlds, environment, network=plain, members=members)
        self.capturable = frame.capturable
        self.q, self.qd, self.torque = frame.q, frame.qd, frame.torque
        self.q_next, self.qd_next = frame.q_next, frame.qd_next
        self._compiled = plain and like.device.type == "cpu" and worlds <= NETWORK_WORLDS
        # Hidden states are the compiled network's own, so that both ways to run it go on from each other's.
        self._memory: Any = predictor.begin(worlds)
        if frame.network is not None:
            self._memory = frame.network.cells or None
        self._ground = felt_ground(encoding, environment)

    @torch.no_grad()
    def run(self) -> None:
        """Predict the frame."""
        frame = self._frame
        if self._compiled or (self.capturable and is_capturing(self.q.device)):
            frame.run()
            return
        frame.encode()
        x = frame.x[None] if self._members else frame.x
        y, self._memory = self._predictor.step_(x, self._memory)
        frame.y.copy_(y.mean(0) if self._members else y)
        frame.decode()

    def refresh(self) -> None:
        """Look where the weights are now."""
        network = self._frame.network
        if network is not None and not network.refresh():
            raise RuntimeError("the network of a fixed frame was changed to another precision, device or form")

    def reset(self, mask: Tensor | None) -> None:
        """Forget the history of some worlds."""
        network = self._frame.network
        if network is not None:
            network.hidden.zero_() if mask is None else network.hidden.masked_fill_(mask[None, :, None], 0.0)
        elif mask is None:
            self._memory = self._predictor.begin(len(self.q))
        else:
            self._memory = self._predictor.reset(self._memory, mask)

    def moved(self, environment: Environment) -> "NeuralFixedFrame":
        """Return the frame in another environment: itself, where shapes and number of poses are the same."""
        ground, own = felt_ground(self._encoding, environment), self._ground
        if _alike(ground, own):
            self._frame.place(environment)
            return self
        other = NeuralFixedFrame(self._encoding, self._predictor, len(self.q), environment)
        if self._frame.network is None or other._frame.network is None:
            other._memory = self._memory
        else:
            other._frame.network.hidden.copy_(self._frame.network.hidden)
        return other


def _alike(a: Ground | None, b: Ground | None) -> bool:
    """Return whether two grounds differ in their poses at most."""
    if a is None or b is None:
        return a is b
    return a.compiled is b.compiled and (None if a.pose is None else a.pose.shape) == (
        None if b.pose is None else b.pose.shape
    )
