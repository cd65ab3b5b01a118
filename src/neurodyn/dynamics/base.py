# SPDX-License-Identifier: Apache-2.0
"""What all kinds of dynamics have in common, and what learned ones add.

With the quantities that a robot's declaration adds: end effector and contacts.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from neurodyn.core.description.contacts import ContactPoint, ContactPointLayout
from neurodyn.core.description.mechanism import Fingerprint
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.data.training_range import TrainingRange
from neurodyn.dynamics.batch import Control, Environment, State, Step, Trajectory, Window, present_state
from neurodyn.dynamics.capture import CapturedStep, CaptureError, Recorder, cuda_graph
from neurodyn.dynamics.control import require_torques
from neurodyn.dynamics.fixed_frame import EagerFrame, FixedFrame
from neurodyn.dynamics.guard import watch_rollout
from neurodyn.dynamics.interface import Carry, Dynamics
from neurodyn.dynamics.measures import ComparedRollouts, compared
from neurodyn.dynamics.quantities import Maker, Quantities, StateReader, gravity_direction
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.tensors import Controls, WorldMask
from neurodyn.robots import ROBOTS, Robot, load, locate
from neurodyn.robots.sections import EndEffector, matching

if TYPE_CHECKING:
    from neurodyn.geometry.proximity import ProximityQuery


def declared_end_effector(robot: Robot | None) -> dict[str, Maker]:
    """Return the place of the end effector, where the robot declares one."""
    end = None if robot is None else robot.end_effector
    if end is None:
        return {}
    query = cache(partial(_end_effector, end))  # made when it is first asked for
    return {"end_effector_position": lambda of: query()(None, of.state.q, of.state.qd).position[:, 0]}


def declared_contacts(
    robot: Robot | None, layout: ContactPointLayout | None, ground: Ground | None
) -> dict[str, Maker]:
    """Return which of the declared contacts touch the ground: those with a contact point that is inside."""
    if robot is None or layout is None or not robot.contacts:
        return {}
    query = cache(partial(_proximity, layout))
    members = cache(partial(_members, layout, tuple(robot.contacts.values())))

    def touching(of: Quantities) -> Tensor:
        """Return 1 where a body touches the ground and 0 elsewhere, shape [worlds, contacts]."""
        q, qd = of.state.q.detach(), of.state.qd.detach()
        readings = query()(ground, q, qd)
        radius, member = members(q.device)
        inside = (readings.distance < radius) & readings.valid
        return (inside.to(q) @ member.to(q)).clamp_max(1.0)

    return {"contact": touching}


def contact_names(robot: Robot | None) -> tuple[str, ...]:
    """Return the names of the declared contacts."""
    return () if robot is None else tuple(robot.contacts)


@lru_cache(maxsize=16)
def _end_effector(end: EndEffector) -> "ProximityQuery":
    index = [joint.name for joint in end.joints].index(end.joint)
    contact_point = ContactPoint(name="end_effector", joint=index, point=end.point, radius=0.0)
    return _proximity(ContactPointLayout(joints=end.joints, contact_points=(contact_point,)))


@lru_cache(maxsize=16)
def _proximity(layout: ContactPointLayout) -> "ProximityQuery":
    from neurodyn.geometry.proximity import ProximityQuery  # loads Warp, which robots without contacts do not need

    return ProximityQuery(layout)


@lru_cache(maxsize=16)
def _members(
    layout: ContactPointLayout, contacts: tuple[tuple[str, ...], ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the radius of each contact point, and which contact it belongs to, shape [contact points, contacts]."""
    shapes = [contact_point.name.rpartition("/")[0] for contact_point in layout.contact_points]
    with torch.inference_mode(False):
        radius = torch.tensor([contact_point.radius for contact_point in layout.contact_points], device=device)
        members = torch.tensor(
            [[float(matching(shape, patterns)) for patterns in contacts] for shape in shapes], device=device
        )
    return radius, members


