# SPDX-License-Identifier: Apache-2.0
"""Roll-outs of any dynamics: along windows of a log, and from given starts under torques or a PD controller.

Along a log, a roll-out starts in the recorded state at the start of a window. The recorded control of frame k leads
from state k to state k + 1, and prediction k is compared with recorded state k.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import Control, Environment, RecordedEnvironments, State, Trajectory, Window, present_state
from neurodyn.dynamics.interface import Carry, Dynamics
from neurodyn.dynamics.neural.model import NeuralDynamics


def context_of(
    windows: Windows, frames: int | None = None, *, state: State | None = None, rows: Tensor | None = None
) -> State | Window:
    """Return the initial states of roll-outs along windows, with their past if there is one.

    Args:
        windows: The windows.
        frames: Largest number of past frames; None for all.
        state: Initial states to use, one for each of `rows`; None for the recorded ones.
        rows: Indices of the windows; None for all.
    """
    if state is None:
        first = windows if rows is None else windows.rows(rows)
        state = State(first.q[:, 0], first.qd[:, 0], None if first.channels is None else first.channels[:, 0])
    past = windows.past
    if past is None or frames == 0:
        return state
    past = past if rows is None else past.rows(rows)
    past = past if frames is None or frames >= past.frames else past.cut(past.frames - frames)
    q, qd = (torch.cat([x[:, :-1], now[:, None]], 1) for x, now in ((past.q, state.q), (past.qd, state.qd)))
    channels = None
    if past.channels is not None and state.channels is not None:
        channels = torch.cat([past.channels[:, :-1], state.channels[:, None]], 1)
    return Window(q, qd, past.control, channels, past.parts)


def truth_of(windows: Windows) -> Trajectory:
    """Return the recorded states of windows."""
    return Trajectory(windows.q, windows.qd, windows.channels)


def recorded_environments(store: Store, dynamics: Dynamics) -> RecordedEnvironments:
    """Return the environments of a log as dynamics take them, with the quantities that it gives by run.

    Dynamics of measured states know the environment of their log alone: they get no gravity and no ground.
    """
    names = tuple(one.name for one in dynamics.conditions) if not store.header.of_robot else dynamics.own_quantities
    return RecordedEnvironments(store, names=names, surroundings=not dynamics.measured)


def roll_along(dynamics: Dynamics, windows: Windows, environments: RecordedEnvironments | None = None) -> Trajectory:
    """Roll dynamics out along windows of a log, on their device; the result is on that of the windows.

    Args:
        dynamics: The dynamics; they see as much of the windows' past as they use (`spec.context`).
        windows: The windows, in a dtype that the dynamics take.
        environments: Environments of the log (`recorded_environments`); None for the dynamics' own.
    """
    return follow(dynamics, starts_of(windows, dynamics, environments))


def starts_of(windows: Windows, dynamics: Dynamics, environments: RecordedEnvironments | None = None) -> "RolloutBatch":
    """Return the starts of roll-outs along windows; arguments: see `roll_along`."""
    environment = None if environments is None else environments.of(windows)
    context = context_of(windows, dynamics.spec.context)
    commands = windows.commands if dynamics.takes_parts else windows.control
    return RolloutBatch(context, ControlSequence(torque=commands), environment)


def require_finite_path(path: Trajectory, spec: StateSpec, windows: Windows) -> None:
    """Raise an InputError, with window, frame and quantity, for roll-outs that are not finite."""
    bad = torch.nonzero(~torch.isfinite(torch.cat([path.q, path.qd], -1)))
    if not len(bad):
        return
    world, frame, column = (int(x) for x in bad[bad[:, 1].argmin()])
    names = [f"q.{name}" for name in spec.q_names] + [f"qd.{name}" for name in spec.qd_names]
    episode, start = windows.source.places[world].tolist()
    raise InputError(
        f"roll-out of world {world} (episode {episode}, from state {start} on) is not finite: {names[column]} at step "
        f"{frame}; valid: parameters, bounds or substeps with which the dynamics stay finite"
    )


@dataclass(frozen=True)
class ControlSequence:
    """Torques, or targets and gains of a PD controller, for a batch of roll-outs.

    Attributes:
        torque: Torques or forces [N m or N], shape [worlds, T, nu], or of equal parts of each frame, [worlds, T, parts,
            nu]; None with a controller.
        target: Targets of the controller [rad or m], shape [worlds, T, nu]; None with torques.
        kp: Stiffness [N m/rad or N/m], shape [worlds, 1] or [worlds, nu].
        kd: Damping [N m s/rad or N s/m], shape [worlds, 1] or [worlds, nu].
    """

    torque: Tensor | None = None
    target: Tensor | None = None
    kp: Tensor | None = None
    kd: Tensor | None = None

    @property
    def frames(self) -> int:
        """Number of frames."""
        values = self.target if self.torque is None else self.torque
        return 0 if values is None else values.shape[1]

    def at(self, frame: int) -> Control:
        """Return the control of one frame."""
        if self.target is None:
            return Control(torque=None if self.torque is None else self.torque[:, frame])
        return Control(target=self.target[:, frame], kp=self.kp, kd=self.kd)

    def worlds(self, rows: slice | Tensor) -> "ControlSequence":
        """Return the controls of some of the roll-outs."""
        return ControlSequence(*(None if x is None else x[rows] for x in (self.torque, self.target, self.kp, self.kd)))

    def to(self, device: torch.device | str) -> "ControlSequence":
        """Return the controls on another device."""
        return ControlSequence(
            *(None if x is None else x.to(device) for x in (self.torque, self.target, self.kp, self.kd))
        )

    def until(self, frame: int) -> "ControlSequence":
        """Return the controls of the first frames."""
        torque, target = (None if x is None else x[:, :frame] for x in (self.torque, self.target))
        return replace(self, torque=torque, target=target)


@dataclass(frozen=True)
class RolloutBatch:
    """Starts of roll-outs, one per world.

    Attributes:
        past: Initial states, or histories that end in them.
        drive: Controls.
        environment: Environment of the worlds; None for the dynamics' own.
    """

    past: State | Window
    drive: ControlSequence
    environment: Environment | None = None

    @property
    def worlds(self) -> int:
        """Number of starts."""
        return self.past.worlds

    def rows(self, rows: slice | Tensor) -> "RolloutBatch":
        """Return some of the starts."""
        environment = None if self.environment is None else self.environment.rows(rows)
        return RolloutBatch(self.past.rows(rows), self.drive.worlds(rows), environment)

    def to(self, device: torch.device | str) -> "RolloutBatch":
        """Return the starts on another device."""
        environment = None if self.environment is None else self.environment.to(device)
        return RolloutBatch(self.past.to(device), self.drive.to(device), environment)


def follow(dynamics: Dynamics, batch: RolloutBatch) -> Trajectory:
    """Roll out under torques, or with a controller acting on the predicted state.

    Dynamics run on their device; the result is on that of the starts.
    """
    home = batch.past.q.device
    if torch.device(dynamics.device) == home:
        return _follow_drive(dynamics, batch)
    return _follow_drive(dynamics, batch.to(dynamics.device)).to(home)


def _follow_drive(dynamics: Dynamics, batch: RolloutBatch) -> Trajectory:
    drive = batch.drive
    if drive.torque is not None:
        return dynamics.rollout(batch.past, drive.torque, batch.environment)
    carry, state = dynamics.begin(batch.past, batch.environment), present_state(batch.past)
    path = _roll_out_controlled(dynamics, carry, state, drive)
    if not isinstance(dynamics, NeuralDynamics) or dynamics.members == 1:
        return path
    several = drive.worlds(dynamics.repeated_worlds(path.worlds))
    each = _roll_out_controlled(dynamics, *dynamics.begin_members(batch.past, batch.environment), several)
    return replace(path, epistemic=dynamics.spread(each))


def _roll_out_controlled(dynamics: Dynamics, carry: Carry, state: State, drive: ControlSequence) -> Trajectory:
    """Roll out with a controller; a network's in-place step consumes the carry."""
    states = [state]
    for frame in range(drive.frames):
        carry, step = dynamics.step_(carry, states[-1], drive.at(frame))
        states.append(step.state)
    return Trajectory.of_states(states)
