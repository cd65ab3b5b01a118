# SPDX-License-Identifier: Apache-2.0
"""One frame of neural dynamics between fixed buffers: a few launches without allocations, which a graph can capture.

The order of the launches: the state where the prediction starts (free motion), contact features, all other inputs, the
network, the next state. A network that has no compiled form runs in torch, between the two ways of the encoding.
"""

from typing import Any

import torch
from torch import Tensor

from neurodyn.dynamics.interface import Environment
from neurodyn.dynamics.neural.base_prediction import GRAVITY
from neurodyn.dynamics.neural.compiled.codec import decode_launch, encode_launch
from neurodyn.dynamics.neural.compiled.network import CompiledNetwork, supports
from neurodyn.dynamics.neural.encoding import Encoding
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.launching import Chain, start_warp
from neurodyn.nets.predictor import Predictor


class CompiledFrame:
    """One frame of a batch of worlds; what it reads and writes are its attributes.

    Attributes:
        state: Positions and velocities at the start, shape [worlds, nq + nv].
        torque: Torques during the frame [N m or N], shape [worlds, nu].
        gravity: Gravity in world axes [m/s^2], shape [worlds, 3].
        after: Positions and velocities one frame later, shape [worlds, nq + nv].
        x: Network inputs, shape [worlds, inputs].
        y: Network outputs, shape [worlds, outputs].
    """

    def __init__(
        self, encoding: Encoding, predictor: Predictor, worlds: int, environment: Environment, *, network: bool
    ) -> None:
        """Record the launches.

        Args:
            encoding: The encoding.
            predictor: The predictor.
            worlds: Number of worlds.
            environment: Gravity and ground; another one of the same shapes is taken by `place`.
            network: Whether the network is compiled too; it must have a compiled form (`has_compiled_network`).
        """
        start_warp()
        spec, like = encoding.spec, next(predictor.parameters())
        self.state, self.after = (_zeros(like, worlds, spec.nq + spec.nv) for _ in range(2))
        self.torque, self.gravity = _zeros(like, worlds, spec.nu), _zeros(like, worlds, 3)
        self.x, self.y = _zeros(like, worlds, encoding.inputs), _zeros(like, worlds, encoding.outputs)
        self._nq = spec.nq
        self._feels_gravity = encoding.coordinates.free or encoding.starts_ahead
        self._pose: Tensor | None = None
        start, before = encoding.bound_base(self.state, self.torque, self.gravity)
        keep: list[Any] = [start]
        ground = felt_ground(encoding, environment)
        if ground is not None and encoding.contact is not None:
            self._pose = ground.poses(worlds, like.device, like.dtype).clone()
            command, kept = encoding.contact.bound(
                ground, start[:, : spec.nq], start[:, spec.nq :], self._pose, self.x[:, -encoding.contact.width :]
            )
            before.append(command)
            keep.append(kept)
        command, kept = encode_launch(encoding, self.state, start, self.torque, self.gravity, self.x)
        before.append(command)
        keep.append(kept)
        command, kept = decode_launch(encoding, start, self.y, self.after)
        keep.append(kept)
        self._network: CompiledNetwork | None = None
        if network:
            dense = predictor.net.dense()
            assert dense is not None
            self._network = CompiledNetwork(predictor, dense, self.x, self.y)
            self._whole = Chain([*before, self._network.command, command], like.device, keep)
        else:
            self._encode, self._decode = Chain(before, like.device, keep), Chain([command], like.device, keep)
        self.place(environment)

    @property
    def q(self) -> Tensor:
        """Positions at the start [rad or m], shape [worlds, nq]."""
        return self.state[:, : self._nq]

    @property
    def qd(self) -> Tensor:
        """Velocities at the start [rad/s or m/s], shape [worlds, nv]."""
        return self.state[:, self._nq :]

    @property
    def q_next(self) -> Tensor:
        """Positions one frame later, likewise."""
        return self.after[:, : self._nq]

    @property
    def qd_next(self) -> Tensor:
        """Velocities one frame later, likewise."""
        return self.after[:, self._nq :]

    @property
    def hidden(self) -> Tensor:
        """Hidden states of a compiled network, overwritten by every run, shape [cells, worlds, width]."""
        assert self._network is not None
        return self._network.hidden

    def place(self, environment: Environment) -> None:
        """Put the worlds into an environment that has the same shapes as the first."""
        if self._feels_gravity:
            gravity = environment.gravity
            self.gravity.copy_(gravity) if gravity is not None else self.gravity.copy_(_down(self.gravity))
        if self._pose is not None and environment.ground is not None and environment.ground.pose is not None:
            self._pose.copy_(environment.ground.pose)

    def refresh(self) -> None:
        """Look where the network's weights are now; what changes them in place needs no such call."""
        if self._network is not None:
            self._network.refresh()

    def run(self) -> None:
        """Compute the frame, with the compiled network."""
        self._whole()

    def encode(self) -> None:
        """Fill the network's inputs."""
        self._encode()

    def decode(self) -> None:
        """Apply the network's outputs."""
        self._decode()


def has_compiled_network(predictor: Predictor) -> bool:
    """Return whether a network can be compiled."""
    return supports(predictor, predictor.net.dense())


def felt_ground(encoding: Encoding, environment: Environment) -> Ground | None:
    """Return the ground that contact points are measured against; None where there is none."""
    ground = environment.ground
    return None if encoding.contact is None or ground is None or ground.empty else ground


def _zeros(like: Tensor, *shape: int) -> Tensor:
    return torch.zeros(shape, dtype=like.dtype, device=like.device)


def _down(like: Tensor) -> Tensor:
    return like.new_tensor([0.0, 0.0, -GRAVITY])
