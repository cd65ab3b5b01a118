# SPDX-License-Identifier: Apache-2.0
"""A task in any dynamics as a Gymnasium environment: a single world, or a vectorised batch."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from neurodyn.control.resolve import open_dynamics
from neurodyn.core.errors import InputError
from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.policy.worlds.randomisation import open_randomisation
from neurodyn.tasks import TASKS_OF_ROBOTS, Task, load
from neurodyn.tasks.views import View

Frame = tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]
"""Observations, shape [worlds, columns], rewards, terminations and truncations, shape [worlds], and `extras`."""

_SEEDS = 2**31
_PICTURES = 30
"""Maximum rendering rate [frames/s]; environments with shorter frames play slower."""


class TaskOptions(TypedDict, total=False):
    """Options of the environments of a task."""

    robot: str | Path | None
    """Name or folder of the robot, for tasks of any robot (velocity, push, lift)."""
    observe: View | None
    """Whether observations are the "state" or what a robot's "sensors" tell; by default the task's own way."""
    starts: str | Path | None
    """HDF5 store; episodes start after its windows, in models of logs."""
    randomise: Sequence[str]
    """Quantities randomised per world and episode, in the notation of `neurodyn policy train --randomise`."""
    noisy: bool | None
    """Whether to add the task's errors to observations; by default if policies see sensors."""
    penalty: float
    """Weight of a learned model's uncertainty in the reward."""
    device: str
    """Device: cpu, cuda, cuda:1 ..."""
    render_mode: str | None
    """"rgb_array", which needs Newton; by default no pictures."""
    width: int
    """Width of pictures [pixels], by default 480."""
    height: int
    """Height of pictures [pixels], by default 320."""


