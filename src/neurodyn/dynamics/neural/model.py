# SPDX-License-Identifier: Apache-2.0
"""Neural dynamics: a network in place of a simulator's dynamics and contact solver (NeRD, arXiv 2508.15755)."""

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neurodyn.core.contact_points import ContactPointLayout
from neurodyn.core.errors import InputError
from neurodyn.core.fingerprint import Fingerprint
from neurodyn.core.scene import Scene
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.fixed_frame import FixedFrame
from neurodyn.dynamics.interface import Control, Environment, State, Step, Window, present_state
from neurodyn.dynamics.neural.base_prediction import GRAVITY, BasePrediction
from neurodyn.dynamics.neural.encoding import Encoding
from neurodyn.geometry.array_shapes import WorldMask
from neurodyn.geometry.ground import Ground
from neurodyn.nets.predictor import Predictor

if TYPE_CHECKING:
    from neurodyn.dynamics.neural.compiled.frames import CompiledFrames, Predict


@dataclass(frozen=True)
class NeuralCarry:
    """History of a batch of worlds, as the network keeps it.

    Attributes:
        memory: The network's own carry (hidden state, or keys and values of recent frames).
        environment: Gravity and ground that the worlds are in.
    """

    memory: Any
    environment: Environment


class _Compiled:
    """What a model has compiled; copies of the model begin without."""

    def __init__(self) -> None:
        self.frames: CompiledFrames | None = None

    def __deepcopy__(self, memo: Any) -> "_Compiled":
        return _Compiled()

    def __reduce__(self) -> Any:
        return _Compiled, ()


