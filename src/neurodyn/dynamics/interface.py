# SPDX-License-Identifier: Apache-2.0
"""The interface of all dynamics: analytic, hybrid, neural and world models.

`Dynamics` step a batch of worlds and have no hidden mutable state. The caller holds the history as a carry. The state
passed to `step` takes precedence over it, because simulators pass their own state to every step and users edit it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.description.contacts import ChainJoint, ContactPointLayout
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.mechanism import Fingerprint
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.data.training_range import TrainingRange
from neurodyn.dynamics.batch import Control, Environment, State, Step, Trajectory, Window, present_state
from neurodyn.dynamics.capture import CapturedStep, CaptureError, FixedFrame, Recorder, cuda_graph
from neurodyn.dynamics.conditions import Condition
from neurodyn.dynamics.control import require_torques
from neurodyn.dynamics.guard import (
    BROKEN_MARGIN,
    KEPT_STATES,
    TRAINING_MARGIN,
    Fault,
    FaultHistory,
    fault_of,
    report,
    widen,
)
from neurodyn.dynamics.known_inputs import KnownInputs
from neurodyn.dynamics.quantities import (
    Maker,
    Quantities,
    StateReader,
    declared_contacts,
    declared_end_effector,
    gravity_direction,
)
from neurodyn.dynamics.rollout_errors import RolloutErrors, compare_rollouts
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.tensors import Commands, Controls, WorldMask
from neurodyn.robots import Robot
from neurodyn.robots.plausible import PlausibleBounds, declared_bounds

Carry = Any
"""History of a batch of worlds. Its type is private to each kind of dynamics."""

_WORTH_CAPTURE = 8
"""Shortest roll-out whose step is captured as a CUDA graph [frames]: recording costs as much as a few steps."""


@dataclass(frozen=True)
class _ResolvedEnvironment:
    """The environment used last, as `given` and with defaults filled in, and the unit vector `down` of its gravity."""

    given: Environment | None
    edits: tuple[int, ...]
    device: torch.device
    environment: Environment
    down: Tensor | None


def _edits(environment: Environment | None) -> tuple[int, ...]:
    """Return how often each tensor of an environment was edited in place."""
    # Tensors of inference mode count no edits.
    return tuple(0 if one is None or one.is_inference() else one._version for one in _tensors(environment))


def _tensors(environment: Environment | None) -> tuple[Tensor | None, ...]:
    """Return gravity and poses of the ground, whose derived values are cached."""
    if environment is None:
        return ()
    return environment.gravity, None if environment.ground is None else environment.ground.pose


def _lies_on(environment: Environment, device: torch.device) -> bool:
    parameters = None if environment.parameters is None else environment.parameters.numbers
    return all(one is None or one.device == device for one in (*_tensors(environment), parameters))


def _before(path: Trajectory, controls: Tensor, fault: Fault, context: int) -> Window:
    """Return the plausible states of a roll-out before a fault, and as many more as the model's history needs."""
    rows, first = slice(fault.world, fault.world + 1), max(0, fault.frame - KEPT_STATES - context)
    last = max(fault.frame, 1)  # without the implausible state
    return Window(
        path.q[rows, first:last].detach(), path.qd[rows, first:last].detach(),
        controls[rows, first : last - 1].detach().to(path.q.dtype),  # float32 in logs, states from their past are not
        None if path.channels is None else path.channels[rows, first:last].detach(),
    )  # fmt: skip