class _TaskWorlds:
    """Worlds of a task in its dynamics, rebuilt for each seed, and pictures of them."""

    def __init__(
        self,
        task: str | None,
        dynamics: str | Path,
        *,
        count: int = 1,
        frames: int | None = None,
        robot: str | Path | None = None,
        observe: View | None = None,
        starts: str | Path | None = None,
        randomise: Sequence[str] = (),
        noisy: bool | None = None,
        penalty: float = 0.0,
        device: str = "cpu",
        render_mode: str | None = None,
        width: int = 480,
        height: int = 320,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise InputError(f"render_mode is {render_mode!r}; valid: rgb_array, or None")
        self.task = _task(task, robot).observing(observe)
        where = open_dynamics(
            self.task, str(dynamics), device=device, starts=None if starts is None else str(starts), drawn=True
        )
        self._robots = open_randomisation(tuple(randomise), where.dynamics, self.task)
        self._where = replace(where, dynamics=self._robots.dynamics)
        self._noisy, self._penalty, self._frames, self._count = noisy, penalty, frames, count
        self.render_mode, self._size, self._viewer = render_mode, (width, height), None
        self._running: PolicyEnvironment | None = None
        limit = float(self.task.limit)
        self.actions = Box(-limit, limit, (len(self.task.actions),), np.float32)
        self.observations = Box(-np.inf, np.inf, (len(self.task.observations),), np.float32)

    @property
    def running(self) -> PolicyEnvironment:
        if self._running is None:
            raise gymnasium.error.ResetNeeded("no episode has begun; call reset() first")
        return self._running

    def reset(self, seed: int | None, random: Any, *, fresh: bool = False) -> Tensor:
        """Return first observations, of new worlds for a seed; worlds that are `fresh` do not start again."""
        if seed is not None or self._running is None:
            where, robots = self._where, self._robots
            seed = int(random().integers(_SEEDS)) if seed is None else seed
            self._running = PolicyEnvironment(
                self.task, where.dynamics, where.starts(self.task, seed), self._count, seed=seed, penalty=self._penalty,
                draws=robots.draws, disturbed=robots.disturbed, noisy=self._noisy, frames=self._frames, shows_last=True,
                logged=False, environment=robots.surroundings(self.task, self._count, seed),
            )  # fmt: skip
        elif not fresh:
            self._running.restart()
        return self._running.seen

    def pictures(self) -> tuple[np.ndarray, ...] | None:
        """Return an image of each world, uint8, shape [height, width, 3]; None without a `render_mode`."""
        if self.render_mode is None:
            return None
        if self._viewer is None:
            from neurodyn.sim.pictures import Viewfinder

            around = self.running.environment
            ground = None if around is None else around.ground
            self._viewer = Viewfinder(self.task.declaration(), *self._size, ground=ground)
        return tuple(self._viewer.picture(q) for q in self.running.state.q)

    def close(self) -> None:
        self._running = self._viewer = None


def _require_known(options: dict[str, Any] | None, valid: str) -> None:
    if options:
        raise InputError(
            f"reset: option {next(iter(options))!r} is unknown; valid: {valid}, starts come from the task or `starts`"
        )


def _task(name: str | None, robot: str | Path | None) -> Task:
    if name is None:
        raise InputError("task: none; valid: task=NAME, NAME@ROBOT, or FILE.py:CLASS for one of your own")
    if robot is None:
        return load(name)
    if name not in TASKS_OF_ROBOTS:
        raise InputError(
            f"robot {str(robot)!r}: task {name!r} has a robot of its own; valid: a robot for "
            f"{', '.join(TASKS_OF_ROBOTS)}"
        )
    return load(f"{name}@{robot}")


class TaskEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """A single-world environment. Observations and actions are float32; actions are within +-1 or the task's limit.

    An episode is truncated after the task's number of frames, and terminated when the robot or the model fails.
    `info["is_success"]` says whether the task has succeeded, for tasks with success.

    Attributes:
        task: The task.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": _PICTURES}  # noqa: RUF012 - as declared by Gymnasium

    def __init__(
        self, task: str | None = None, dynamics: str | Path = "analytic", **options: Unpack[TaskOptions]
    ) -> None:
        """Open task and dynamics.

        Args:
            task: Name of the task, NAME@ROBOT, or FILE.py:CLASS for one of your own, whose code runs.
            dynamics: "analytic", "hybrid", a run directory, or "pretrained:NAME".
            **options: See `TaskOptions`.

        Raises:
            InputError: The task or the dynamics do not exist, or do not fit together.
        """
        self._worlds = _TaskWorlds(task, dynamics, **options)
        self.task, self.render_mode = self._worlds.task, self._worlds.render_mode
        self.observation_space, self.action_space = self._worlds.observations, self._worlds.actions
        self._fresh = False  # whether the worlds have restarted since the last step

    @property
    def worlds(self) -> PolicyEnvironment:
        """The world as a batch of one: tensors, and steps with gradients (`step_tracked`, `settle`)."""
        return self._worlds.running

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Start an episode; a seed fixes this episode and those that follow.

        Raises:
            InputError: `options` name something, which no environment here understands.
        """
        super().reset(seed=seed)
        _require_known(options, "none")
        seen = self._worlds.reset(seed, lambda: self.np_random, fresh=self._fresh)
        self._fresh = False  # so that the next call draws another start, with or without a step before
        return _copy(seen[0]), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Advance one frame."""
        seen, reward, terminated, truncated, extras = _step(self.worlds, _tensor(action)[None])
        self._fresh = bool(terminated | truncated)
        succeeded = extras["succeeded"] if self._fresh else self.task.succeeded(self.worlds.now, self.worlds.memory)
        seen = extras["last"] if self._fresh else seen
        info = {} if succeeded is None else {"is_success": bool(succeeded)}
        return _copy(seen[0]), float(reward), bool(terminated), bool(truncated), info

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return an image of the current state, uint8, shape [height, width, 3]; None without a `render_mode`."""
        pictures = self._worlds.pictures()
        return None if pictures is None else pictures[0]

    def close(self) -> None:
        """Release the world."""
        self._worlds.close()


class VectorTaskEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """A batch of worlds, stepped together in one process.

    When an episode ends, its world restarts as `autoreset_mode` says:

    - "SameStep": in that step. The observation is then the first of the next episode, and the last one is the row of
      `infos["final_obs"]`, where `infos["_final_obs"]` is true; `infos["final_info"]` has `is_success`.
    - "NextStep": in the next step, which ignores the world's action, rewards nothing and returns the first observation.
    - "Disabled": at `reset(options={"reset_mask": mask})`, which has to come before the next step.

    Attributes:
        task: The task.
    """

    metadata: dict[str, Any] = {**TaskEnv.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - as declared by Gymnasium

    def __init__(
        self,
        num_envs: int = 1,
        task: str | None = None,
        dynamics: str | Path = "analytic",
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        **options: Unpack[TaskOptions],
    ) -> None:
        """Open task and dynamics.

        Args:
            num_envs: Number of worlds.
            task: Task, see `TaskEnv`.
            dynamics: Dynamics, see `TaskEnv`.
            max_episode_steps: Length of an episode; None for the task's.
            autoreset_mode: When worlds restart.
            **options: See `TaskOptions`.

        Raises:
            InputError: As for `TaskEnv`, or the mode is unknown.
        """
        modes = {mode.value: mode for mode in AutoresetMode}
        mode = autoreset_mode.value if isinstance(autoreset_mode, AutoresetMode) else autoreset_mode
        if mode not in modes:
            raise InputError(f"autoreset_mode is {mode!r}; valid: {', '.join(modes)}")
        self.metadata = {**self.metadata, "autoreset_mode": modes[mode]}
        self._mode = modes[mode]
        self._worlds = _TaskWorlds(task, dynamics, count=num_envs, frames=max_episode_steps, **options)
        self.task, self.num_envs, self.render_mode = self._worlds.task, num_envs, self._worlds.render_mode
        self.single_observation_space, self.single_action_space = self._worlds.observations, self._worlds.actions
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._over = np.zeros(num_envs, bool)
        """Worlds whose episode has ended, and that have not restarted for their user."""
        self._final = np.zeros((num_envs, len(self.task.observations)), np.float32)
        """Last observations of those episodes."""

    @property
    def worlds(self) -> PolicyEnvironment:
        """The worlds (rsl_rl's VecEnv): states, quantities, and steps with gradients (`step_tracked`, `settle`)."""
        return self._worlds.running

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Start all worlds, or those of the option "reset_mask", shape [worlds], bool; a seed fixes all episodes.

        Raises:
            InputError: An option is unknown, or a seed is given for some of the worlds.
        """
        super().reset(seed=seed)
        others = dict(options or {})
        mask = others.pop("reset_mask", None)
        _require_known(others, "reset_mask")
        if mask is None or (seed is not None and self._mask(mask).all()):
            self._over = np.zeros(self.num_envs, bool)
            return _copy(self._worlds.reset(seed, lambda: self.np_random)), {}
        if seed is not None:
            raise InputError("reset: a seed is that of all worlds; valid: without reset_mask, or without a seed")
        return self._restart(self._mask(mask)), {}

    def _mask(self, mask: Any) -> np.ndarray:
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise InputError(f"reset: reset_mask is {mask!r}; valid: a NumPy array of bool, shape [{self.num_envs}]")
        return mask

    def _restart(self, which: np.ndarray) -> np.ndarray:
        """Restart worlds; return the observations of all."""
        seen = _copy(self.worlds.restart(torch.from_numpy(which).to(self.worlds.device)))
        self._over = self._over & ~which
        seen[self._over] = self._final[self._over]
        return seen

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Advance one frame, and restart worlds as the mode says.

        Raises:
            ResetNeeded: No episode has begun, or one has ended in the mode "Disabled".
        """
        worlds, waiting = self.worlds, self._over
        if self._mode is AutoresetMode.DISABLED and waiting.any():
            raise gymnasium.error.ResetNeeded(
                f"the episode of world {waiting.argmax()} has ended; call reset(options={{'reset_mask': ...}}) first"
            )
        frame = worlds.step_frame(_tensor(actions).to(worlds.device))
        seen, reward = _copy(frame.observation), _array(frame.reward)
        ends, late, infos = _array(frame.done), _array(frame.extras["time_outs"]), dict[str, Any]()
        if waiting.any():  # they moved by a frame, from a start that nobody has seen
            seen, reward = self._restart(waiting), np.where(waiting, np.float32(0), reward)
            ends, late = ends & ~waiting, late & ~waiting
        if ends.any():
            last, succeeded = _copy(frame.extras["last"]), frame.extras["succeeded"]
            info = {} if succeeded is None else {"is_success": _array(succeeded) & ends, "_is_success": ends}
            if self._mode is AutoresetMode.SAME_STEP:
                infos = {"final_obs": last, "_final_obs": ends}
                infos |= {"final_info": info, "_final_info": ends} if info else {}
            else:
                infos, self._over, self._final = info, ends, last
                seen[ends] = last[ends]
        return seen, reward, ends & ~late, late, infos

    def step_tensors(self, actions: Tensor) -> Frame:
        """Advance one frame on the device, in torch; in every mode, worlds restart in the frame that ends an episode.

        Args:
            actions: Actions, shape [worlds, actions].

        Returns:
            Observations, rewards, terminations, truncations and the environment's `extras`, which have "last"
            (observations before restarts) and "succeeded" in frames where an episode ends.
        """
        return _step(self.worlds, actions)

    def step_with_gradients(self, actions: Tensor) -> Frame:
        """Advance one frame with gradients of observations and rewards with respect to current and past actions.

        Gradients do not cross the end of an episode. `worlds.cut()` stops them at the current state.

        Args:
            actions: Actions within the task's limit, shape [worlds, actions].
        """
        frame = self.worlds.step_tracked(actions)
        late = frame.done & ~frame.end.failed
        return frame.observation, self.worlds.settle([frame])[0], frame.end.failed, late, {"last": frame.last}

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Return an image of each world, uint8, shape [height, width, 3]; None without a `render_mode`."""
        return self._worlds.pictures()

    def close_extras(self, **kwargs: Any) -> None:
        """Release the worlds."""
        self._worlds.close()


def _step(worlds: PolicyEnvironment, actions: Tensor) -> Frame:
    frame = worlds.step_frame(actions.to(worlds.device))
    late = frame.extras["time_outs"]
    return frame.observation, frame.reward, frame.done & ~late, late, frame.extras


def _tensor(values: np.ndarray) -> Tensor:
    ready = isinstance(values, np.ndarray) and values.dtype == np.float32 and values.flags.carray
    return torch.from_numpy(values if ready else np.require(values, np.float32, ("C", "A", "W")))


def _array(values: Tensor) -> np.ndarray:
    return values.numpy() if values.device.type == "cpu" else values.cpu().numpy()


def _copy(values: Tensor) -> np.ndarray:
    """Return a copy, because the worlds reuse their memory."""
    return _array(values).copy() if values.device.type == "cpu" else _array(values)
