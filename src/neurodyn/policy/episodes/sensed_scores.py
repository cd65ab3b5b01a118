# SPDX-License-Identifier: Apache-2.0
"""Returns of episodes on a robot without motion capture, by the states of its base that its sensors and a model imply.

Rewards need what no policy of sensors sees, such as the velocity of the base. After an episode, the smoother of
`neurodyn.estimate` gives it from the logged readings; rewards and followed commands are computed along these states.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from neurodyn.control.commands import Commands, CommandTally
from neurodyn.control.robot.in_loop import RobotDynamics
from neurodyn.control.robot.sensed import SensedFrame
from neurodyn.core.errors import InputError
from neurodyn.dynamics.artifact import load as load_model
from neurodyn.dynamics.batch import State, Trajectory
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.estimate import EstimatedRun, EstimationSettings, SensedRun, smooth_base
from neurodyn.robots import Robot
from neurodyn.tasks import Memory, Task


@dataclass
class SensedEpisode:
    """An episode on a robot without motion capture.

    Attributes:
        memories: The task's memory at the start of each frame.
        actions: Action of each frame, shape [1, actions].
        frames: Readings at the start of each frame, and at the end.
    """

    memories: list[Memory] = field(default_factory=list)
    actions: list[Tensor] = field(default_factory=list)
    frames: tuple[SensedFrame, ...] = ()

    def count(self, memory: Memory, action: Tensor) -> None:
        """Count a frame."""
        self.memories.append(memory)
        self.actions.append(action)

    def end(self, robot: RobotDynamics) -> None:
        """Take the readings from a robot that has stopped."""
        assert robot.base is not None
        self.frames = tuple(robot.base.frames)

    @property
    def length(self) -> int:
        """Number of frames with readings at both ends."""
        return min(len(self.actions), len(self.frames) - 1)


@dataclass(frozen=True)
class SensedScore:
    """What an episode earned by estimated states of the base.

    Attributes:
        earned: Return.
        commands: Commanded and achieved values by name.
        path: The states, of one world.
    """

    earned: float
    commands: Commands
    path: Trajectory


def model_of_states(robot: Robot, run: str) -> HybridDynamics:
    """Return the model of a run by which the states of a robot's base are estimated.

    Raises:
        InputError: It is another kind of model, or of another robot.
    """
    model = load_model(run)
    if not isinstance(model, HybridDynamics) or model.spec.robot != robot.name:
        raise InputError(f"--states {run}: holds {model.kind} dynamics of {model.spec.robot!r}; valid: a run of "
                         f"`neurodyn adapt` of {robot.name!r}")  # fmt: skip
    return model


def score(
    task: Task, episodes: Sequence[SensedEpisode], model: HybridDynamics | None = None
) -> tuple[list[SensedScore | None], str]:
    """Return the scores of episodes by a model (None: the declared robot), and why there are none.

    They are None for episodes of less than two frames.
    """
    long = [episode for episode in episodes if episode.length > 1]
    none: list[SensedScore | None] = [None] * len(episodes)
    if not long:
        return none, ""
    if any(math.isnan(float(frame.reading.force.sum())) for episode in long for frame in episode.frames):
        return none, "the states of the base are not estimated: the robot has no specific_force"
    robot = task.declaration()
    try:
        model = declared_hybrid(robot) if model is None else model
        runs = smooth_base(model, [_run(episode) for episode in long], EstimationSettings.on_board(robot.sensors))
    except InputError as error:
        return none, f"the states of the base are not estimated: {error}"
    known = {id(episode): _score(task, episode, run, model) for episode, run in zip(long, runs, strict=True)}
    return [known.get(id(episode)) for episode in episodes], ""


def _run(episode: SensedEpisode) -> SensedRun:
    frames = episode.frames[: episode.length + 1]

    def stack(values: Sequence[Tensor]) -> Tensor:
        return torch.stack([value.double() for value in values])

    q, qd, control = (stack([torch.tensor(getattr(f, name)) for f in frames]) for name in ("q", "qd", "control"))
    readings = (stack([getattr(f.reading, name) for f in frames]) for name in ("gyroscope", "force", "attitude"))
    angular_velocity, specific_force, attitude = readings
    return SensedRun(q, qd, control, angular_velocity, specific_force, attitude)


@torch.no_grad()
def _score(task: Task, episode: SensedEpisode, run: EstimatedRun, model: Dynamics) -> SensedScore:
    joints = [torch.tensor([getattr(frame, name) for frame in episode.frames]) for name in ("q", "qd")]
    count = episode.length + 1
    q = torch.cat([run.position, run.quaternion, joints[0][:count].double()], 1).float()
    qd = torch.cat([run.linear, run.angular, joints[1][:count].double()], 1).float()
    read, generator = model.reader(None).read, torch.Generator().manual_seed(0)
    torques = [torch.tensor([frame.control]) for frame in episode.frames] if model.spec.control_kind == "torque" else []
    earned, tally, running = 0.0, CommandTally(task), torch.ones(1, dtype=torch.bool)
    now = read(State(q[:1], qd[:1]))
    memory = task.begin(now, generator)
    for frame, action in enumerate(episode.actions[: episode.length]):
        known = episode.memories[frame]
        memory = replace(memory, command=known.command, action=known.action)
        tally.count(now, memory, running)
        torque = torques[frame] if torques else None
        now = read(State(q[frame + 1 : frame + 2], qd[frame + 1 : frame + 2]), None, torque)
        earned += float(sum(task.reward(now, memory, action).values()))
        memory = task.advance(memory, now, action, generator)
    return SensedScore(earned, tally.figures(), Trajectory(q[None], qd[None]))