_WORTH_CAPTURE = 8
"""Frames of a roll-out from which on its step is captured on a GPU: recording takes as long as a few steps."""


@dataclass(frozen=True)
class _ResolvedEnvironment:
    """The environment that was asked for last.

    Attributes:
        given: As it was given.
        device: Device of the dynamics.
        environment: With what was left open filled in, on that device.
        down: Direction of gravity, as of `gravity_direction`.
    """

    given: Environment | None
    device: torch.device
    environment: Environment
    down: Tensor | None


def _lies_on(environment: Environment, device: torch.device) -> bool:
    pose = None if environment.ground is None else environment.ground.pose
    return all(tensor is None or tensor.device == device for tensor in (environment.gravity, pose))


class BaseDynamics(ABC):
    """What `Dynamics` asks for, but for `begin`, `step` and `reset`; a kind overrides what differs."""

    spec: StateSpec
    kind: str
    differentiable: bool = False
    measured: bool = False
    fingerprint: Fingerprint | None = None
    robot: Robot | None = None
    training_range: TrainingRange | None = None
    device: str = "cpu"
    _surroundings: "_ResolvedEnvironment | None" = None
    _captured: CapturedStep | None = None
    _no_capture: bool = False

    @property
    def network(self) -> str:
        """What computes a step, in a word."""
        return self.kind

    @property
    def contact_points(self) -> ContactPointLayout | None:
        """Points that are measured against the ground; None where it feels none."""
        return None

    @property
    def contacts_of_simulator(self) -> bool:
        """Whether its contact points may be all that the simulator has, instead of those that the robot declares."""
        return False

    @property
    def floating(self) -> bool:
        """Whether the base floats."""
        return self.spec.floating

    @property
    def trained(self) -> bool:
        """Whether it is ready for use."""
        return True

    @property
    def epistemic_scale(self) -> Tensor | None:
        """Unit of the epistemic standard deviation: that of the states in the training data, shape [nq + nv + nx]."""
        return None

    @property
    def uncertain(self) -> bool:
        """Whether steps have an epistemic standard deviation."""
        return self.epistemic_scale is not None

    @property
    def home(self) -> Environment:
        """The environment where none is given."""
        return Environment()

    @property
    def base_com(self) -> Tensor | None:
        """Centre of mass of a floating base in its own frame [m], shape [3]; None for its origin."""
        return None

    def resolve_environment(self, environment: Environment | None) -> Environment:
        """Return the environment with what it leaves open filled in.

        Raises:
            InputError: It asks for a gravity or a ground that the dynamics do not know.
        """
        return self._resolved(environment).environment

    def _resolved(self, environment: Environment | None) -> "_ResolvedEnvironment":
        """Return an environment with what is computed of it once, as checks that read gravity stall a GPU."""
        known, device = self._surroundings, torch.device(self.device)
        if known is None or known.given is not environment or known.device != device:
            whole = self._filled_in(environment)
            down = None if whole.gravity is None else gravity_direction(whole.gravity)
            down = None if down is None else down.to(device)
            whole = whole if _lies_on(whole, device) else whole.to(device)
            known = self._surroundings = _ResolvedEnvironment(environment, device, whole, down)
        return known

    def _filled_in(self, environment: Environment | None) -> Environment:
        home = self.home
        if environment is None:
            return home
        if environment.ground is not None and not environment.ground.empty:
            self.require_ground()
        if environment.gravity is None:
            return Environment(gravity=home.gravity, ground=environment.ground)
        self.require_gravity(environment.gravity)
        return environment

    def parameters(self) -> Iterator[Tensor]:
        """Return what can be trained: nothing."""
        return iter(())

    @abstractmethod
    def begin(self, context: State | Window, environment: Environment | None = None) -> Carry:
        """Return the carry of a batch of worlds."""

    def imagine(
        self, context: State | Window, environment: Environment | None = None, *, uncertainty: bool = False
    ) -> Carry:
        """Return the carry of worlds in which a policy acts; see `Dynamics`."""
        return self.begin(context, environment)

    @abstractmethod
    def step(self, carry: Carry, state: State, control: Control) -> tuple[Carry, Step]:
        """Predict one frame."""

    @torch.no_grad()
    def step_(self, carry: Carry, state: State, control: Control) -> tuple[Carry, Step]:
        """Predict one frame without gradients, as `step`."""
        return self.step(carry, state, control)

    @abstractmethod
    def reset(self, carry: Carry, context: State | Window, mask: WorldMask) -> Carry:
        """Begin anew in the worlds where `mask` is true, shape [worlds]."""

    def rollout(
        self, context: State | Window, controls: Controls, environment: Environment | None = None
    ) -> Trajectory:
        """Predict T frames under torques `controls` [N m or N], shape [worlds, T, nu].

        A world that leaves what is plausible is named (`dynamics.guard`). Takes the fast step (`step_`) unless
        something asks for gradients: the context, the controls, or weights that are not frozen.
        """
        path = self._rollout(context, controls, environment)
        unread = path.q.is_meta or (path.q.is_cuda and torch.cuda.is_current_stream_capturing())
        return path if unread else watch_rollout(self, path, controls, environment)

    def _rollout(self, context: State | Window, controls: Controls, environment: Environment | None) -> Trajectory:
        """Predict T frames frame by frame; a kind with a faster way overrides this."""
        require_torques(self.spec, controls)
        tracked = torch.is_grad_enabled() and any(t.requires_grad for t in self._leaves(context, controls))
        carry, state = self.begin(context, environment), present_state(context)
        return self._followed(carry, state, controls, tracked=tracked)

    def _followed(self, carry: Carry, state: State, controls: Controls, *, tracked: bool) -> Trajectory:
        """Roll out from a carry, with gradients or by the fast step."""
        worth = state.q.is_cuda and controls.shape[1] >= _WORTH_CAPTURE
        if not tracked and worth and not torch.cuda.is_current_stream_capturing():
            replayed = self._replayed(carry, state, controls)
            if replayed is not None:
                return replayed
        advance = self.step if tracked else self.step_
        q, qd = [state.q], [state.qd]
        for torque in controls.unbind(1):
            carry, step = advance(carry, state, Control.unchecked(torque=torque))
            state = step.state
            q.append(state.q)
            qd.append(state.qd)
        return Trajectory(torch.stack(q, 1), torch.stack(qd, 1))

    def compare(
        self,
        truth: Dynamics | Trajectory,
        context: State | Window,
        controls: Controls,
        environment: Environment | None = None,
    ) -> ComparedRollouts:
        """Roll out beside other dynamics, or beside what was recorded; see `Dynamics.compare`."""
        with torch.no_grad():
            # What one fills in by default, as a ground, holds for the other too.
            environment = self.resolve_environment(environment)
            predicted, label = self.rollout(context, controls, environment), "recorded"
            if not isinstance(truth, Trajectory):
                differences = self.spec.differences(truth.spec)
                if differences:
                    raise MismatchError(f"dynamics of {truth.spec.robot!r} differ: {'; '.join(differences)}")
                label = truth.kind if truth.kind != self.kind else f"other {truth.kind}"
                truth = truth.rollout(context, controls, environment)
        return compared(self.spec, predicted, truth, predicted_label=self.kind, truth_label=label)

    def fixed_frame(self, worlds: int, environment: Environment, like: Tensor) -> FixedFrame:
        """Return a frame between fixed buffers.

        Args:
            worlds: Number of worlds.
            environment: What they are in; nothing is open in it.
            like: Tensor of the precision and on the device of the buffers.
        """
        return EagerFrame(self, worlds, environment, like)

    def _replayed(
        self, carry: Carry, state: State, controls: Controls, record: Recorder = cuda_graph
    ) -> Trajectory | None:
        """Roll out by replays of one step; None where the step cannot be captured."""
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
        path = [state, *(self._captured(torque) for torque in controls.unbind(1))]
        return Trajectory(torch.stack([x.q for x in path], 1), torch.stack([x.qd for x in path], 1))

    def _captured_step(self, before: tuple[Carry, State], torque: Tensor) -> tuple[tuple[Carry, State], State]:
        carry, step = self.step_(*before, Control.unchecked(torque=torque))
        return (carry, step.state), step.state

    def quantities(
        self,
        state: State,
        step: Step | None = None,
        *,
        torque: Tensor | None = None,
        environment: Environment | None = None,
    ) -> Quantities:
        """Return what is known of a state by name; see `Dynamics.quantities`."""
        return self.reader(environment).read(state, step, torque)

    def reader(self, environment: Environment | None = None) -> StateReader:
        """Return what reads quantities off states in an environment; see `Dynamics.reader`."""
        given, robot = self._resolved(environment), self.robot
        return StateReader(
            self.spec, owner=f"{self.kind} dynamics of {self.spec.robot!r}", com=self.base_com, down=given.down,
            more=declared_end_effector(robot) | declared_contacts(robot, self.contact_points, given.environment.ground),
            contact_names=contact_names(robot),
        )  # fmt: skip

    def require_ground(self) -> None:  # noqa: B027  # most feel any ground
        """Refuse every ground, where the dynamics feel none."""

    def require_gravity(self, gravity: Tensor) -> None:  # noqa: B027  # most know any gravity
        """Refuse a gravity that the dynamics do not know."""

    def _leaves(self, context: State | Window, controls: Tensor) -> list[Tensor]:
        """Return what may ask for gradients of a roll-out."""
        tensors = [context.q, context.qd, controls]
        return [*tensors, context.torque] if isinstance(context, Window) else tensors


