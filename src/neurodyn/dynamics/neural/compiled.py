# SPDX-License-Identifier: Apache-2.0
"""A frame of neural dynamics in compiled kernels, without gradients.

It computes the same as torch in a few launches with fixed buffers, which a CUDA graph can capture.
"""

from typing import Any

import torch
from torch import Tensor

from neurodyn.dynamics.batch import Environment, State
from neurodyn.dynamics.capture import KeptFrames, wants_torch
from neurodyn.dynamics.conditions import ConditionInputs
from neurodyn.dynamics.neural.base_prediction import GRAVITY
from neurodyn.dynamics.neural.encoding import Encoding, Predict
from neurodyn.dynamics.neural.kernels import CompiledNetwork, decode_launch, encode_launch, is_plain
from neurodyn.geometry.contact_features import ContactFeatures
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.launching import Chain, is_capturing, start_warp
from neurodyn.nets.predictor import Predictor


class CompiledFrame:
    """One frame of a batch of worlds, with buffers for inputs and outputs.

    Attributes:
        state: Positions and velocities at the start, shape [worlds, nq + nv], with the views `q` and `qd`.
        torque: Torques during the frame [N m or N], shape [worlds, nu].
        gravity: Gravity in world axes [m/s^2], shape [worlds, 3].
        q_next: Positions one frame later, shape [worlds, nq].
        qd_next: Velocities one frame later, shape [worlds, nv].
        members_q_next: Next positions by each ensemble member, shape [members, worlds, nq].
        members_qd_next: Next velocities by each ensemble member, shape [members, worlds, nv].
        x: Network inputs, shape [worlds, inputs].
        y: Network outputs that lead to `q_next` and `qd_next`, shape [worlds, outputs].
        members_y: Network outputs of each ensemble member, shape [members, worlds, outputs].
        network: The compiled network; None if torch runs it.
        capturable: Whether `run` consists of launches only.
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
            environment: Gravity and ground, with a pose per world; `place` changes to another one with the same shapes.
            network: Whether the network is compiled too, which needs a compiled form (`kernels.is_plain`).
            members: Number of members whose next states are computed too; for a compiled network all or none.
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
        self._uses_gravity = encoding.coordinates.free or encoding.starts_ahead
        self._pose: Tensor | None = None
        self._conditions = encoding.conditions if encoding.config.conditions else None
        self._conditioned = self.x[:, encoding.condition_columns]
        self._numbers: tuple[Tensor | None, int] | None = None
        before, keep = self._launches_before(encoding, environment)
        rows = (x.flatten(0, 1) for x in (y, q_next, qd_next))
        decode, kept = decode_launch(encoding, self._start, *rows)
        between = [] if self.network is None else self.network.commands
        self._encode, self._decode = Chain(before, like.device, keep), Chain([decode], like.device, kept)
        self.capturable = network and self._predict_base is None
        self._whole = Chain([*before, *between, decode], like.device)
        self.update(environment)

    def _launches_before(self, encoding: Encoding, environment: Environment) -> tuple[list[Any], list[Any]]:
        """Return the launches that compute the network inputs, and the objects to keep alive."""
        spec, worlds = encoding.spec, len(self.state)
        motion = encoding.motion
        bound = None if motion is None else motion.bind(self.state, self.torque, self.gravity, environment)
        self._update_base = None if bound is None else bound.update
        self._predict_base = encoding.predict_base if bound is None and encoding.starts_ahead else None
        self._start = self.state if bound is None else bound.after
        if self._predict_base is not None:
            self._start = torch.zeros_like(self.state)
        commands, keep = [] if bound is None else [bound.launch], [bound]
        start, ground = self._start, ground_of_contacts(encoding, environment)
        if ground is not None and isinstance(encoding.contact, ContactFeatures):
            self._pose = ground.poses(worlds, start.device, start.dtype).clone()
            features = self.x[:, -encoding.contact.width :]
            q, qd = start[:, : spec.nq], start[:, spec.nq :]
            command, kept = encoding.contact.bind(ground, q, qd, self._pose, features)
            commands.append(command)
            keep += [ground, kept]
        command, kept = encode_launch(encoding, self.state, start, self.torque, self.gravity, self.x)
        return [*commands, command], [*keep, kept]

    def update(self, environment: Environment) -> None:
        """Change to another environment with the same shapes."""
        self._environment = environment
        if self._uses_gravity:
            self.gravity.copy_(_down(self.gravity) if environment.gravity is None else environment.gravity)
        if self._conditions is not None:
            self._condition(self._conditions, environment)
        if self._update_base is not None:
            self._update_base(environment)
        if self._pose is not None and environment.ground is not None and environment.ground.pose is not None:
            self._pose.copy_(environment.ground.pose)

    def refresh(self) -> None:
        """Update parameters of the worlds that were edited in place."""
        if self._conditions is not None:
            self._condition(self._conditions, self._environment)

    def _condition(self, conditions: ConditionInputs, environment: Environment) -> None:
        """Write the inputs from quantities of the robot, unless they are up to date."""
        numbers = None if environment.parameters is None else environment.parameters.numbers
        uncounted = numbers is not None and numbers.is_inference()  # edits of such tensors are not counted
        edits = -1 if numbers is None or uncounted else numbers._version
        if uncounted or self._numbers is None or self._numbers[0] is not numbers or self._numbers[1] != edits:
            self._conditioned.copy_(conditions(environment, self._conditioned.shape[:1]))
            self._numbers = numbers, edits

    def run(self) -> None:
        """Compute the frame, with the compiled network."""
        self._start_in_torch()
        self._whole()

    def encode(self) -> None:
        """Compute the network inputs only, for networks that torch runs."""
        self._start_in_torch()
        self._encode()

    def decode(self) -> None:
        """Apply the network outputs only, for networks that torch runs."""
        self._decode()

    def _start_in_torch(self) -> None:
        """Compute the base prediction with torch, for bases without a recorded launch."""
        if self._predict_base is not None:
            base = self._predict_base(self.q, self.qd, self.torque, self._environment)
            torch.cat([base.q, base.qd], dim=-1, out=self._start)


def ground_of_contacts(encoding: Encoding, environment: Environment) -> Ground | None:
    """Return the ground that contact points or the base motion use; None if there is none."""
    ground = environment.ground
    blind = encoding.contact is None and not encoding.starts_ahead
    return None if blind or ground is None or ground.empty else ground


def _zeros(like: Tensor, *shape: int) -> Tensor:
    with torch.inference_mode(False):  # buffers have to be writable in any mode
        return torch.zeros(shape, dtype=like.dtype, device=like.device)


def _down(like: Tensor) -> Tensor:
    return like.new_tensor([0.0, 0.0, -GRAVITY])


NETWORK_WORLDS = 16
"""Number of worlds up to which the compiled network is faster on a CPU than torch's matrix products.