class Dynamics(ABC):
    """Steps a batch of worlds; takes and returns torch tensors.

    A kind adds `begin`, `step` and `reset`, and overrides what differs.

    Attributes:
        spec: Names, order, units and dt of state and control, and the number of useful context frames.
        kind: Name of the kind of dynamics (`neurodyn.dynamics.kinds`).
        differentiable: Whether gradients flow through `step` and `rollout`.
        measured: Whether the state is what a log measures, in the environment of that log. Otherwise it is the state of
            a simulator.
        fingerprint: Identity of the articulation; None if unknown.
        robot: The declaration of the robot; None if there is none.
        training_range: Range of motion in the training data; None if there are none or it is unknown.
        device: Device of inputs and outputs.
        takes_parts: Whether roll-outs take several controls in a frame.
    """

    spec: StateSpec
    kind: str
    differentiable: bool = False
    measured: bool = False
    fingerprint: Fingerprint | None = None
    robot: Robot | None = None
    training_range: TrainingRange | None = None
    device: str = "cpu"
    takes_parts: bool = False
    _rollout_bounds: tuple[TrainingRange | None, PlausibleBounds] | None = None
    _surroundings: "_ResolvedEnvironment | None" = None
    _captured: CapturedStep | None = None
    _no_capture: bool = False

    @property
    def network(self) -> str:
        """Name of the kind of model that computes a step, in one word: "gru", "identified" ..."""
        return self.kind

    @property
    def caveat(self) -> str:
        """What these dynamics lack of what their kind suggests; empty if nothing."""
        return ""

    @property
    def contact_points(self) -> ContactPointLayout | None:
        """Contact points whose distance to the ground is measured; None if the dynamics have no ground contact."""
        return None

    @property
    def _seen_points(self) -> ContactPointLayout | None:
        """Points from which quantities of the declared contacts are computed."""
        return self.contact_points

    @property
    def contacts_of_simulator(self) -> bool:
        """Whether the contact points may be all of the simulator's, instead of the declared ones."""
        return False

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Quantities of the robot that are inputs of its networks, in which worlds may differ."""
        return ()

    @property
    def own_quantities(self) -> tuple[str, ...]:
        """Quantities in which worlds may differ: those of its networks, and those of a log that it reads by run."""
        return tuple(one.name for one in self.conditions)

    @property
    def floating(self) -> bool:
        """Whether the base floats."""
        return self.spec.floating

    @property
    def trained(self) -> bool:
        """Whether the dynamics are ready for use; false for a model with random weights."""
        return True

    @property
    def epistemic_scale(self) -> Tensor | None:
        """Standard deviation of the training states, shape [nq + nv + nx], which scales the epistemic uncertainty."""
        return None

    @property
    def extrapolates(self) -> bool:
        """Whether steps beyond the training data are those of networks, which know nothing there."""
        return True

    @property
    def from_logs(self) -> bool:
        """Whether the model was trained on logs of the robot, its ground truth then instead of the simulator."""
        return self.training_range is not None and self.training_range.logged

    @property
    def uncertain(self) -> bool:
        """Whether steps have an epistemic standard deviation."""
        return self.epistemic_scale is not None

    @property
    def home(self) -> Environment:
        """The default environment."""
        return Environment()

    @property
    def base_com(self) -> Tensor | None:
        """Centre of mass of a floating base in the base frame [m], shape [3]; None for the origin."""
        return None

    def hold_out(self) -> "tuple[Dynamics, Dynamics, str] | None":
        """Return dynamics that policies train in, held-out dynamics that judge them, and the name of these, if any."""
        return None

    def network_inputs(self, state: State, control: Control, environment: Environment | None = None) -> Tensor | None:
        """Return the normalised network inputs of a frame, shape [worlds, inputs]; None without a network."""
        return None

    @property
    def known_inputs(self) -> KnownInputs | None:
        """What its networks have seen; None without networks that say so."""
        return None

    @torch.no_grad()
    def outside(self, state: State, control: Control, environment: Environment | None = None) -> Tensor | None:
        """Return whether the network inputs of a frame are far from all training data, shape [worlds], bool.

        None without a network, or for a model that does not know its training data; see `dynamics.known_inputs`.
        """
        if self.known_inputs is None or not self.known_inputs.fitted:
            return None
        inputs = self.network_inputs(state, control, environment)
        return None if inputs is None else self.known_inputs.outside(inputs)

    def contradicted(self, past: State | Window, environment: Environment | None = None) -> Tensor | None:
        """Return whether a history contradicts the model, shape [worlds], bool; None if it cannot say."""
        return None

    def refused(self, past: State | Window, control: Control, environment: Environment | None = None) -> Tensor | None:
        """Return whether the model refuses to predict the frame after a history, shape [worlds], bool.

        It does if the inputs are `outside` or the history is `contradicted`; None if neither is known.
        """
        reasons = (self.outside(present_state(past), control, environment), self.contradicted(past, environment))
        known = [reason for reason in reasons if reason is not None]
        return torch.stack(known).any(0) if known else None

    def resolve_environment(self, environment: Environment | None) -> Environment:
        """Return the environment with defaults filled in; for None, the default environment.

        Raises:
            InputError: The dynamics do not support its gravity or ground.
        """
        return self._resolve(environment).environment

    def _resolve(self, environment: Environment | None) -> "_ResolvedEnvironment":
        """Return an environment with its derived values, cached because checks that read gravity stall a GPU."""
        known, device, edits = self._surroundings, torch.device(self.device), _edits(environment)
        if known is None or known.given is not environment or known.device != device or known.edits != edits:
            whole = self._fill_in(environment)
            down = None if whole.gravity is None else gravity_direction(whole.gravity)
            down = None if down is None else down.to(device)
            whole = whole if _lies_on(whole, device) else whole.to(device)
            known = self._surroundings = _ResolvedEnvironment(environment, edits, device, whole, down)
        return known

    def _fill_in(self, environment: Environment | None) -> Environment:
        home = self.home
        if environment is None:
            return home
        if environment.ground is not None and not environment.ground.empty:
            self.require_ground()
        if environment.parameters is not None:
            self.require_parameters(environment.parameters.names)
        if environment.gravity is None:
            return replace(environment, gravity=home.gravity)
        self.require_gravity(environment.gravity)
        return environment

    def parameters(self) -> Iterator[Tensor]:
        """Return the trainable tensors."""
        return iter(())

    @abstractmethod
    def begin(self, context: State | Window, environment: Environment | None = None) -> Carry:
        """Return the carry of a batch of worlds with the history `context`; a `State` is a start without history."""

    def imagine(
        self, context: State | Window, environment: Environment | None = None, *, uncertainty: bool = False
    ) -> Carry:
        """Return the carry of worlds for imagined roll-outs of a policy; see `begin`.

        In an ensemble each world follows one member, in turn, so that the policy experiences every member. Steps return
        their `uncertainty` only if asked to.
        """
        return self.begin(context, environment)

    @abstractmethod
    def step(self, carry: Carry, state: State, control: Control) -> tuple[Carry, Step]:
        """Predict one frame from `state` under `control`. The given carry stays valid."""

    @torch.no_grad()
    def step_(self, carry: Carry, state: State, control: Control) -> tuple[Carry, Step]:
        """Predict one frame without gradients, as fast as possible. The given carry may be overwritten."""
        return self.step(carry, state, control)

    @abstractmethod
    def reset(self, carry: Carry, context: State | Window, mask: WorldMask) -> Carry:
        """Restart the worlds where `mask` is true, shape [worlds]; the others stay bitwise the same."""

    def change_environment(self, carry: Carry, environment: Environment) -> Carry:
        """Return the carry of the same worlds with the same history in another environment, which is resolved.

        Raises:
            InputError: Roll-outs of this kind of dynamics stay in one environment.
        """
        raise InputError(
            f"{self.kind} dynamics of {self.spec.robot!r}: a roll-out cannot change its environment; call begin again"
        )

    def rollout(
        self, context: State | Window, controls: Commands, environment: Environment | None = None
    ) -> Trajectory:
        """Predict T frames under torques `controls` [N m or N], shape [worlds, T, nu].

        Dynamics that `take_parts` also take torques of equal parts of each frame, shape [worlds, T, parts, nu].
        The first implausible state is reported, see `dynamics.guard`. The fast step (`step_`) is used unless the
        context, the controls or the weights require gradients.
        """
        path = self._rollout(context, controls, environment)
        unread = path.q.is_meta or (path.q.is_cuda and torch.cuda.is_current_stream_capturing())
        return path if unread else self._watch(path, controls, environment)

    def guard_bounds(self, robot: Robot | None = None, *, margin: float = TRAINING_MARGIN) -> PlausibleBounds:
        """Return the bounds outside of which these dynamics count as diverged.

        The bounds are the robot's. For models with networks they are tightened to the range of velocities and channels
        in the training data, plus a margin: a mechanism alone holds also beyond a gentle log. For models of logs they
        apply to the measured state.

        Args:
            robot: Declaration of the robot; None for that of the dynamics. Without one, positions are unbounded.
            margin: Margin on either side of the training range, as a fraction of that range.
        """
        robot, known = robot or self.robot, self.training_range
        bounds = PlausibleBounds((), (), (), ()) if robot is None else declared_bounds(robot)
        bounds = bounds.of_spec(self.spec)
        if known is None or not self.extrapolates:
            return bounds
        return bounds.tighten(widen(known.qd, margin), widen(known.channels, margin))

    @property
    def rollout_bounds(self) -> PlausibleBounds:
        """`guard_bounds` with the margin for roll-outs, cached."""
        kept = self._rollout_bounds
        if kept is None or kept[0] is not self.training_range:
            kept = self._rollout_bounds = self.training_range, self.guard_bounds(margin=BROKEN_MARGIN)
        return kept[1]

    def _watch(self, path: Trajectory, controls: Tensor, environment: Environment | None) -> Trajectory:
        """Report the first fault of roll-outs under `controls`, if any; return the roll-outs."""
        fault = fault_of(self.rollout_bounds, path, f"roll-out of {self.kind} dynamics of {self.spec.robot!r}")
        if fault is not None:
            window = _before(path, controls if controls.ndim == 3 else controls.mean(2), fault, self.spec.context)
            report(fault, FaultHistory(self.spec, window, self.resolve_environment(environment), fault.world))
        return path

    def _rollout(self, context: State | Window, controls: Controls, environment: Environment | None) -> Trajectory:
        """Predict T frames one by one; kinds with a faster method override this."""
        require_torques(self.spec, controls)
        leaves = self._leaves(context, controls)
        if environment is not None and environment.parameters is not None:
            leaves.append(environment.parameters.numbers)
        tracked = torch.is_grad_enabled() and any(t.requires_grad for t in leaves)
        carry, state = self.begin(context, environment), present_state(context)
        return self._follow(carry, state, controls, tracked=tracked)

    def _follow(self, carry: Carry, state: State, controls: Controls, *, tracked: bool) -> Trajectory:
        """Roll out from a carry; with gradients if `tracked`, else by the fast step."""
        worth = state.q.is_cuda and controls.shape[1] >= _WORTH_CAPTURE
        if not tracked and worth and not torch.cuda.is_current_stream_capturing():
            replayed = self._replay(carry, state, controls)
            if replayed is not None:
                return replayed
        advance = self.step if tracked else self.step_
        states = [state]
        for torque in controls.unbind(1):
            carry, step = advance(carry, states[-1], Control.make_unchecked(torque=torque))
            states.append(step.state)
        return Trajectory.of_states(states)

    def compare(
        self,
        truth: "Dynamics | Trajectory",
        context: State | Window,
        controls: Controls,
        environment: Environment | None = None,
    ) -> RolloutErrors:
        """Compare a roll-out with other dynamics of the robot, or with a recorded trajectory, without gradients.

        Args:
            truth: Other dynamics, which start from the same states; or a recorded trajectory from these states.
            context: History of the worlds.
            controls: Torques [N m or N], shape [worlds, T, nu].
            environment: Environment of both; None for the default of these dynamics.

        Raises:
            InputError: The recorded trajectory has other worlds or coordinates, or is shorter.
            MismatchError: The other dynamics have other joints, controls or another dt.
        """
        with torch.no_grad():
            # Defaults of these dynamics, for example the ground, apply to the other ones too.
            environment = self.resolve_environment(environment)
            predicted, label = self.rollout(context, controls, environment), "recorded"
            if not isinstance(truth, Trajectory):
                differences = self.spec.differences(truth.spec)
                if differences:
                    raise MismatchError(f"dynamics of {truth.spec.robot!r} differ: {'; '.join(differences)}")
                label = truth.kind if truth.kind != self.kind else f"other {truth.kind}"
                truth = truth.rollout(context, controls, environment)
        return compare_rollouts(self.spec, predicted, truth, predicted_label=self.kind, truth_label=label)

    def with_drives(self, drives: Mapping[str, Drive]) -> "Dynamics | None":
        """Return the same dynamics with drives inside, by joint, whose commands are then the controls.

        None if drives can only act in front of these dynamics, as in `dynamics.behind_drives`.
        """
        return None

    def fixed_frame(self, worlds: int, environment: Environment, like: Tensor) -> FixedFrame:
        """Return a frame with fixed buffers of the dtype and device of `like`; `environment` is resolved."""
        return EagerFrame(self, worlds, environment, like)

    def _replay(
        self, carry: Carry, state: State, controls: Controls, record: Recorder = cuda_graph
    ) -> Trajectory | None:
        """Roll out by replaying one captured step; return None if the step cannot be captured."""
        if self._no_capture:
            return None
        given = (controls[:, 0],)
        if self._captured is None or not self._captured.fits((carry, state), given):
            try:
                self._captured = CapturedStep(
                    self._captured_step, (carry, state), given, device=state.q.device, record=record
                )
            except CaptureError:
                self._no_capture = True
                return None
        else:
            self._captured.restart((carry, state))
        return Trajectory.of_states([state, *(self._captured(torque) for torque in controls.unbind(1))])

    def _captured_step(self, before: tuple[Carry, State], torque: Tensor) -> tuple[tuple[Carry, State], State]:
        carry, step = self.step_(*before, Control.make_unchecked(torque=torque))
        return (carry, step.state), step.state

    def quantities(
        self,
        state: State,
        step: Step | None = None,
        *,
        torque: Tensor | None = None,
        environment: Environment | None = None,
    ) -> Quantities:
        """Return the named quantities of a state (`dynamics.quantities`), each computed on access.

        Args:
            state: The state.
            step: The prediction that led to it; None for an initial state.
            torque: Torques during that frame [N m or N], shape [worlds, nu]; None if unknown.
            environment: Environment of the worlds, as for `begin`.
        """
        return self.reader(environment).read(state, step, torque)

    def reader(self, environment: Environment | None = None) -> StateReader:
        """Return a reader of quantities in one environment: `quantities` for loops, with the set-up done once."""
        given, robot = self._resolve(environment), self.robot
        return StateReader(
            self.spec, owner=f"{self.kind} dynamics of {self.spec.robot!r}", com=self.base_com, down=given.down,
            more=declared_end_effector(robot, self._chain) | self._contact_makers(given.environment.ground),
            contact_names=() if robot is None else tuple(robot.contacts),
        )  # fmt: skip

    def _contact_makers(self, ground: Ground | None) -> dict[str, Maker]:
        """Return makers of the state, height and speed of the declared contacts."""
        return declared_contacts(self.robot, self._seen_points, ground)

    def _chain(self) -> Sequence[ChainJoint]:
        """Return the moving joints of the robot as built; empty if they are unknown."""
        return () if self.contact_points is None else self.contact_points.joints

    def require_ground(self) -> None:  # noqa: B027  # most kinds support any ground
        """Raise `InputError` if the dynamics have no ground contact."""

    def require_gravity(self, gravity: Tensor) -> None:  # noqa: B027  # most kinds support any gravity
        """Raise `InputError` if the dynamics do not support a gravity [m/s^2], shape [3] or [worlds, 3]."""

    def require_parameters(self, names: Sequence[str]) -> None:
        """Raise `InputError` if the dynamics have no such quantities that can differ between worlds."""
        raise InputError(
            f"{self.kind} dynamics of {self.spec.robot!r}: take no parameters per world ({', '.join(names[:3])}); "
            "valid: dynamics of kind hybrid or analytic, or models that were trained with --conditions"
        )

    def _leaves(self, context: State | Window, controls: Tensor) -> list[Tensor]:
        """Return the tensors with respect to which a roll-out may be differentiated."""
        tensors = [context.q, context.qd, controls]
        return [*tensors, context.torque] if isinstance(context, Window) else tensors


class MeasuredDynamics(Dynamics):
    """Dynamics of measured states, whose history costs a warm-up that can be shared between worlds."""

    @abstractmethod
    def graft(self, carry: Carry, mask: WorldMask, source: Carry, chosen: Tensor) -> Carry:
        """Replace the history of the worlds where `mask` is true, shape [worlds]; `carry` stays valid.

        World w gets row `chosen[w]` of the histories `source`.
        """


def renewed_memory(known: Tensor | None, fresh: Tensor | None, mask: WorldMask) -> Tensor | None:
    """Return memories of drives and networks (`StepMemory`), shape [worlds, memory], with some worlds restarted.

    Worlds where `mask` [worlds] is true get the memory `fresh`, the others keep `known`; None stands for zeros.
    """
    like = fresh if known is None else known
    if like is None:
        return None
    fresh, known = (torch.zeros_like(like) if memory is None else memory for memory in (fresh, known))
    return torch.where(mask[:, None].to(like.device), fresh, known)


class EagerFrame:
    """A `FixedFrame` of any dynamics, which calls their `step_` and copies the result."""

    capturable = False

    def __init__(self, dynamics: Dynamics, worlds: int, environment: Environment, like: Tensor) -> None:
        """Allocate the buffers. Arguments: see `Dynamics.fixed_frame`."""
        spec = dynamics.spec
        self._dynamics, self._environment, self._carry = dynamics, environment, None
        self.q, self.q_next = (like.new_zeros(worlds, spec.nq) for _ in range(2))
        self.qd, self.qd_next = (like.new_zeros(worlds, spec.nv) for _ in range(2))
        self.torque = like.new_zeros(worlds, spec.nu)

    @torch.no_grad()
    def run(self) -> None:
        """Predict the frame."""
        state = State.make_unchecked(q=self.q, qd=self.qd, channels=None)
        carry: Any = self._dynamics.begin(state, self._environment) if self._carry is None else self._carry
        self._carry, step = self._dynamics.step_(carry, state, Control(torque=self.torque))
        self.q_next.copy_(step.state.q)
        self.qd_next.copy_(step.state.qd)

    def refresh(self) -> None:
        """Do nothing: the step reads the weights itself."""

    def reset(self, mask: Tensor | None) -> None:
        """Clear the history of some worlds; see `FixedFrame.reset`."""
        if self._carry is not None:
            state = State(self.q, self.qd)
            self._carry = None if mask is None else self._dynamics.reset(self._carry, state, mask)

    def in_environment(self, environment: Environment) -> "EagerFrame":
        """Return this frame, moved to another environment."""
        self._environment = environment
        if self._carry is not None:
            self._carry = self._dynamics.change_environment(self._carry, environment)
        return self
