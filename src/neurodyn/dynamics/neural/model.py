# SPDX-License-Identifier: Apache-2.0
"""Neural dynamics: a network in place of a simulator's dynamics and contact solver (NeRD, arXiv 2508.15755); files."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.core.config import Config, with_changes
from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.mechanism import Fingerprint, Mechanism
from neurodyn.core.description.scene import Scene
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.training_range import TrainingRange
from neurodyn.dynamics.artifact import Artifact
from neurodyn.dynamics.base import EnsembleDynamics
from neurodyn.dynamics.batch import Control, Environment, State, Step, Trajectory, Window, present_state
from neurodyn.dynamics.capture import FixedFrame
from neurodyn.dynamics.conditions import Condition, with_values
from neurodyn.dynamics.control import frame_input
from neurodyn.dynamics.ensemble import MARKS, Groups, Turns, between_marks, deviation, member_rows
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.neural.base_prediction import GRAVITY, BasePrediction
from neurodyn.dynamics.neural.encoding import Encoding, EncodingConfig, Outputs
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.tensors import Controls, WorldMask
from neurodyn.nets.networks import NetConfig
from neurodyn.nets.predictor import Predictor, build_predictor

if TYPE_CHECKING:
    from neurodyn.dynamics.neural.compiled import CompiledFrames


@dataclass(frozen=True)
class NeuralCarry:
    """History of a batch of worlds.

    Attributes:
        memory: The network's carry (hidden state, or keys and values of recent frames).
        environment: Gravity, ground and parameters of the worlds.
        member: The member that each world follows, shape [worlds]; None to follow the mean.
        groups: The worlds by member, if each is seen by its own member only; None if all members see all worlds.
    """

    memory: Any
    environment: Environment
    member: Tensor | None = None
    groups: Groups | None = None


class NeuralDynamics(EnsembleDynamics):
    """A network that predicts one frame at a time from state, torque and its memory.

    Gradients flow through `step` and `rollout` to the initial state, the torques and the weights. Loaded models have
    frozen weights; `requires_grad_(True)` makes them trainable.

    Attributes:
        spec: Names, order, units and dt of state and control.
        encoding: Converts state and torque to network inputs, and network outputs to the next state.
        predictor: Normalisation, one or more networks, and linear skip.
        state_scale: Standard deviation of the training states, shape [nq + nv]; with members only.
        calibration_scales: Factors on the members' disagreement at `MARKS` frames into a roll-out, so that it has the
            nominal coverage on held-out data, shape [marks, nq + nv]; with members only.
        fingerprint: The articulation that the model was trained on; None for a model of logs.
        scene: The default ground; None for free space.
        declaration: Name of the robot, or absolute path of its declaration.
    """

    kind = "neural"

    state_scale: Tensor
    calibration_scales: Tensor

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
        if predictor.members > 1:
            size = self.spec.nq + self.spec.nv
            self.register_buffer("state_scale", torch.ones(size))
            self.register_buffer("calibration_scales", torch.ones(len(MARKS), size))
        self._turns = Turns(predictor.members)
        self._compiled: CompiledFrames | None = None
        self._home = Environment(
            gravity=torch.tensor(own), ground=Ground(scene) if scene is not None and encoding.contact else None
        )

    @property
    def network(self) -> str:
        """Kind of network."""
        return self.predictor.net.title

    @property
    def caveat(self) -> str:
        """Says that the base acts alone if validation silenced the network; empty if the network acts."""
        if not self.predictor.silent:
            return ""
        motion = self.encoding.motion
        return f"{'no motion' if motion is None else motion.title}, network silent"

    @property
    def members(self) -> int:
        """Number of networks."""
        return self.predictor.members

    @property
    def epistemic_scale(self) -> Tensor | None:
        """Standard deviation of the training states, shape [nq + nv]; None for a single network."""
        return self.state_scale if self.members > 1 else None

    @property
    def contact_points(self) -> ContactPointLayout | None:
        """Contact points whose distance to the ground is measured; None if the model has no ground contact."""
        return None if self.encoding.contact is None else self.encoding.layout

    @property
    def base_com(self) -> Tensor | None:
        """Centre of mass of a floating base in the base frame [m], shape [3]; None for the origin."""
        return self.encoding.coordinates.com if any(self.encoding.config.base_com) else None

    @property
    def home(self) -> Environment:
        """The default environment: the robot's gravity, and the ground of the model."""
        return self._home

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Quantities of the robot in the network's inputs."""
        return self.encoding.conditions.specs

    def with_conditions(self, values: Mapping[str, float]) -> "NeuralDynamics":
        """Return a copy of the model with other values of conditions, for worlds without their own.

        Raises:
            InputError: A name is not among the conditions.
        """
        config, spec = describe(self)
        conditions = with_values(self.conditions, values, self._owner)
        other = build_model(with_changes(config, encoding=with_changes(config.encoding, conditions=conditions)), spec)
        other.load_state_dict(self.state_dict())
        return other.to(self.encoding.dt).requires_grad_(False).eval()

    def require_parameters(self, names: Sequence[str]) -> None:
        """Raise an `InputError` for quantities that are not among the conditions."""
        self.encoding.conditions.require(names, self._owner)

    @property
    def _owner(self) -> str:
        return f"neural dynamics of {self.spec.robot!r}"

    def base_alone(self) -> "NeuralDynamics":
        """Return a model with the base predictions of this one, without corrections."""
        predictor = copy.deepcopy(self.predictor)
        predictor.silence()
        return NeuralDynamics(self.encoding, predictor, self.fingerprint, self.scene, self.declaration)

    def hold_out(self) -> tuple[Dynamics, Dynamics, str] | None:
        """Hold out the last of three or more members; with fewer on a complete base, the base judges."""
        halves = super().hold_out()
        if halves is None and self.encoding.base_is_whole and not self.predictor.silent:
            return self, self.base_alone(), "the base alone"
        return halves

    def network_inputs(self, state: State, control: Control, environment: Environment | None = None) -> Tensor | None:
        """Return the normalised inputs of a frame, shape [worlds, inputs]; None for a silent network."""
        if self.predictor.silent:
            return None
        torque = frame_input(self.spec, state, control)
        return self.predictor.normalise_input(
            self._inputs(state.q, state.qd, torque, self.resolve_environment(environment))[1]
        )

    def begin(
        self,
        context: State | Window,
        environment: Environment | None = None,
        *,
        members: Tensor | None = None,
        alone: bool = False,
    ) -> NeuralCarry:
        """Return the carry of a batch of worlds; a `State` is a start without history.

        Args:
            context: History that ends in the present state.
            environment: Environment of the worlds; None for the default one.
            members: The member that each world follows, also after `reset`, shape [worlds]; None to follow the mean.
            alone: Whether only that member sees a world: as fast as a single network, without a standard deviation.

        Raises:
            InputError: The gravity differs from training (for a floating base: in magnitude), or there is a ground and
                the model has no contact points.
        """
        environments = self.resolve_environment(environment)
        worlds = present_state(context).worlds
        if self.members == 1:
            members = None
        groups = None
        if members is not None:
            groups = Groups.of(members, self.members, self.device) if alone else None
            members = members.to(self.device)
        memory = self.predictor.begin(worlds if groups is None else groups.rows.shape[1])
        if isinstance(context, Window):
            memory = self.predictor.prime(memory, self._by_group(self._window_inputs(context, environments), groups))
        return NeuralCarry(memory, environments, members, groups)

    def imagine(
        self, context: State | Window, environment: Environment | None = None, *, uncertainty: bool = False
    ) -> NeuralCarry:
        """Return the carry of worlds in which a policy acts, with members in turn; see `Dynamics`."""
        members = self._turns.begin(present_state(context).worlds)
        return self.begin(context, environment, members=members, alone=not uncertainty)

    def step(self, carry: NeuralCarry, state: State, control: Control) -> tuple[NeuralCarry, Step]:
        """Predict one frame; `carry` stays valid.

        With members the state follows a world's member, or the mean of all outputs; the epistemic standard deviation is
        taken over the states that the members predict. Without gradients the frame is compiled
        (`dynamics.neural.compiled`) and returns the same numbers up to rounding.
        """
        return self._predict(carry, state, control, self.predictor.step)

    @torch.no_grad()
    def step_(self, carry: NeuralCarry, state: State, control: Control) -> tuple[NeuralCarry, Step]:
        """Predict one frame without gradients; the given carry may be overwritten."""
        return self._predict(carry, state, control, self.predictor.step_)

    def _predict(
        self, carry: NeuralCarry, state: State, control: Control, step: Callable[..., tuple[Tensor, Any]]
    ) -> tuple[NeuralCarry, Step]:
        torque, environment = frame_input(self.spec, state, control), carry.environment

        def predict(inputs: Tensor, memory: Any) -> tuple[Outputs, Any]:
            y, memory = step(self._by_group(inputs, carry.groups), memory)
            return self._outputs(y, carry), memory

        spread = self.members if carry.groups is None and self.members > 1 else 0
        compiled = self._frames.step(
            state, torque, carry.memory, environment, predict, spread=spread, mean=carry.member is None
        )
        if compiled is not None:
            after, members, memory = compiled
        else:
            base_prediction, inputs = self._inputs(state.q, state.qd, torque, environment)
            outputs, memory = predict(inputs, carry.memory)
            after = self.encoding.decode(
                base_prediction, self.encoding.changes(base_prediction, outputs.followed, environment)
            )
            members = None
            if outputs.members is not None:
                each = [self.encoding.changes(base_prediction, y, environment) for y in outputs.members]
                members = self.encoding.decode(base_prediction.repeat(self.members), torch.stack(each))
        epistemic = None if members is None else deviation(torch.cat([members.q, members.qd], -1))
        return replace(carry, memory=memory), Step.make_unchecked(state=after, epistemic=epistemic)

    def _by_group(self, inputs: Tensor, groups: Groups | None) -> Tensor:
        """Return inputs of worlds, shape [worlds, ...], in the layout of the network."""
        if self.members == 1:
            return inputs
        return inputs[None] if groups is None else groups.gather(inputs)

    def _outputs(self, y: Tensor, carry: NeuralCarry) -> Outputs:
        if self.members == 1:
            return Outputs(y)
        return Outputs(member_rows(y, carry.member), y) if carry.groups is None else Outputs(carry.groups.scatter(y))

    @property
    def _frames(self) -> "CompiledFrames":
        """The compiled frames for the present encoding and predictor."""
        frames = self._compiled
        if frames is None or not frames.of(self.encoding, self.predictor):
            from neurodyn.dynamics.neural.compiled import CompiledFrames  # loads Warp

            frames = self._compiled = CompiledFrames(self.encoding, self.predictor)
        return frames

    def change_environment(self, carry: NeuralCarry, environment: Environment) -> NeuralCarry:
        """Return the carry in another environment; see `Dynamics.change_environment`."""
        return replace(carry, environment=environment)

    def reset(self, carry: NeuralCarry, context: State | Window, mask: WorldMask) -> NeuralCarry:
        """Restart some worlds, in the same environment and with the same member; see `Dynamics.reset`."""
        if carry.groups is not None:
            mask = carry.groups.gather(mask)
        if isinstance(context, Window):
            history = self._by_group(self._window_inputs(context, carry.environment), carry.groups)
            return replace(carry, memory=self.predictor.prime(carry.memory, history, mask))
        return replace(carry, memory=self.predictor.reset(carry.memory, mask))

    def _rollout(self, context: State | Window, controls: Controls, environment: Environment | None) -> Trajectory:
        """Predict T frames under torques `controls` [N m or N], shape [worlds, T, nu].

        With members the path follows their mean in every frame, as `step` does. The epistemic standard deviation is
        taken over paths on which each member follows itself, and is calibrated and without gradients.
        """
        path = super()._rollout(context, controls, environment)
        if self.members == 1:
            return path
        with torch.no_grad():
            rows = self.repeated_worlds(present_state(context).worlds)
            carry, state = self.begin_members(context, environment)
            return replace(path, epistemic=self.spread(self._follow(carry, state, controls[rows], tracked=False)))

    def repeated_worlds(self, worlds: int) -> Tensor:
        """Return the world of each row with every world repeated for each member, shape [members worlds]."""
        return torch.arange(worlds, device=self.device).repeat(self.members)

    def begin_members(
        self, context: State | Window, environment: Environment | None = None
    ) -> tuple[NeuralCarry, State]:
        """Return carry and state of worlds repeated for each member, in the order of `repeated_worlds`."""
        rows = self.repeated_worlds(present_state(context).worlds)
        member = torch.arange(self.members).repeat_interleave(len(rows) // self.members)
        several, whole = context.rows(rows), self.resolve_environment(environment).rows(rows)
        return self.begin(several, whole, members=member, alone=True), present_state(several)

    def spread(self, path: Trajectory) -> Tensor:
        """Return the calibrated standard deviation of roll-outs from `begin_members`, shape [worlds, T, nq + nv]."""
        each = torch.cat([path.q, path.qd], -1)[:, 1:].unflatten(0, (self.members, -1))
        return deviation(each) * between_marks(self.calibration_scales, each.shape[2])

    def fixed_frame(self, worlds: int, environment: Environment, like: Tensor) -> FixedFrame:
        """Return a frame with fixed buffers, compiled if they have the precision of the weights."""
        own = self.encoding.dt
        if not self.encoding.compiles or like.dtype != own.dtype or like.device != own.device:
            return super().fixed_frame(worlds, environment, like)
        from neurodyn.dynamics.neural.compiled import NeuralFixedFrame  # loads Warp

        return NeuralFixedFrame(self.encoding, self.predictor, worlds, environment)

    def forward(
        self,
        q: Tensor,
        qd: Tensor,
        torque: Tensor,
        environment: Environment | None = None,
        members: Tensor | None = None,
    ) -> tuple[BasePrediction, Tensor]:
        """Return base predictions and normalised predictions along true states, shape [batch, T, outputs].

        Args:
            q: Positions at the starts of the frames [rad or m], shape [batch, T, nq].
            qd: Velocities, shape [batch, T, nv].
            torque: Torques during the frames [N m or N], shape [batch, T, nu].
            environment: Gravity and ground, as for `begin`.
            members: The member that predicts each row, shape [batch]; None for a single network.
        """
        base_prediction, inputs = self._inputs(q, qd, torque, self.resolve_environment(environment))
        if members is None:
            return base_prediction, self.predictor.forward_normalised(inputs)
        groups = Groups.of(members, self.members, inputs.device)
        return base_prediction, groups.scatter(self.predictor.forward_normalised(groups.gather(inputs)))

    def _window_inputs(self, window: Window, environment: Environment) -> Tensor:
        return self._inputs(window.q[:, :-1], window.qd[:, :-1], window.torque, environment)[1]

    def _inputs(self, q: Tensor, qd: Tensor, torque: Tensor, environment: Environment) -> tuple[BasePrediction, Tensor]:
        base_prediction = self.encoding.predict_base(q, qd, torque, environment)
        return base_prediction, self.encoding.encode(base_prediction, torque, environment)

    def require_ground(self) -> None:
        """Raise an `InputError` if the model has no ground contact."""
        if self.encoding.contact is None:
            raise InputError(
                f"model of {self.spec.robot!r}: was trained without contact points and feels no ground; "
                "valid: no ground, or a model of a robot that declares `contact_points`"
            )

    def require_gravity(self, gravity: Tensor) -> None:
        """Raise an `InputError` for a gravity other than in training."""
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


class ModelConfig(Config, frozen=True):
    """Contents of config.json: everything but the weights.

    Attributes:
        kind: Kind of dynamics.
        net: The network.
        encoding: Constants of the encoding.
        robot: Name or path of the declaration that the model was trained for.
        members: Number of networks.
        caveat: `NeuralDynamics.caveat`, for readers that do not load the weights; absent in older files.
    """

    kind: Literal["neural"]
    net: NetConfig
    encoding: EncodingConfig
    robot: str
    members: int = 1
    caveat: str | UnsetType = UNSET


class ModelSpec(Config, frozen=True, rename={"contact_points": "probes"}):
    """Contents of spec.json: the system that the model describes.

    Attributes:
        state: Names, order, units and dt.
        fingerprint: The articulation that it was trained on; None for a model of logs.
        contact_points: Contact points whose distance to the ground is an input; None without a ground in the inputs.
        scene: The default ground; None for free space.
        mechanism: The robot's tree of links, for a base motion.
        training_range: Range of motion in the training data; None if unknown.
    """

    state: StateSpec
    fingerprint: Fingerprint | None
    contact_points: ContactPointLayout | None = None
    scene: Scene | None = None
    mechanism: Mechanism | None = None
    training_range: TrainingRange | None = None


def build_model(config: ModelConfig, spec: ModelSpec) -> NeuralDynamics:
    """Build a model with fresh weights."""
    encoding = Encoding(spec.state.with_context(0), config.encoding, spec.contact_points, spec.mechanism)
    predictor = build_predictor(config.net, encoding.inputs, encoding.outputs, config.members)
    model = NeuralDynamics(encoding, predictor, spec.fingerprint, spec.scene, config.robot)
    model.training_range = spec.training_range
    return model


def describe(model: NeuralDynamics) -> tuple[ModelConfig, ModelSpec]:
    """Return the contents of a model's files; raise an `InputError` if its network has no configuration."""
    encoding, net = model.encoding, model.predictor.config
    if net is None:
        raise InputError(
            f"model of {model.spec.robot!r}: its network has no configuration; build it by build_predictor"
        )
    config = ModelConfig(
        kind="neural", net=net, encoding=encoding.config, robot=model.declaration, members=model.members,
        caveat=model.caveat or UNSET,
    )  # fmt: skip
    return config, ModelSpec(
        state=model.spec, fingerprint=model.fingerprint, contact_points=encoding.layout, scene=model.scene,
        mechanism=encoding.mechanism, training_range=model.training_range,
    )  # fmt: skip


NEURAL = Artifact("neural", ModelConfig, ModelSpec, build_model, describe)
"""Files of neural dynamics."""
