# SPDX-License-Identifier: Apache-2.0
"""Recordings of a policy in some dynamics, beside others from the same start."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from neurodyn.control.commands import Commands, CommandTally
from neurodyn.control.resolve import ANALYTIC, ResolvedDynamics, open_dynamics
from neurodyn.control.robot.in_loop import REHEARSED, RobotDynamics, log_file, robot_in_loop
from neurodyn.control.robot.sensed import why_not_scored
from neurodyn.control.starts import OneStart, Starts, home_ground, task_ground
from neurodyn.control.task_frames import TaskFrames
from neurodyn.core.errors import InputError
from neurodyn.core.progress import stage, tracked
from neurodyn.core.requests import accepts_request
from neurodyn.core.seeds import derive_seed
from neurodyn.dynamics.batch import Environment, State, Trajectory
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.policy.artifact import ActingPolicy, PolicyNetwork, acting, load_policy, task_of
from neurodyn.policy.episodes.sensed_scores import SensedEpisode, model_of_states, score
from neurodyn.policy.requests import PlayPolicyRequest
from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.report.recording import Ended, Recording
from neurodyn.tasks import Task

LONGEST = 10.0
"""Default length of a recording, unless an episode is shorter [s]."""


@accepts_request(PlayPolicyRequest)
def record_policy(request: PlayPolicyRequest) -> Recording:
    """Record a policy in two dynamics from the same start.

    Raises:
        InputError: Policy, dynamics or ground are missing or incompatible, or a state has no pose to draw.
    """
    seconds, dynamics, seed, ground = request.seconds, request.dynamics, request.seed, request.ground
    beside, starts = request.beside or ANALYTIC, request.starts
    if seconds is not None and not seconds > 0:
        raise InputError(f"--seconds is {seconds:g}; valid: above 0")
    if starts is not None and dynamics == beside == ANALYTIC:
        raise InputError(f"--starts is {starts!r}, but the simulator starts where the task says; valid with a model")
    if request.on is not None and (dynamics != ANALYTIC or ground is not None):
        raise InputError("--on is for a real robot; valid without --dynamics and --ground")
    if request.states is not None and request.on is None:
        raise InputError("--states is for a robot without motion capture; valid with --on")
    config, network = load_policy(request.folder)
    task = task_of(config, request.task, str(request.folder))
    robot = task.declaration()
    frames = min(task.frames, max(1, round((LONGEST if seconds is None else seconds) / robot.dt)))
    network = network.to(request.device)
    elsewhere = None if ground is None else task_ground(task, ground, 1, seed)

    def paths(resolved: ResolvedDynamics, worlds: int = 1) -> list[_Path]:
        return _paths(task, network, resolved, frames, seed, worlds, elsewhere)

    alone = request.beside is None and dynamics == ANALYTIC and request.on is None
    second_dynamics = None if alone else _open(task, beside, starts, request.device, "--beside")
    labels, start = ("start 1", "start 2"), None
    if request.on is not None:
        model = None if request.states is None else model_of_states(robot, request.states)
        with stage(0.0, 0.5, request.on), robot_in_loop(task, request.on, log_file(None), model) as alive:
            shown = [_robot_path(task, network.cpu(), alive, frames, seed, model)]
        network = network.to(request.device)
        first_path = shown[0].trajectory
        start, dynamics = State(first_path.q[:, 0], first_path.qd[:, 0]), request.on
    else:
        first = _open(task, dynamics, starts, request.device)
        with stage(0.0, 1.0 if alone else 0.5, dynamics):
            shown = paths(first, 2 if alone else 1)
    if second_dynamics is not None:
        if start is not None and second_dynamics.is_drawn_by(task):
            second_dynamics = StartedAt(second_dynamics.name, second_dynamics.dynamics, start=start)
        with stage(0.5, 1.0, second_dynamics.name):
            shown += paths(second_dynamics)
        labels = dynamics, second_dynamics.name
    ended = (shown[0].ended, shown[1].ended)
    remarks = [
        f"; {label} {end.why} after {end.seconds:.3g} s"
        for label, end in zip(labels, ended, strict=True)
        if end is not None
    ]
    where = "" if ground is None else f", ground {ground}"
    return Recording(
        robot=robot,
        title=f"{config.task} by {Path(request.folder).name}{where}{''.join(remarks)}",
        predicted=shown[0].trajectory,
        truth=shown[1].trajectory,
        predicted_label=labels[0],
        truth_label=labels[1],
        worlds=(f"start 1 of seed {seed}",),
        ground=(elsewhere or home_ground(task)).ground,
        ended=ended,
        remarks=tuple(
            f"{label}: {text}"
            for label, path in zip(labels, shown, strict=True)
            for text in (
                *((path.score,) if path.score else ()),
                *(one.in_words(name) for name, one in path.commands.items()),
            )
        ),
    )


def _open(task: Task, name: str, starts: str | None, device: str, flag: str = "--dynamics") -> ResolvedDynamics:
    starts = None if name == ANALYTIC else starts
    resolved = open_dynamics(task, name, device=device, starts=starts, flag=flag)
    if resolved.dynamics.spec.nq != task.declaration().spec.nq:
        raise InputError(
            f"{name}: its states hold no pose of the robot's base, so there is nothing to draw; play in another"
        )
    return resolved


@dataclass(frozen=True)
class _Path:
    """Trajectory of one world, which stands still after an early end of its episode.

    Attributes:
        trajectory: The states.
        ended: Time of failure or of leaving the plausible range (`control.task_frames`); None for neither.
        commands: Commanded and achieved values until then, by name.
        score: Return of a robot's episode in words, or why it has none.
        sensed: What a robot sensed; None for other dynamics.
    """

    trajectory: Trajectory
    ended: Ended | None
    commands: Commands = field(default_factory=dict)
    score: str = ""
    sensed: SensedEpisode | None = None


@dataclass(frozen=True)
class StartedAt(ResolvedDynamics):
    """Dynamics in which episodes start from one state."""

    start: State | None = None

    def starts(self, task: Task, seed: int) -> Starts:
        """Return the state as a distribution."""
        assert self.start is not None
        return OneStart(self.start)


@torch.no_grad()
def _robot_path(
    task: Task, policy: PolicyNetwork, robot_dynamics: ResolvedDynamics, frames: int, seed: int,
    model: HybridDynamics | None,
) -> _Path:  # fmt: skip
    """Return the path of one episode on a robot, which stands still after its end."""
    assert isinstance(robot_dynamics.dynamics, RobotDynamics)
    loop = TaskFrames(task, robot_dynamics.dynamics)

    def run(most: int) -> _Path:
        generator = torch.Generator().manual_seed(derive_seed(seed, "robot"))
        current, act = loop.begin(robot_dynamics.starts(task, seed).draw(1), generator), acting(policy)
        states, ended, commands, earned = [current.state], None, CommandTally(task), 0.0
        sensed = SensedEpisode()
        running = torch.ones(1, dtype=torch.bool)
        for frame in tracked(range(1, most + 1)):
            commands.count(current.now, current.memory, running)
            action, memory = act(task.observe(current.now, current.memory)), current.memory
            current, step, end = loop.frame(current, action, generator)
            sensed.count(memory, action.clamp(-task.limit, task.limit))
            states.append(states[-1] if bool(end.implausible) else step.state)
            earned += float(end.reward)
            if bool(end.failed):
                ended = Ended(
                    frame * robot_dynamics.dynamics.spec.dt, "is implausible" if bool(end.implausible) else "fails"
                )
                break
        states += [states[-1]] * (most + 1 - len(states))
        said = why_not_scored(task) if math.isnan(earned) else f"return {earned:.4g}"
        return _Path(Trajectory.of_states(states), ended, commands.figures(), said, sensed)

    robot_dynamics.dynamics.rehearse(lambda: run(REHEARSED))
    path = run(frames)
    robot_dynamics.dynamics.stop()
    robot = robot_dynamics.dynamics
    return path if robot.base is None else _estimate_path(task, path, robot, frames, model)


def _estimate_path(task: Task, path: _Path, robot: RobotDynamics, frames: int, model: HybridDynamics | None) -> _Path:
    """Return the path of a robot without motion capture, along the estimated states of its base, if they are known."""
    assert path.sensed is not None
    path.sensed.end(robot)
    [found], why = score(task, [path.sensed], model)
    if found is None:
        return replace(path, score=f"{path.score}; {why}" if why else path.score)
    by_truth = f"; {path.score} by the truth" if path.sensed.frames[0].reading.truth is not None else ""
    q, qd = (
        torch.cat([x, x[:, -1:].expand(-1, frames + 1 - x.shape[1], -1)], 1) for x in (found.path.q, found.path.qd)
    )
    return replace(
        path, trajectory=Trajectory(q, qd), commands=path.commands or found.commands,
        score=f"return {found.earned:.4g} by the estimated states of its base{by_truth}",
    )  # fmt: skip


@torch.no_grad()
def _paths(
    task: Task,
    policy: PolicyNetwork,
    resolved: ResolvedDynamics,
    frames: int,
    seed: int,
    worlds: int,
    environment: Environment | None,
) -> list[_Path]:
    world = PolicyEnvironment(
        task, resolved.dynamics, resolved.starts(task, seed), worlds, seed=seed, environment=environment
    )
    states = [world.state]
    running = torch.ones(worlds, dtype=torch.bool, device=world.device)
    ends: dict[int, Ended] = {}
    tallies = [CommandTally(task) for _ in range(worlds)]
    rows = torch.eye(worlds, dtype=torch.bool, device=world.device)
    act = acting(policy)
    for frame in tracked(range(1, frames + 1)):
        for tally, row in zip(tallies, rows, strict=True):
            tally.count(world.now, world.memory, row & running)
        _, _, done, extras = world.step(act(world.seen))
        implausible = extras["implausible"]
        ended = running & (done & ~extras["time_outs"].bool() | implausible)
        for row in ended.nonzero()[:, 0].tolist():
            ends[row] = Ended(frame * task.declaration().dt, "is implausible" if implausible[row] else "fails")
        if isinstance(act, ActingPolicy):
            act.restart(done)
        states.append(extras["state"].where(running & ~implausible, states[-1]))
        running = running & ~done
    path = Trajectory.of_states(states).to("cpu")
    return [_Path(path.rows(slice(i, i + 1)), ends.get(i), tallies[i].figures()) for i in range(worlds)]