class NeuralDynamics(LearnedDynamics):
    """A network that predicts one frame at a time from state, torque and its own memory.

    Gradients flow through `step` and `rollout` to the initial state, the torques and the weights. Loaded models
    have frozen weights; `requires_grad_(True)` makes them trainable.

    Attributes:
        spec: Names, order, units and dt of state and control.
        encoding: From state and torque to network inputs, and back.
        predictor: Normalisation, network and linear skip.
        fingerprint: The articulation that the model was trained on; None for a model of logs.
        scene: The ground that is assumed where no environment is given; None for free space.
        declaration: Name of the robot, or absolute path of its declaration.
    """

    kind = "neural"

    def __init__(
        self,
        encoding: Encoding,
        predictor: Predictor,
        fingerprint: Fingerprint | None = None,
        scene: Scene | None = None,
        declaration: str | None = None,
    ) -> None:
        super().__init__(encoding.spec.with_context(predictor.context), declaration)
        self.encoding = encoding
        self.predictor = predictor
        self.fingerprint = fingerprint
        self.scene = scene
        own = (0.0, 0.0, -GRAVITY) if fingerprint is None else fingerprint.gravity
        self._compiled = _Compiled()
        self._home = Environment(
            gravity=torch.tensor(own), ground=Ground(scene) if scene is not None and encoding.contact else None
        )

    @property
    def network(self) -> str:
        """What kind of network it is."""
        return self.predictor.net.__class__.__name__.lower()

    @property
    def contact_points(self) -> ContactPointLayout | None:
        """Points that are measured against the ground; None where it feels none."""
        return None if self.encoding.contact is None else self.encoding.layout

    @property
    def base_com(self) -> Tensor | None:
        """Centre of mass of a floating base in its own frame [m], shape [3]; None where it is the origin."""
        return self.encoding.coordinates.com if any(self.encoding.config.base_com) else None

    @property
    def home(self) -> Environment:
        """The robot's own gravity, on the model's own ground."""
        return self._home

    def base_alone(self) -> "NeuralDynamics":
        """Return a model that predicts what the base of this one predicts, without correction."""
        predictor = copy.deepcopy(self.predictor)
        predictor.silence()
        return NeuralDynamics(self.encoding, predictor, self.fingerprint, self.scene, self.declaration)

    def begin(self, context: State | Window, environment: Environment | None = None) -> NeuralCarry:
        """Return the carry of worlds whose history is `context`; a bare state has none.

        Without an environment the worlds are in the robot's own gravity, on the model's own ground.

        Raises:
            InputError: `environment` asks for another gravity than the model was trained in (of a floating base:
                one of another strength), or for a ground that the model has no contact points to feel.
        """
        environments = self.resolve_environment(environment)
        state = present_state(context)
        memory = self.predictor.begin(state.worlds)
        if isinstance(context, Window):
            memory = self.predictor.prime(memory, self._window_inputs(context, environments))
        return NeuralCarry(memory, environments)

    def step(self, carry: NeuralCarry, state: State, control: Control) -> tuple[NeuralCarry, Step]:
        """Predict one frame; `carry` stays valid, so that two futures can be tried from one past.

        Where no gradient is wanted the frame is compiled (`dynamics.neural.compiled`): the same numbers up to rounding.
        """
        return self._predict(carry, state, control, self.predictor.step)

    @torch.no_grad()
    def step_(self, carry: NeuralCarry, state: State, control: Control) -> tuple[NeuralCarry, Step]:
        """Predict one frame without gradients: the carry that is passed in is used up."""
        return self._predict(carry, state, control, self.predictor.step_)

    def _predict(
        self, carry: NeuralCarry, state: State, control: Control, predict: "Predict"
    ) -> tuple[NeuralCarry, Step]:
        torque, environment = frame_torque(self.spec, state, control), carry.environment
        found = self._frames.step(state, torque, carry.memory, environment, predict)
        if found is not None:
            after, memory = found
        else:
            base_prediction, inputs = self._inputs(state.q, state.qd, torque, environment)
            output, memory = predict(inputs, carry.memory)
            after = self.encoding.decode(base_prediction, output)
        return NeuralCarry(memory, environment), Step.unchecked(state=after)

    @property
    def _frames(self) -> "CompiledFrames":
        """The compiled frames, for the encoding and the predictor that the model has now."""
        frames = self._compiled.frames
        if frames is None or not frames.of(self.encoding, self.predictor):
            from neurodyn.dynamics.neural.compiled.frames import CompiledFrames  # loads Warp

            frames = self._compiled.frames = CompiledFrames(self.encoding, self.predictor)
        return frames

    def reset(self, carry: NeuralCarry, context: State | Window, mask: WorldMask) -> NeuralCarry:
        """Begin anew in the worlds where `mask` is true, shape [worlds]; the others stay bitwise alone.

        The worlds stay in the environment that they were begun in.
        """
        if isinstance(context, Window):
            history = self._window_inputs(context, carry.environment)
            return replace(carry, memory=self.predictor.prime(carry.memory, history, mask))
        return replace(carry, memory=self.predictor.reset(carry.memory, mask))

    def fixed_frame(self, worlds: int, environment: Environment, like: Tensor) -> FixedFrame:
        """Return a frame between fixed buffers, compiled where they are in the precision of the weights."""
        if like.dtype != self.encoding.dt.dtype or like.device != self.encoding.dt.device:
            return super().fixed_frame(worlds, environment, like)
        from neurodyn.dynamics.neural.compiled.fixed import NeuralFixedFrame  # loads Warp

        return NeuralFixedFrame(self.encoding, self.predictor, worlds, environment)

    def forward(
        self, q: Tensor, qd: Tensor, torque: Tensor, environment: Environment | None = None
    ) -> tuple[BasePrediction, Tensor]:
        """Return base predictions and normalised predictions along true states, shape [batch, T, outputs].

        Args:
            q: Positions at the starts of the frames [rad or m], shape [batch, T, nq].
            qd: Velocities, shape [batch, T, nv].
            torque: Torques during the frames [N m or N], shape [batch, T, nu].
            environment: Gravity and ground, as for `begin`.
        """
        base_prediction, inputs = self._inputs(q, qd, torque, self.resolve_environment(environment))
        return base_prediction, self.predictor.forward_normalised(inputs)

    def _window_inputs(self, window: Window, environment: Environment) -> Tensor:
        return self._inputs(window.q[:, :-1], window.qd[:, :-1], window.torque, environment)[1]

    def _inputs(self, q: Tensor, qd: Tensor, torque: Tensor, environment: Environment) -> tuple[BasePrediction, Tensor]:
        base_prediction = self.encoding.predict_base(q, qd, torque, environment)
        return base_prediction, self.encoding.encode(base_prediction, torque, environment)

    def require_ground(self) -> None:
        """Refuse every ground, where the model feels none."""
        if self.encoding.contact is None:
            raise InputError(
                f"model of {self.spec.robot!r}: was trained without contact points and feels no ground; "
                "valid: no ground, or a model of a robot that declares `contact_points`"
            )

    def require_gravity(self, gravity: Tensor) -> None:
        """Refuse a gravity that the model does not know."""
        if self.fingerprint is None:
            return
        own = torch.tensor(self.fingerprint.gravity, dtype=gravity.dtype, device=gravity.device)
        if self.encoding.coordinates.free:
            same = torch.allclose(gravity.norm(dim=-1), own.norm(), atol=1e-3)
        else:
            same = torch.allclose(gravity, own.expand_as(gravity), atol=1e-4)
        if not same:
            raise InputError(
                f"model of {self.spec.robot!r}: gravity {gravity.flatten()[:3].tolist()} is not the "
                f"{own.tolist()} that it was trained in; train a model in that gravity"
            )