Measured by benchmarks/neural_step.py: the break-even is at 8 to 24 worlds for the ant and ANYmal C and at 32 to 48 for
the cartpole, depending on the load of the caches.
"""


class CompiledFrames:
    """Compiled frames of one model, cached per thread, so that several threads can step it."""

    def __init__(self, encoding: Encoding, predictor: Predictor) -> None:
        self._encoding, self._predictor = encoding, predictor
        modules = [module for part in (encoding, predictor) for module in part.modules()]
        self._parameters: list[dict[str, Any]] = [m._parameters for m in modules if m._parameters]
        self._frames = KeptFrames()

    def __deepcopy__(self, memo: Any) -> None:
        """Return None: copies of a model compile their own frames."""

    def __reduce__(self) -> Any:
        return type(None), ()

    def of(self, encoding: Encoding, predictor: Predictor) -> bool:
        """Return whether the frames were made for this encoding and predictor."""
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
        """Predict one frame, or return None if torch has to compute it.

        Args:
            state: The state.
            torque: Torques during the frame [N m or N], shape [worlds, nu].
            memory: The network's memory; it stays valid unless `predict` overwrites it.
            environment: Gravity and ground.
            predict: The predictor's frame in torch, for many worlds and for networks without a compiled form.
            spread: Number of members whose states are returned too; 0 for none.
            mean: Whether the worlds follow a single network or the mean of all.

        Returns:
            The state one frame later, the states by each member [spread, worlds, ...] (valid until the next call; None
            if `spread` is 0), and the network's memory.
        """
        q, qd = state.q, state.qd
        hidden = memory if isinstance(memory, tuple) else ()
        numbers = () if environment.parameters is None else (environment.parameters.numbers,)
        if wants_torch((q, qd, torque, *hidden, *numbers), self._parameters):
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
            after = State.make_unchecked(q=frame.q_next.clone(), qd=frame.qd_next.clone(), channels=None)
            if not spread:
                return after, None, memory
            # No copies: the caller reads them before the next frame.
            return after, State.make_unchecked(q=frame.members_q_next, qd=frame.members_qd_next, channels=None), memory

    def _frame(
        self, q: Tensor, qd: Tensor, torque: Tensor, environment: Environment, spread: int, mean: bool
    ) -> CompiledFrame | None:
        """Return the cached frame for inputs of these shapes; None if inputs or weights do not fit a compiled frame."""
        ground = ground_of_contacts(self._encoding, environment)
        pose = None if ground is None else ground.pose
        key = (
            q.shape, qd.shape, torque.shape, q.dtype, q.device, None if pose is None else pose.shape,
            None if ground is None else id(ground.compiled), spread, mean,
        )  # fmt: skip
        frame: CompiledFrame | None = self._frames.get(
            key, lambda: self._make(q, qd, torque, environment, spread, mean)
        )
        if frame is None:
            return None
        if frame.network is not None and not frame.network.refresh():
            self._frames.drop(key)
            return None
        frame.update(environment)
        return frame

    def _make(
        self, q: Tensor, qd: Tensor, torque: Tensor, environment: Environment, spread: int, mean: bool
    ) -> CompiledFrame | None:
        spec, worlds, like = self._encoding.spec, q.shape[0], self._encoding.dt
        shapes = [(worlds, spec.nq), (worlds, spec.nv), (worlds, spec.nu)]
        given = (q, qd, torque)
        if not self._encoding.compiles or not worlds or [tuple(tensor.shape) for tensor in given] != shapes:
            return None
        if like.dtype not in (torch.float32, torch.float64) or like.device.type not in ("cpu", "cuda"):
            return None
        if any(tensor.dtype != like.dtype or tensor.device != like.device for tensor in given):
            return None
        network = mean and like.device.type == "cpu" and worlds <= NETWORK_WORLDS and is_plain(self._predictor, like)
        return CompiledFrame(self._encoding, self._predictor, worlds, environment, network=network, members=spread)


class NeuralFixedFrame:
    """See `FixedFrame`."""

    def __init__(self, encoding: Encoding, predictor: Predictor, worlds: int, environment: Environment) -> None:
        """Record the frame of a model. Arguments: see `CompiledFrame`."""
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
        # Hidden states are shared with the compiled network, so that `run` may switch between it and torch.
        self._memory: Any = predictor.begin(worlds)
        if frame.network is not None:
            self._memory = frame.network.cells or None
        self._ground = ground_of_contacts(encoding, environment)

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
        """Update the addresses of the weights; see `FixedFrame.refresh`."""
        network = self._frame.network
        self._frame.refresh()
        if network is not None and not network.refresh():
            raise RuntimeError("the network of a fixed frame was changed to another precision, device or form")

    def reset(self, mask: Tensor | None) -> None:
        """Clear the history of some worlds; see `FixedFrame.reset`."""
        network = self._frame.network
        if network is not None:
            network.hidden.zero_() if mask is None else network.hidden.masked_fill_(mask[None, :, None], 0.0)
        elif mask is None:
            self._memory = self._predictor.begin(len(self.q))
        else:
            self._memory = self._predictor.reset(self._memory, mask)

    def in_environment(self, environment: Environment) -> "NeuralFixedFrame":
        """Return the frame in another environment: this one if the shapes and the number of poses are the same."""
        ground, own = ground_of_contacts(self._encoding, environment), self._ground
        if _alike(ground, own):
            self._frame.update(environment)
            return self
        other = NeuralFixedFrame(self._encoding, self._predictor, len(self.q), environment)
        if self._frame.network is None or other._frame.network is None:
            other._memory = self._memory
        else:
            other._frame.network.hidden.copy_(self._frame.network.hidden)
        return other


def _alike(a: Ground | None, b: Ground | None) -> bool:
    """Return whether two grounds have the same shapes and number of poses."""
    if a is None or b is None:
        return a is b
    return a.compiled is b.compiled and (None if a.pose is None else a.pose.shape) == (
        None if b.pose is None else b.pose.shape
    )
