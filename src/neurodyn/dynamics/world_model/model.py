# SPDX-License-Identifier: Apache-2.0
"""World models: ensembles that predict what a robot measures, with uncertainty, learned from logs; their files."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from neurodyn.core.config import Config
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.training_range import TrainingRange
from neurodyn.dynamics.artifact import Artifact
from neurodyn.dynamics.base import EnsembleDynamics
from neurodyn.dynamics.batch import Control, Environment, State, Step, Trajectory, Window, present_state
from neurodyn.dynamics.conditions import Condition, ConditionInputs
from neurodyn.dynamics.ensemble import MARKS, Turns, between_marks, bound_softly, deviation, member_rows
from neurodyn.dynamics.world_model.observation import WorldObservation
from neurodyn.geometry.tensors import Controls, WorldMask
from neurodyn.nets.ensemble import Ensemble, EnsembleConfig, Hidden
from neurodyn.nets.normaliser import Normaliser


@dataclass(frozen=True)
class WorldCarry:
    """History of a batch of worlds.

    Attributes:
        hidden: Hidden states of the members, shape [streams, worlds, width] each.
        member: The member that each world follows, shape [worlds]; None to follow the mean.
        environment: Parameters of the worlds; None for the model's own.
    """

    hidden: Hidden
    member: Tensor | None
    environment: Environment | None = None


@dataclass(frozen=True)
class MemberForecasts:
    """Roll-outs in which every member follows its own mean.

    Attributes:
        states: State vectors after each frame, shape [members, worlds, T, size].
        log_std: Logarithm of the predicted standard deviation in units of `WorldModel.scale`, same shape.
        logits: Logits of contacts and, last, termination, shape [members, worlds, T, events]; None without either.
    """

    states: Tensor
    log_std: Tensor
    logits: Tensor | None


_LEAST_CHANCE = 1e-6


class WorldModel(EnsembleDynamics):
    """An ensemble learned from logs, as dynamics of the measured state.

    Loaded models have frozen weights. Gradients flow through `step` and `rollout` to states, controls and trainable
    weights.

    Attributes:
        spec: Names, order, units and dt of state and control; `context` frames of history are its warm-up.
        observation: Converts states to vectors and inputs.
        conditioning: Inputs from quantities of the robot, which follow the controls.
        net: The members.
        normaliser: Statistics of the inputs.
        shift: Mean change over a frame, shape [size].
        scale: Standard deviation of the residual of the best linear model of that change, shape [size].
        state_scale: Standard deviation of the training states, shape [size], the unit of epistemic uncertainty.
        varying: Whether each column varies in the training data, shape [size]; others are held.
        growth: Exponent of each member's spread over the frames of a forecast, shape [members, 1, 1, size].
        calibration_scales: Factors on the predicted spread at `MARKS` frames into a forecast, so that it has the
            nominal coverage on held-out data, shape [marks, size].
        fitted: Whether the model has been trained.
        terminates: Whether termination is predicted.
        own_bounds: Whether the log spread of each member and column has its own bounds `log_std_bounds` (lower, upper),
            shape [2, members, 1, size], instead of the wide common ones.
        termination_shift: Added to the logit of a failure, so that as many forecasts exceed a probability of one half
            as held-out episodes fail (`world_model.termination`).
    """

    kind = "world-model"
    measured = True

    shift: Tensor
    scale: Tensor
    state_scale: Tensor
    varying: Tensor
    calibration_scales: Tensor
    log_std_bounds: Tensor
    fitted: Tensor

    def __init__(
        self,
        spec: StateSpec,
        net: EnsembleConfig,
        *,
        terminates: bool = False,
        own_bounds: bool = False,
        declaration: str | None = None,
        conditions: Sequence[Condition] = (),
    ) -> None:
        """Build a model with random weights.

        Args:
            spec: Names, order, units and dt of the log, with the frames of warm-up as its context.
            net: Kind and size of the ensemble.
            terminates: Whether the log says which episodes ended in a failure.
            own_bounds: See the attributes.
            declaration: Name or path of the robot's declaration; None for the name in `spec`.
            conditions: Quantities of the robot in the inputs.

        Raises:
            InputError: A joint has more than one degree of freedom.
        """
        super().__init__(spec, declaration)
        self.terminates = terminates
        self.termination_shift = 0.0
        self.observation = WorldObservation(spec)
        self.conditioning = ConditionInputs(conditions)
        size, inputs = self.observation.size, self.observation.inputs + len(conditions)
        self.net = Ensemble(net, inputs, size, spec.nc + terminates)
        self.normaliser = Normaliser(inputs)
        self._turns = Turns(net.members)
        self.growth = nn.Parameter(torch.full((net.members, 1, 1, size), 0.5))
        for name in ("shift", "scale", "state_scale"):
            self.register_buffer(name, torch.full((size,), float(name != "shift")))
        self.own_bounds = own_bounds
        if own_bounds:
            self.register_buffer("log_std_bounds", torch.zeros(2, net.members, 1, size))
        self.register_buffer("varying", torch.ones(size, dtype=torch.bool))
        self.register_buffer("calibration_scales", torch.ones(len(MARKS), size))
        self.register_buffer("fitted", torch.tensor(False))

    @property
    def members(self) -> int:
        """Number of members."""
        return self.net.config.members

    def network_inputs(self, state: State, control: Control, environment: Environment | None = None) -> Tensor | None:
        """Return the normalised inputs of a frame, shape [worlds, inputs]."""
        given = self.observation.of_control(control, state)
        return self._inputs(
            self.observation.of_state(state), self.conditioned_controls(given[:, None], environment)[:, 0]
        )

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Quantities of the robot in the inputs."""
        return self.conditioning.specs

    def require_parameters(self, names: Sequence[str]) -> None:
        """Raise an `InputError` for quantities that are not among the conditions."""
        self.conditioning.require(names, f"world model of {self.spec.robot!r}")

    def with_conditions(self, control: Tensor, numbers: Tensor | None) -> Tensor:
        """Return controls [..., worlds, T, nu] with the conditions of their worlds appended, as networks see them.

        `numbers` are values of the conditions, shape [..., worlds, conditions]; None for the model's own.
        """
        if not self.conditioning.specs:
            return control
        rows = self.conditioning.normalise(self.conditioning.values if numbers is None else numbers)
        return torch.cat([control, rows[..., None, :].expand(*control.shape[:-1], -1)], -1)

    def conditioned_controls(self, control: Tensor, environment: Environment | None) -> Tensor:
        """Return controls [worlds, T, nu] with the conditions of worlds appended; see `with_conditions`."""
        if not self.conditioning.specs:
            return control
        return self.with_conditions(control, self.conditioning.of_worlds(environment))

    @property
    def network(self) -> str:
        """Kind of network."""
        return self.net.config.kind

    @property
    def trained(self) -> bool:
        """Whether the model has been trained."""
        return bool(self.fitted)

    @property
    def epistemic_scale(self) -> Tensor:
        """Standard deviation of the training states, shape [size]."""
        return self.state_scale

    def begin(
        self, context: State | Window, environment: Environment | None = None, *, members: Tensor | None = None
    ) -> WorldCarry:
        """Return the carry of a batch of worlds; a `State` is a start without history.

        Args:
            context: History that ends in the present state, preferably of `spec.context` frames.
            environment: None, or parameters alone: a world model only knows the environment of its logs.
            members: The member that each world follows, shape [worlds]; None to take turns.

        Raises:
            InputError: An environment is given, or the context has other widths than the spec.
        """
        environment = (
            self.resolve_environment(environment) if self.conditioning.specs or environment is not None else None
        )
        worlds = present_state(context).worlds
        if members is None:
            members = self._turns.begin(worlds, self.scale.device)
        return WorldCarry(self._history(context, environment), members, environment)

    def step(
        self, carry: WorldCarry, state: State, control: Control, *, noise: Tensor | None = None
    ) -> tuple[WorldCarry, Step]:
        """Predict one frame: all members in one pass, the state by the member that each world follows.

        Args:
            carry: History; it stays valid.
            state: State at the start of the frame.
            control: Torques or targets during the frame (`StateSpec.control_kind`).
            noise: Standard normal numbers for a sample of the predicted distribution, shape [worlds, size]; None for
                its mean.

        Returns:
            The next carry, and a step with the mean probabilities of contacts and termination, the standard deviation
            of the members' means, and the calibrated mean of their predicted standard deviations.
        """
        x = self.observation.of_state(state)
        given = self.observation.of_control(control, state)
        if self.conditioning.specs:
            given = self.conditioned_controls(given[:, None], carry.environment)[:, 0]
        inputs = self._inputs(x, given)[None]
        top, hidden = self.net.advance(inputs, carry.hidden)
        changes = torch.addcmul(self.shift, self.net.means(inputs, top), self.scale)
        logits = self.net.event_logits(top)
        spread = self._std(self.net.log_stds(top)) * self.calibration_scales[0]
        following = x + member_rows(changes, carry.member)
        if noise is not None:
            following = torch.addcmul(following, member_rows(spread, carry.member), noise)
        chances = None if logits is None else logits.sigmoid().mean(0)
        step = Step(
            self.observation.state(following),
            contacts=None if chances is None or not self.spec.nc else chances[:, : self.spec.nc],
            termination=None if chances is None or not self.terminates else self._failure(chances[:, -1]),
            epistemic=deviation(changes),
            aleatoric=spread.mean(0),
        )
        return replace(carry, hidden=hidden), step

    def change_environment(self, carry: WorldCarry, environment: Environment) -> WorldCarry:
        """Return the carry in another environment; see `Dynamics.change_environment`."""
        return replace(carry, environment=environment)

    def reset(
        self, carry: WorldCarry, context: State | Window, mask: WorldMask, *, members: Tensor | None = None
    ) -> WorldCarry:
        """Restart the worlds where `mask` is true, shape [worlds]; the others stay bitwise the same.

        Args:
            carry: History of all worlds; it stays valid.
            context: History of all worlds, see `begin`; rows outside of `mask` are ignored.
            mask: Worlds to restart.
            members: The member that each restarted world follows, shape [worlds]; None for the one after its last.
        """
        rows = mask.nonzero()[:, 0]
        if not len(rows):
            return carry
        around = None if carry.environment is None else carry.environment.rows(rows)
        fresh = self._history(context.rows(rows), around)
        hidden = tuple(h.index_copy(1, rows, f) for h, f in zip(carry.hidden, fresh, strict=True))
        if carry.member is None:
            return replace(carry, hidden=hidden)
        following = self._turns.after(carry.member) if members is None else members
        return replace(carry, hidden=hidden, member=torch.where(mask, following, carry.member))

    def graft(self, carry: WorldCarry, mask: WorldMask, source: WorldCarry, chosen: Tensor) -> WorldCarry:
        """Replace the history of some worlds, which follow their next member; see `MeasuredDynamics.graft`."""
        pairs = zip(carry.hidden, source.hidden, strict=True)
        if mask.device.type == "cpu":  # the indices need no synchronisation there
            rows = mask.nonzero()[:, 0]
            hidden = tuple(h.index_copy(1, rows, s.index_select(1, chosen[rows])) for h, s in pairs)
        else:
            hidden = tuple(torch.where(mask[:, None], s.index_select(1, chosen), h) for h, s in pairs)
        if carry.member is None:
            return replace(carry, hidden=hidden)
        member = torch.where(mask, self._turns.after(carry.member), carry.member)
        return replace(carry, hidden=hidden, member=member)

    def _rollout(self, context: State | Window, controls: Controls, environment: Environment | None) -> Trajectory:
        """Predict T frames under controls (`StateSpec.control_kind`), shape [worlds, T, nu].

        Every member follows its own mean. The trajectory is the mean over members, its epistemic part their standard
        deviation, its aleatoric part the root mean square of their predicted standard deviations. Both are calibrated:
        the band of one standard deviation is the root of the sum of their squares.
        """
        environment = self.resolve_environment(environment)
        x = self.observation.of_state(present_state(context))
        controls = self.conditioned_controls(self.observation.require_controls(controls), environment)
        tracked = torch.is_grad_enabled() and any(t.requires_grad for t in (x, controls, *self.parameters()))
        with torch.set_grad_enabled(tracked):
            forecasts = self.follow(self._history(context, environment), x[None], controls[None])
            path = torch.cat([x[:, None], forecasts.states.mean(0)], 1)
            scales = between_marks(self.calibration_scales, controls.shape[1])
            q, qd, channels = self.observation.split(path)
            return Trajectory(
                q,
                qd,
                channels,
                aleatoric=self.std(forecasts.log_std).square().mean(0).sqrt() * scales,
                epistemic=deviation(forecasts.states) * scales,
            )

    def follow(self, hidden: Hidden, x: Tensor, controls: Tensor, *, isolate: bool = False) -> MemberForecasts:
        """Roll out every member along its own mean.

        Args:
            hidden: Hidden states.
            x: First states as vectors, shape [members or 1, worlds, size].
            controls: Controls and conditions, shape [members or 1, worlds, T, nu + conditions].
            isolate: Whether no gradients of the spread reach the trunk.
        """
        hidden, states, tops = self.net.apart(hidden), [], []
        x = x.expand(self.members, -1, -1)
        for control in controls.unbind(2):
            inputs = self._inputs(x, control.expand(self.members, -1, -1))
            top, hidden = self.net.advance(inputs, hidden)
            x = x + torch.addcmul(self.shift, self.net.means(inputs, top), self.scale)
            states.append(x)
            tops.append(top)
        top, frames = torch.cat(tops, 1), (len(states), x.shape[1])
        logits = self.net.event_logits(top)
        log_std = self.net.log_stds(top.detach() if isolate else top)
        by_frame = None if logits is None else logits.unflatten(1, frames).transpose(1, 2)
        return MemberForecasts(torch.stack(states, 2), log_std.unflatten(1, frames).transpose(1, 2), by_frame)

    def read(self, states: Tensor, controls: Tensor) -> tuple[Tensor, Tensor, Hidden]:
        """Read measured frames from an empty history (teacher forcing).

        Args:
            states: State vectors at the starts of the frames, shape [streams, worlds, T, size].
            controls: Controls and conditions, shape [streams, worlds, T, nu + conditions].

        Returns:
            Inputs, and output of the trunk, shape [streams, T, worlds, ...], and the final hidden states.
        """
        inputs = self._inputs(states, controls).transpose(1, 2)
        hidden = self.net.begin(states.shape[1], self.scale)
        top, hidden = self.net.warm(inputs, hidden)
        return inputs, top, hidden

    def one_frame(self, states: Tensor, inputs: Tensor, top: Tensor) -> MemberForecasts:
        """Return the predictions of each next frame from measured states, shape [streams, worlds, T, size].

        `inputs` and `top` come from `read`.
        """
        frames = inputs.shape[1:3]
        wide, flat = inputs.flatten(1, 2), top.flatten(1, 2)
        means = self.net.means(wide, flat).unflatten(1, frames).transpose(1, 2)
        log_std = self.net.log_stds(flat.detach()).unflatten(1, frames).transpose(1, 2)
        logits = self.net.event_logits(flat)
        following = states + torch.addcmul(self.shift, means, self.scale)
        by_frame = None if logits is None else logits.unflatten(1, frames).transpose(1, 2)
        return MemberForecasts(following, log_std, by_frame)

    @torch.no_grad()
    def contradiction(self, past: Window, environment: Environment | None = None) -> Tensor:
        """Return how much histories contradict forecasts over one frame, shape [worlds].

        It is the mean squared error over all frames and columns, each in predicted standard deviations, which include
        the members' disagreement.
        """
        states, controls = self._measured(past, environment)
        inputs, top, _ = self.read(states[None, :, :-1], controls[None])
        forecasts = self.one_frame(states[None, :, :-1], inputs, top)
        noise = torch.exp(self.bound_log_std(forecasts.log_std, grows=False)) * self.scale
        variance = noise.square().mean(0) + deviation(forecasts.states).square()
        variance = variance * self.calibration_scales[0].square()
        error = forecasts.states.mean(0) - states[:, 1:]
        return (error.square() / variance)[..., self.varying].mean((1, 2))

    def contradicted(self, past: State | Window, environment: Environment | None = None) -> Tensor | None:
        """Return whether a history contradicts the model, shape [worlds], bool; None if it cannot say.

        Only histories as long as the model's memory can be compared with held-out ones.
        """
        if isinstance(past, State) or not len(self.known_inputs.contradictions):
            return None
        earlier = past.torque.shape[1] - self.spec.context
        if earlier < 0:
            return None
        channels = None if past.channels is None else past.channels[:, earlier:]
        past = Window(past.q[:, earlier:], past.qd[:, earlier:], past.torque[:, earlier:], channels)
        return self.known_inputs.contradicted(self.contradiction(past, environment))

    def std(self, log_std: Tensor) -> Tensor:
        """Return standard deviations in the units of the state from outputs of the heads; see `bound_log_std`."""
        return torch.exp(self.bound_log_std(log_std)) * self.scale

    def bound_log_std(self, log_std: Tensor, *, grows: bool = True) -> Tensor:
        """Return softly bounded log standard deviations in units of `scale`, shape [members, worlds, T, size].

        They grow over T frames of a forecast; without `grows` each frame follows a measured state.
        """
        bounds = None if not self.own_bounds else (self.log_std_bounds[0, :, None], self.log_std_bounds[1, :, None])
        if not grows:
            return bound_softly(log_std, bounds)
        frames = torch.arange(1, 1 + log_std.shape[2], device=log_std.device, dtype=log_std.dtype)
        return bound_softly(log_std + self.growth * frames.log()[:, None], bounds)

    def require_ground(self) -> None:
        """Raise an `InputError`: the model has no ground contact."""
        raise InputError(
            "a world model knows the environment of its logs and no others; valid: no environment (gravity, ground)"
        )

    def require_gravity(self, gravity: Tensor) -> None:
        """Raise an `InputError`: the model knows no other gravity."""
        self.require_ground()

    def _failure(self, chance: Tensor) -> Tensor:
        if not self.termination_shift:
            return chance
        return torch.sigmoid(torch.logit(chance, _LEAST_CHANCE) + self.termination_shift)

    def _std(self, log_std: Tensor) -> Tensor:
        bounds = None if not self.own_bounds else (self.log_std_bounds[0], self.log_std_bounds[1])
        return torch.exp(bound_softly(log_std, bounds)) * self.scale

    def _inputs(self, x: Tensor, control: Tensor) -> Tensor:
        n = self.normaliser(self.observation.features(x, control))
        clip = self.net.config.clip
        return n if clip is None else n.clamp(-clip, clip)

    def _history(self, context: State | Window, environment: Environment | None) -> Hidden:
        if isinstance(context, State) or not context.torque.shape[1]:
            return self.net.begin(context.q.shape[0], context.q)
        states, controls = self._measured(context, environment)
        return self.read(states[None, :, :-1], controls[None])[2]

    def _measured(self, past: Window, environment: Environment | None) -> tuple[Tensor, Tensor]:
        """Return states as vectors, and controls with conditions, of a history."""
        controls = self.conditioned_controls(self.observation.require_controls(past.torque), environment)
        return self.observation.of_state(past), controls


