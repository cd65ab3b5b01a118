# SPDX-License-Identifier: Apache-2.0
"""Recordings: a model beside the truth from the same states under the same torques, for pictures and plots.

The truth is the analytic simulator or a log. Starts are drawn by seed, never chosen by the errors of the model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.core.requests import taking
from neurodyn.core.seeds import generator
from neurodyn.data.split import episodes_in
from neurodyn.data.store import Store
from neurodyn.data.windows import all_windows
from neurodyn.dynamics.artifact import load_simulator, robot_of
from neurodyn.dynamics.batch import RecordedEnvironments, Trajectory, Window
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.measures import MOVING
from neurodyn.evaluate.recorded import chosen_split, run_name, split_name
from neurodyn.evaluate.requests import SEED, RecordingRequest
from neurodyn.evaluate.rollouts import ControlSequence, RolloutBatch, follow
from neurodyn.evaluate.scenario import Scenario, scenario
from neurodyn.evaluate.simulated import Sampled, both
from neurodyn.geometry.ground import Ground
from neurodyn.robots import Robot
from neurodyn.robots import load as load_robot

SECONDS = 6.0
LOG_SECONDS = 2.0
_CANDIDATES = 2000


@dataclass(frozen=True)
class Ended:
    """Early end of an episode; the robot stays in its last state from then on."""

    seconds: float
    why: str  # for example "failed"

    @classmethod
    def when(cls, running: np.ndarray | torch.Tensor, dt: float, why: str) -> "Ended | None":
        """Return the end of an episode from its running frames, shape [frames], bool; None if it runs to the last."""
        frames = int(running.sum())
        return None if frames == len(running) else cls(frames * dt, why)


@dataclass(frozen=True)
class Recording:
    """Roll-outs of a model and the true motion."""

    robot: Robot
    title: str  # description of the motion
    predicted: Trajectory
    truth: Trajectory  # simulated or measured
    predicted_label: str
    truth_label: str
    worlds: tuple[str, ...]  # description of each roll-out
    ground: Ground | None = None  # with obstacles; None in free space
    ended: tuple[Ended | None, Ended | None] = (None, None)  # early ends of the first roll-out, predicted and true

    @property
    def frames(self) -> int:
        """Number of predicted frames."""
        return self.truth.q.shape[1] - 1

    @property
    def seconds(self) -> float:
        """Length of a roll-out [s]."""
        return self.frames * self.robot.dt


def record(
    model: Dynamics,
    robot: Robot,
    *,
    frames: int,
    seed: int = SEED,
    worlds: int = 1,
    driven: bool = False,
    where: Scenario | None = None,
) -> Recording:
    """Roll out model and simulator from the robot's resets.

    Args:
        model: The model.
        robot: The robot that it was trained on.
        frames: Frames of a roll-out.
        seed: Seed of initial states and controls.
        worlds: Number of roll-outs.
        driven: Whether controls are random (torques, or targets for a robot with gains); otherwise motion is passive.
        where: Ground, initial states and controller; None for the robot's default ground.
    """
    where = scenario(robot) if where is None else where
    starts = Sampled.draw(robot, frames, worlds, seed, driven=driven, where=where)
    found, truth = both(model, robot, starts)
    held = starts.drive.target is not None
    driven_title = "driven to random targets" if held else "driven by random torques"
    passive_title = "held at its nominal pose" if held else "without torque"
    return Recording(
        robot=robot,
        title=(driven_title if driven else passive_title) + (f", ground {where.name}" if where.grounded else ""),
        predicted=found.path,
        truth=truth.path,
        predicted_label=model.kind,
        truth_label="analytic",
        worlds=tuple(f"start {i + 1} of seed {seed}" for i in range(worlds)),
        ground=starts.environment.ground,
    )


@torch.no_grad()
def record_log(
    model: Dynamics,
    robot: Robot,
    store: Store,
    *,
    frames: int,
    seed: int = SEED,
    worlds: int = 1,
    split: int | None = None,
) -> Recording:
    """Roll a model out along recorded windows.

    Windows are drawn by seed from those with motion (mean joint speed above that of the evaluation's moving windows),
    or from all if there are none. For a floating robot windows start with an episode, and the model gets their first
    state alone.

    Args:
        model: The model.
        robot: The robot of the log.
        store: The recorded trajectories.
        frames: Maximum frames of a roll-out; at most the length of the episodes.
        seed: Seed of the draw.
        worlds: Maximum number of windows.
        split: Split of the episodes; None for all of them.
    """
    floating = robot.spec.floating
    context = 0 if floating else model.spec.context
    episodes = episodes_in(store, split)
    longest = np.median(store.lengths[episodes]) if floating else store.lengths[episodes].max()
    frames = max(1, min(frames, int(longest) - context))
    total = int(np.maximum(0, store.lengths[episodes] - context - frames + 1).sum())
    stride = max(1, total if floating else total // _CANDIDATES)
    batches = list(all_windows(store, context + frames, split=split, stride=stride))
    q, qd, torque = (torch.cat([getattr(b, name) for b in batches]) for name in ("q", "qd", "control"))
    moving = np.flatnonzero((qd[:, context:].abs().mean((1, 2)) > MOVING).numpy())
    pool = moving if len(moving) else np.arange(len(q))
    picked = np.sort(generator(seed, "record").permutation(pool)[:worlds])
    pose = torch.cat([b.ground for b in batches if b.ground is not None])[picked] if store.ground is not None else None
    environment = RecordedEnvironments(store).at(pose)
    q, qd, torque = q[picked], qd[picked], torque[picked]
    past = Window(q[:, : context + 1], qd[:, : context + 1], torque[:, :context])
    episode = np.concatenate([b.episode for b in batches])[picked]
    start = np.concatenate([b.start for b in batches])[picked] + context
    begin, drive = past if context else past.present, ControlSequence(torque[:, context:])
    return Recording(
        robot=robot,
        title="along a recorded log" if split is None else f"along a log, {split_name(split)} episodes",
        predicted=follow(model, RolloutBatch(begin, drive, environment)),
        truth=Trajectory(q[:, context:], qd[:, context:]),
        predicted_label="predicted",
        truth_label="measured",
        worlds=tuple(_where(store, int(e), int(s), robot.dt) for e, s in zip(episode, start, strict=True)),
        ground=environment.ground,
    )


@taking(RecordingRequest)
def record_run(request: RecordingRequest) -> Recording:
    """Record the model of a run beside its simulator, or beside the log that it was trained on.

    Raises:
        InputError: Run or data are missing, damaged or of another robot, or Newton is needed and not installed.
    """
    from neurodyn.dynamics.same_robot import require_robot
    from neurodyn.evaluate.run import open_along_log, training_logs

    run, seconds, data = request.run, request.seconds, request.data
    if seconds is not None and not seconds > 0:
        raise InputError(f"--seconds is {seconds:g}; valid: above 0")
    model, robot = load_simulator(run, device=request.device), load_robot(robot_of(run))
    simulated = request.ground is not None or request.driven
    if data is None and (model.fingerprint is None or (model.from_logs and not simulated)):
        data = training_logs(str(run))
    if data is None:
        require_robot(model, robot)
        frames, where = _frames(robot, seconds or SECONDS), scenario(robot, request.ground, words=())
        return record(model, robot, frames=frames, seed=request.seed, driven=request.driven, where=where)
    if request.ground is not None:
        raise InputError("--ground is for a recording beside the simulator; along a log the ground is the log's")
    if request.driven:
        raise InputError("--driven draws random torques for the simulator; along a log the recorded torques drive")
    model, _, robot, store = open_along_log(run, data, request.device)
    frames, split = _frames(robot, seconds or LOG_SECONDS), chosen_split(store, None)
    return record_log(model, robot, store, frames=frames, seed=request.seed, split=split)


def default_output(
    run: str | Path, stem: str, suffix: str, resolve: Callable[[str], Path] = artifacts.resolve_run
) -> Path:
    """Return the default path of a page or picture: in the folder of its run, or here for what ships with the package.

    `suffix` includes the dot; `resolve` returns the folder of the run or policy.
    """
    text = str(run)
    if text.startswith((artifacts.PRETRAINED, artifacts.PRETRAINED_POLICY)):
        return Path(f"{stem}-{text.partition(':')[2]}{suffix}")
    return resolve(text) / f"{stem}{suffix}"


def _frames(robot: Robot, seconds: float) -> int:
    return max(1, round(seconds / robot.dt))


def _where(store: Store, episode: int, start: int, dt: float) -> str:
    return f"{run_name(store, episode)}, episode {episode} from {start * dt:.2f} s"
