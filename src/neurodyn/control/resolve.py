# SPDX-License-Identifier: Apache-2.0
"""Dynamics by name: "analytic", a run directory, or a model that ships with the package."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from neurodyn.control.starts import LoggedStarts, MixedStarts, SampledStarts, Starts
from neurodyn.control.task_frames import episode_bounds, require_fit
from neurodyn.core import artifacts
from neurodyn.core.errors import InputError, suggestion
from neurodyn.data.mixture import Mixture
from neurodyn.data.store import Store
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.batch import State, Step, device_generator
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.kinds import KINDS, is_simulated, simulate
from neurodyn.evaluate.run import training_log
from neurodyn.learn.devices import require_device
from neurodyn.robots.base_channels import open_measured_data
from neurodyn.sim.simulators import has_simulator
from neurodyn.tasks import Task

ANALYTIC = "analytic"
TASK = "task"
"""Setting for starts drawn by the task."""


@dataclass(frozen=True)
class ResolvedDynamics:
    """Dynamics that a policy can act in."""

    name: str
    """Name given by the user."""
    dynamics: Dynamics
    log: Store | Mixture | None = None
    """Training log of a world model, or the log or logs given for starts; None for simulators."""

    def is_drawn_by(self, task: Task) -> bool:
        """Return whether a task can draw the states: generalised coordinates, without a history."""
        spec = self.dynamics.spec
        simple = spec.context <= 1 and spec.nq == task.declaration().spec.nq and not spec.nx
        return not self.dynamics.measured or simple

    def mixed_starts(self, task: Task, seed: int, share: float) -> Starts:
        """Return starts with a share drawn by the task and the rest from the log; errors: see `starts_in`."""
        assert self.log is not None
        own = replace(self, log=None).starts(task, seed)
        return MixedStarts(own, self.starts_in(self.log, task, seed), share, seed)

    def starts(self, task: Task, seed: int) -> Starts:
        """Return the starts of episodes: in the log if there is one, else drawn by the task; see `starts_in`."""
        if self.log is not None:
            return self.starts_in(self.log, task, seed)
        bounds = episode_bounds(task, self.dynamics)
        return SampledStarts(task, seed, device=self.dynamics.device, bounds=bounds)

    def starts_in(self, log: Store | Mixture, task: Task, seed: int) -> LoggedStarts:
        """Return starts after windows of a log as long as the model's warm-up.

        Raises:
            InputError: No episode of the log is long enough.
        """
        generator = device_generator(torch.device(self.dynamics.device), 0)
        bounds = episode_bounds(task, self.dynamics)

        def ended(state: State, contacts: Tensor | None) -> Tensor:
            quantities = self.dynamics.quantities(state, Step(state, contacts=contacts))
            failed = task.terminated(quantities, task.begin(quantities, generator))
            return failed | bounds.outside(state.q, state.qd, state.channels)

        frames = max(1, self.dynamics.spec.context)
        return LoggedStarts(log, frames, seed, device=self.dynamics.device, ended=ended)


def open_dynamics(
    task: Task,
    name: str,
    *,
    device: str = "cpu",
    starts: str | None = None,
    drawn: bool = False,
    flag: str = "--dynamics",
) -> ResolvedDynamics:
    """Open the dynamics for a task.

    Args:
        task: The task.
        name: "analytic", "hybrid", a run directory, or "pretrained:NAME".
        device: Torch device; Warp's for analytic dynamics.
        starts: HDF5 store after whose windows episodes start, or "task" for starts drawn by the task; None for a world
            model's own log, and for the task's starts in simulators.
        drawn: Whether episodes in models of logs also use the task's starts, if it can draw their states and `starts`
            is None.
        flag: Name of the user's flag, for messages.

    Raises:
        InputError: There are no such dynamics, they are not for this task, or the log is missing or of another robot.
    """
    require_device(device)
    if is_declared(name):
        if starts is not None:
            raise InputError("--starts is for models of logs; in the simulator a task draws its own starts")
        return ResolvedDynamics(name, simulate(name, task.declaration(), device=device))
    if not name.startswith(artifacts.PRETRAINED) and not Path(name).exists():
        shipped = [artifacts.PRETRAINED + n for n in artifacts.pretrained_names()]
        declared = [kind for kind in KINDS if is_simulated(kind)]
        meant = suggestion(name, [*declared, *shipped])
        raise InputError(
            f"{flag} {name!r}: no such dynamics{meant}; valid: {', '.join(declared)}, a run directory, or one of "
            f"{', '.join(shipped)}"
        )
    dynamics = load(name, device=device)
    require_fit(task, dynamics)
    if starts is None and dynamics.measured and not (drawn and ResolvedDynamics(name, dynamics).is_drawn_by(task)):
        starts = training_log(name, "--starts")
    spec = dynamics.spec
    if starts == TASK and dynamics.measured and spec.context > 1:
        raise InputError(f"{name}: reads {spec.context} frames of history; valid: --starts FILE.h5, or its own log")
    if starts == TASK and dynamics.measured and (spec.nq != task.declaration().spec.nq or spec.nx):
        raise InputError(
            f"{name}: its states hold what a log measures, which a task cannot draw; valid: --starts FILE.h5"
        )
    if starts in (None, TASK):
        return ResolvedDynamics(name, dynamics)
    log = Store.open(starts)
    if log.header.base != "measured" and not spec.floating:  # a model of what sensors tell, without a base
        log = open_measured_data(task.declaration(), starts)
    log.require_base(str(starts))
    if differences := spec.differences(log.header.spec):
        raise InputError(f"{starts}: its states do not fit the model {name}: {'; '.join(differences[:3])}")
    return ResolvedDynamics(name, dynamics, log)


def is_declared(name: str) -> bool:
    """Return whether dynamics simulate the declared robot, without a run: "analytic" or "hybrid"."""
    return is_simulated(name) and not (Path(name) / "model").is_dir()


def open_reference(task: Task, training_dynamics: ResolvedDynamics, asked: str | None) -> ResolvedDynamics | None:
    """Return the dynamics that monitor a policy during training.

    Args:
        task: The task.
        training_dynamics: Training dynamics.
        asked: Name given by the user; "none" for none; None for the simulator, if it is installed, the robot has an
            asset, and training is elsewhere.

    Raises:
        InputError: There are no such dynamics.
    """
    if asked == "none" or (
        asked is None and (training_dynamics.name == ANALYTIC or not has_simulator(task.declaration()))
    ):
        return None
    return open_dynamics(task, asked or ANALYTIC, device=training_dynamics.dynamics.device, flag="--reference")
