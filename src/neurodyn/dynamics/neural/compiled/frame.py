# SPDX-License-Identifier: Apache-2.0
"""One frame of neural dynamics between fixed buffers: a few launches without allocations, which a graph can capture.

The order of the launches: the state where the prediction starts (free motion), contact features, all other inputs, the
network, the next state. A network that has no compiled form, or many worlds, run in torch between the two ways of the
encoding.
"""

from typing import Any

import torch
from torch import Tensor

from neurodyn.dynamics.interface import Environment
from neurodyn.dynamics.neural.base_prediction import GRAVITY
from neurodyn.dynamics.neural.compiled.codec import decode_launch, encode_launch
from neurodyn.dynamics.neural.compiled.network import CompiledNetwork
from neurodyn.dynamics.neural.encoding import Encoding
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.launching import Chain, start_warp
from neurodyn.nets.predictor import Predictor


class CompiledFrame:
    """One frame of a batch of worlds; what it reads and writes are its attributes.

    Attributes:
        state: Positions and velocities at the start, shape [worlds, nq + nv].
        q: The positions [rad or m], a view of `state`.
        qd: The velocities [rad/s or m/s], likewise.
        torque: Torques during the frame [N m or N], shape [worlds, nu].
        gravity: Gravity in world axes [m/s^2], shape [worlds, 3].
        q_next: Positions one frame later, shape [worlds, nq].
        qd_next: Velocities one frame later, shape [worlds, nv].
        members_q_next: Positions to which each member leads, shape [members, worlds, nq].
        members_qd_next: Velocities, likewise.
        x: Network inputs, shape [worlds, inputs].
        y: Network outputs that lead to the next state, shape [worlds, outputs].
        members_y: Those of each member, shape [members, worlds, outputs].
        network: The compiled network; None where torch runs it.
        capturable: Whether `run` is launches alone.
    """

    def __init__(
        self,
        encoding: Encoding,
        predictor: Predictor,
        worlds: int,
        environment: Environment,
        *,
        network: bool,
        members: int = 0,
    ) -> None:
        """Record the launches.

        Args:
            encoding: The encoding.
            predictor: The predictor.
            worlds: Number of worlds.
            environment: Gravity and ground; another one with the same shapes is taken by `place`.
            network: Whether the network is compiled too; it has a compiled form (`network.is_plain`).
            members: Members whose next states are wanted beside that which follows; of a compiled network all or none.

        Raises:
            InputError: The ground is for another number of worlds.
        """
        start_warp()
        spec, like = encoding.spec, encoding.dt
        self.state = _zeros(like, worlds, spec.nq + spec.nv)
        self.q, self.qd = self.state[:, : spec.nq], self.state[:, spec.nq :]
        self.torque, self.gravity = _zeros(like, worlds, spec.nu), _zeros(like, worlds, 3)
        self.x = _zeros(like, worlds, encoding.inputs)
        y, q_next, qd_next = (_zeros(like, 1 + members, worlds, n) for n in (encoding.outputs, spec.nq, spec.nv))
        self.y, self.q_next, self.qd_next = y[0], q_next[0], qd_next[0]
        self.members_y, self.members_q_next, self.members_qd_next = y[1:], q_next[1:], qd_next[1:]
        self.network = CompiledNetwork(predictor, self.x, y) if network else None
        self._feels_gravity = encoding.coordinates.free or encoding.starts_ahead
        self._pose: Tensor | None = None
        before, keep = self._launches_before(encoding, environment)
        rows = (x.flatten(0, 1) for x in (y, q_next, qd_next))
        decode, kept = decode_launch(encoding, self._start, *rows)
        between = [] if self.network is None else self.network.commands
        self._encode, self._decode = Chain(before, like.device, keep), Chain([decode], like.device, kept)
        self.capturable = network and self._predict_base is None
        self._whole = Chain([*before, *between, decode], like.device)
        self.place(environment)

    def _launches_before(self, encoding: Encoding, environment: Environment) -> tuple[list[Any], list[Any]]:
        """Return the launches that lead to the network's inputs, and what they must keep."""
        spec, worlds = encoding.spec, len(self.state)
        bound = encoding.bound_base(self.state, self.torque, self.gravity, environment)
        self._place_base = None if bound is None else bound.place
        self._predict_base = encoding.predict_base if bound is None and encoding.starts_ahead else None
        self._start = self.state if bound is None else bound.after
        if self._predict_base is not None:
            self._start = torch.zeros_like(self.state)
        commands, keep = [] if bound is None else [bound.launch], [bound]
        start, ground = self._start, felt_ground(encoding, environment)
        if ground is not None and encoding.contact is not None:
            self._pose = ground.poses(worlds, start.device, start.dtype).clone()
            features = self.x[:, -encoding.contact.width :]
            q, qd = start[:, : spec.nq], start[:, spec.nq :]
            command, kept = encoding.contact.bound(ground, q, qd, self._pose, features)
            commands.append(command)
            keep += [ground, kept]
        command, kept = encode_launch(encoding, self.state, start, self.torque, self.gravity, self.x)
        return [*commands, command], [*keep, kept]

    def place(self, environment: Environment) -> None:
        """Put the worlds into an environment that has the same shapes as the first."""
        self._environment = environment
        if self._feels_gravity:
            self.gravity.copy_(_down(self.gravity) if environment.gravity is None else environment.gravity)
        if self._place_base is not None:
            self._place_base(environment)
        if self._pose is not None and environment.ground is not None and environment.ground.pose is not None:
            self._pose.copy_(environment.ground.pose)

    def run(self) -> None:
        """Compute the frame, with the compiled network."""
        self._start_in_torch()
        self._whole()

    def encode(self) -> None:
        """Fill the network's inputs alone, where torch runs it."""
        self._start_in_torch()
        self._encode()

    def decode(self) -> None:
        """Apply the network's outputs alone, where torch runs it."""
        self._decode()

    def _start_in_torch(self) -> None:
        """Find where the prediction starts, for a base that has no launch between fixed buffers."""
        if self._predict_base is not None:
            base = self._predict_base(self.q, self.qd, self.torque, self._environment)
            torch.cat([base.q, base.qd], dim=-1, out=self._start)


def felt_ground(encoding: Encoding, environment: Environment) -> Ground | None:
    """Return the ground that contact points are measured against, or a base stands on; None where there is none."""
    ground = environment.ground
    blind = encoding.contact is None and not encoding.starts_ahead
    return None if blind or ground is None or ground.empty else ground


def _zeros(like: Tensor, *shape: int) -> Tensor:
    with torch.inference_mode(False):  # written to at every frame, in whatever mode
        return torch.zeros(shape, dtype=like.dtype, device=like.device)


def _down(like: Tensor) -> Tensor:
    return like.new_tensor([0.0, 0.0, -GRAVITY])