class WorldModelConfig(Config, frozen=True):
    """Contents of config.json: everything but the weights.

    Attributes:
        kind: Kind of dynamics.
        net: The ensemble.
        robot: Name or path of the declaration that the model was trained for.
        terminates: Whether termination is predicted.
        own_bounds: See `WorldModel`.
        conditions: Quantities of the robot in the inputs.
    """

    kind: Literal["world-model"]
    net: EnsembleConfig
    robot: str
    terminates: bool
    own_bounds: bool = False
    conditions: tuple[Condition, ...] = ()


class WorldModelSpec(Config, frozen=True):
    """Contents of spec.json: the system that the model describes.

    Attributes:
        state: Names, order, units and dt of the measured state.
        training_range: Range of motion in the training data; None if unknown.
        termination_shift: See `WorldModel`.
    """

    state: StateSpec
    training_range: TrainingRange | None = None
    termination_shift: float = 0.0


def build_world_model(config: WorldModelConfig, spec: WorldModelSpec) -> WorldModel:
    """Build a world model with fresh weights."""
    model = WorldModel(
        spec.state, config.net, terminates=config.terminates, own_bounds=config.own_bounds, declaration=config.robot,
        conditions=config.conditions,
    )  # fmt: skip
    model.training_range, model.termination_shift = spec.training_range, spec.termination_shift
    return model


def describe(model: WorldModel) -> tuple[WorldModelConfig, WorldModelSpec]:
    """Return the contents of a model's files."""
    config = WorldModelConfig(
        kind="world-model", net=model.net.config, robot=model.declaration, terminates=model.terminates,
        own_bounds=model.own_bounds, conditions=model.conditions,
    )  # fmt: skip
    known = WorldModelSpec(
        state=model.spec, training_range=model.training_range, termination_shift=model.termination_shift
    )
    return config, known


WORLD_MODEL = Artifact("world-model", WorldModelConfig, WorldModelSpec, build_world_model, describe)
"""Files of world models."""
