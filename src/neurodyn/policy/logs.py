# SPDX-License-Identifier: Apache-2.0
"""Logs of policies at work, as a robot itself would write them: no pose of the base, contacts by force.

Each episode has one of several behaviour policies and white noise of its own strength on the actions, so that a model
of the log sees good and bad motions. Batch k of a log is a function of (seed, k) alone.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.config import read_config
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed
from neurodyn.core.spec import StateSpec
from neurodyn.data.header import Status, StoreHeader, package_versions
from neurodyn.data.rows import RowLayout
from neurodyn.data.split import assign_splits
from neurodyn.data.writer import StoreWriter, require_store_name
from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.interface import Control, Dynamics, State, Step
from neurodyn.dynamics.pushes import pushed
from neurodyn.dynamics.quantities import Quantities
from neurodyn.policy.compatibility import require_fit
from neurodyn.policy.environment import home_ground
from neurodyn.tasks import Task

_TEST_FRACTION = 0.1


@dataclass(frozen=True)
class Behaviour:
    """A policy that makes episodes of a log.

    Attributes:
        name: Name of the policy.
        act: From observations, shape [worlds, observations], to actions, shape [worlds, actions], without noise.
    """

    name: str
    act: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LogSummary:
    """Contents of a log.

    Attributes:
        path: The file.
        transitions: Transitions in it.
        episodes: Episodes in it.
        failed: Share of episodes that ended in a failure.
        returns: Mean return of the episodes of each behaviour policy, noise included.
        cpu_seconds: Processor time of writing it [s].
    """

    path: str
    transitions: int
    episodes: int
    failed: float
    returns: dict[str, float]
    cpu_seconds: float


def row_layout(task: Task) -> RowLayout:
    """Return the layout of the rows that the task's robot logs.

    Raises:
        InputError: The robot declares none, or it does not fit the task.
    """
    robot = task.declaration()
    if robot.rows_path is None:
        raise InputError(f"robot {robot.name!r} declares no rows to log; valid: `rows:` in its declaration")
    layout = read_config(robot.rows_path, RowLayout)
    if abs(layout.dt - robot.dt) > 1e-6 * robot.dt or layout.joints != robot.spec.controls:
        raise InputError(f"{robot.rows_path}: rows of other joints or another dt than task {task.name!r}")
    return layout


def logged_spec(task: Task) -> StateSpec:
    """Return what the task's robot logs: its declared rows, or all joints and torques of a bolted robot.

    Raises:
        InputError: The robot floats and declares no rows, or those do not fit the task.
    """
    robot = task.declaration()
    if robot.rows_path is None and all(joint.scalar for joint in robot.spec.joints):
        return robot.spec
    return row_layout(task).spec


def record_log(
    task: Task,
    dynamics: Dynamics,
    behaviours: Sequence[Behaviour],
    out: str | Path,
    *,
    transitions: int,
    worlds: int = 256,
    noise: float = 0.5,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> LogSummary:
    """Write a log of several policies at a task.

    Args:
        task: The task; its commands and pushes are part of the log.
        dynamics: Dynamics in place of the robot.
        behaviours: The policies; each makes as many episodes as the others.
        out: File to write (.h5).
        transitions: Least number of transitions; rounded up to whole batches of episodes.
        worlds: Episodes that are made at once.
        noise: Greatest standard deviation of the noise on actions; each episode has one between 0 and this.
        seed: Seed of starts, commands, pushes and noise.
        progress: Called with the transitions so far and those asked for, after each batch.

    Raises:
        InputError: A setting is out of range, the robot floats and declares no rows, or the file cannot be written.
    """
    path = Path(out)
    require_store_name(path)
    for name, value in (("transitions", transitions), ("worlds", worlds), ("policies", len(behaviours))):
        if value < 1:
            raise InputError(f"{name} is {value}; valid: at least 1")
    if not 0 <= noise < math.inf:
        raise InputError(f"noise is {noise:g}; valid: a finite number of at least 0")
    require_fit(task, dynamics)
    spec, begin = logged_spec(task), time.process_time()
    header = StoreHeader(
        spec=spec,
        source="log",
        seed=seed,
        versions=package_versions("newton", "torch"),
        notes={"task": task.name, "policies": [b.name for b in behaviours], "noise": noise},
        groups=tuple(behaviour.name for behaviour in behaviours),
    )
    written, failed, returns = 0, [], []
    with StoreWriter(path, header) as writer:
        while written < transitions:
            batch = _Batch(task, dynamics, behaviours, worlds, noise, derive_seed(seed, "log", writer.batches))
            batch.run(spec)
            split = assign_splits(worlds, derive_seed(seed, "log split", writer.batches), test=_TEST_FRACTION)
            arrays = batch.arrays()
            writer.append(
                arrays["q"], arrays["qd"], arrays["control"], channel=arrays["channel"], contact=arrays["contact"],
                lengths=batch.lengths, split=split, group=batch.policy, world=np.arange(worlds),
                status=np.where(batch.failed, Status.TERMINATED, Status.COMPLETE),
            )  # fmt: skip
            written += int(batch.lengths.sum())
            failed.append(batch.failed)
            returns.append([batch.returns[batch.policy == k] for k in range(len(behaviours))])
            if progress is not None:
                progress(min(written, transitions), transitions)
    means = [float(np.concatenate(parts).mean()) for parts in zip(*returns, strict=True)]
    return LogSummary(
        path=str(path),
        transitions=written,
        episodes=sum(len(part) for part in failed),
        failed=float(np.concatenate(failed).mean()),
        returns={b.name: mean for b, mean in zip(behaviours, means, strict=True)},
        cpu_seconds=time.process_time() - begin,
    )


class _Batch:
    """Episodes that are made at once; those that fail are simulated on, and cut afterwards."""

    def __init__(
        self,
        task: Task,
        dynamics: Dynamics,
        behaviours: Sequence[Behaviour],
        worlds: int,
        noise: float,
        seed: int,
    ) -> None:
        self._task, self._dynamics, self._behaviours = task, dynamics, behaviours
        self._generator = torch.Generator().manual_seed(seed)
        self.policy = np.arange(worlds) % len(behaviours)
        self._noise = noise * torch.rand(worlds, 1, generator=self._generator)
        self._environments = home_ground(task)
        self._rows: list[dict[str, Tensor]] = []
        self.lengths = np.full(worlds, task.frames)
        self.failed = np.zeros(worlds, dtype=bool)
        self.returns = np.zeros(worlds)

    def run(self, spec: StateSpec) -> None:
        """Make the episodes; the first frame is not kept, as no torque and no contact is known before it."""
        task, worlds = self._task, len(self.policy)
        state = task.start(worlds, self._generator)
        carry = self._dynamics.begin(state, self._environments)
        now = self._quantities(state, None, torch.zeros(worlds, self._dynamics.spec.nu))
        memory = task.begin(now, self._generator)
        for frame in range(task.frames + 1):
            action = self._act(task.observe(now, memory))
            control = task.control(action, now, memory)
            torque = frame_torque(self._dynamics.spec, state, control)
            carry, step = self._dynamics.step(carry, state, Control(torque=torque))
            state, now = step.state, self._quantities(step.state, step, torque)
            reward = torch.stack(list(task.reward(now, memory, action).values())).sum(0)
            contacts = now.contacts(spec.contacts) if spec.contacts else torch.zeros(worlds, 0)
            failed = task.terminated(now, memory) | ~state.q.isfinite().all(-1)
            memory = task.advance(memory, now, action, self._generator)
            change = task.push(memory, self._generator)
            if change is not None:
                state = pushed(self._dynamics.spec, state, change)
                now = self._quantities(state, None, torque)
            self._count(frame, reward, failed)
            if frame:
                driven = torque if spec.control_kind == "torque" else control.target
                assert driven is not None  # of a robot with rows, whose layout says so
                self._rows[-1]["control"] = driven
            self._rows.append(self._row(spec, now, contacts))
            if frame and self.failed.all():
                break

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the episodes, as a store's writer takes them; zeros after a failure."""
        arrays = {}
        for name in ("q", "qd", "control", "channel", "contact"):
            rows = [row[name] for row in self._rows if name in row]
            array = torch.stack(rows, 1).numpy()
            last = self.lengths[:, None] + (name != "control")
            valid = np.arange(array.shape[1])[None] < last
            arrays[name] = np.where(valid[..., None], array, 0.0).astype(np.float32)
        self.lengths = np.minimum(self.lengths, arrays["control"].shape[1])
        return arrays

    def _quantities(self, state: State, step: Step | None, torque: Tensor) -> Quantities:
        return self._dynamics.quantities(state, step, torque=torque, environment=self._environments)

    def _act(self, observation: Tensor) -> Tensor:
        action = torch.zeros(len(observation), len(self._task.actions))
        for number, behaviour in enumerate(self._behaviours):
            rows = torch.from_numpy(self.policy == number)
            action[rows] = behaviour.act(observation[rows])
        action = action + self._noise * torch.randn(action.shape, generator=self._generator)
        return action.clamp(-self._task.limit, self._task.limit)

    def _count(self, frame: int, reward: Tensor, failed: Tensor) -> None:
        """Note failures; one in the frame that is not kept leaves an episode of no transition."""
        fresh = failed.numpy() & ~self.failed
        if frame:
            self.returns += np.where(self.failed, 0.0, reward.double().numpy())
        self.lengths[fresh] = frame
        self.failed |= fresh

    def _row(self, spec: StateSpec, now: Quantities, contacts: Tensor) -> dict[str, Tensor]:
        names = dict.fromkeys(channel.quantity for channel in spec.channels)
        nothing = contacts.new_zeros(len(contacts), 0)
        return {
            "q": now["joint_position"],
            "qd": now["joint_velocity"],
            "channel": torch.cat([nothing, *(now[name] for name in names)], dim=-1),
            "contact": (contacts > 0.5).to(torch.float32),
        }