def renewed_memory(known: Tensor | None, fresh: Tensor | None, mask: WorldMask) -> Tensor | None:
    """Return what drives and networks keep (`multibody.memory`) where some worlds begin anew.

    Args:
        known: What they keep now, shape [worlds, memory]; None where nothing has happened yet, as zeros are.
        fresh: What they keep at a start, likewise.
        mask: Worlds that begin anew, shape [worlds].
    """
    like = fresh if known is None else known
    if like is None:
        return None
    fresh, known = (torch.zeros_like(like) if memory is None else memory for memory in (fresh, known))
    return torch.where(mask[:, None].to(like.device), fresh, known)


class LearnedDynamics(nn.Module, BaseDynamics):
    """Dynamics with weights, on the device of these.

    Attributes:
        declaration: Name of the robot, or absolute path of its declaration.
        training_range: Range of motion in the data that it was made from; None where that is unknown.
    """

    differentiable = True

    def __init__(self, spec: StateSpec, declaration: str | None = None) -> None:
        """Take a robot.

        Args:
            spec: Names, order, units and dt of state and control.
            declaration: Name or path of the robot's declaration; None for the name in `spec`.
        """
        super().__init__()
        self.spec = spec
        self.declaration = spec.robot if declaration is None else locate(declaration)

    @property
    def robot(self) -> Robot | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The declaration of the robot; None where it is gone."""
        return self._robot

    @cached_property
    def _robot(self) -> Robot | None:
        if self.declaration not in ROBOTS and not Path(self.declaration).is_absolute():
            return None  # a bare name is never the path of something in the present folder
        try:
            return load(self.declaration)
        except InputError:
            return None

    @property
    def device(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Device of the weights."""
        return str(next(self.parameters()).device)

    def _leaves(self, context: State | Window, controls: Tensor) -> list[Tensor]:
        """Return what may ask for gradients of a roll-out."""
        return [*super()._leaves(context, controls), *self.parameters()]
