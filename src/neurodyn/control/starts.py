# SPDX-License-Identifier: Apache-2.0
"""Starts of episodes: states, pieces of a terrain, and heights above the ground.

On uneven ground, a task measures heights from the ground below the base.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor

from neurodyn.core.description.scene import Scene, Terrain
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed
from neurodyn.data.header import Split
from neurodyn.data.mixture import Mixture, MixtureSampler
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import Environment, State, Window, present_state
from neurodyn.dynamics.quantities import Quantities
from neurodyn.evaluate.named_scenarios import scenario
from neurodyn.geometry.ground import Ground
from neurodyn.robots.plausible import PlausibleBounds, declared_bounds
from neurodyn.tasks import Task

_TRIES = 100
"""Most draws in the search for usable starts."""


class Starts(Protocol):
    """A distribution of start states."""

    def draw(self, count: int) -> State | Window:
        """Draw `count` starts, always of the same type."""
        ...

    def state(self) -> dict[str, Any]:
        """Return the state of the random generators; empty if the distribution cannot be resumed."""
        return {}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore the state that `state` returned."""


class SampledStarts(Starts):
    """States drawn by the task. A model with memory starts with an empty one."""

    def __init__(
        self, task: Task, seed: int, *, device: str | torch.device = "cpu", bounds: PlausibleBounds | None = None
    ) -> None:
        """Seed the generators.

        Args:
            task: The task.
            seed: Seed of the draws.
            device: Device of the states.
            bounds: States outside of these bounds are drawn again (`control.task_frames.episode_bounds`); None for the
                bounds of the task's robot.
        """
        self._task, self._device = task, torch.device(device)
        self._bounds = declared_bounds(task.declaration()) if bounds is None else bounds
        # On the CPU, so that all devices see the same starts. Replacements have a separate generator, so that dynamics
        # with narrower bounds still see the same other starts.
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "starts", task.name))
        self._spare = torch.Generator().manual_seed(derive_seed(seed, "spare starts", task.name))

    def draw(self, count: int) -> State:
        """Draw `count` states; errors: see `plausible_starts`."""
        return plausible_starts(self._task, count, self._bounds, self._generator, self._spare).to(self._device)

    def state(self) -> dict[str, Any]:
        """Return the state of the random generators."""
        return {"drawn": self._generator.get_state(), "spare": self._spare.get_state()}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore the state that `state` returned."""
        self._generator.set_state(saved["drawn"])
        self._spare.set_state(saved["spare"])


class OneStart(Starts):
    """One fixed start state."""

    def __init__(self, state: State) -> None:
        """Set the state, of one world."""
        self._state = state

    def draw(self, count: int) -> State:
        """Return the state `count` times."""
        return self._state.rows(torch.zeros(count, dtype=torch.long))


def plausible_starts(
    task: Task, count: int, bounds: PlausibleBounds, generator: torch.Generator, spare: torch.Generator
) -> State:
    """Draw starts of a task within bounds; states outside of the bounds are drawn again with `spare`.

    Raises:
        InputError: Nearly all states that the task draws are outside of the bounds.
    """
    state = task.start(count, generator)
    for _ in range(_TRIES):
        again = bounds.outside(state.q, state.qd)
        if not bool(again.any()):
            return state
        state = task.start(count, spare).where(again, state)
    name, value = bounds.furthest(state.q, state.qd)
    raise InputError(
        f"starts: nearly all states that task {task.name!r} draws are outside of the robot's range or of the model's "
        f"training data ({name} is {value:.3g}); valid: starts within both"
    )


class LoggedStarts(Starts):
    """Starts at the end of windows of a log, with the window as the model's history.

    Windows are skipped if the logged episode failed in their last state, or if an episode of the task would end there.
    """

    def __init__(
        self,
        log: Store | Mixture,
        frames: int,
        seed: int,
        *,
        split: int = Split.TRAIN,
        device: str | torch.device = "cpu",
        ended: Callable[[State, Tensor | None], Tensor] | None = None,
    ) -> None:
        """Prepare the sampler.

        Args:
            log: One log, or several with shares.
            frames: Length of a window, the full warm-up of the model.
            seed: Seed of the draws.
            split: Split of the log to draw from; training by default.
            device: Device of the windows.
            ended: Returns in which states an episode would end at once, shape [rows], from states and whether each
                contact of the spec is closed. None to accept all states.

        Raises:
            InputError: No episode of the split is longer than a window.
        """
        self._ended = ended
        seed = derive_seed(seed, "starts", "log")
        self._sampler = MixtureSampler(Mixture.of(log), frames, split=split, batch=1, seed=seed, device=device)

    def draw(self, count: int) -> Window:
        """Draw `count` windows.

        Raises:
            InputError: Nearly all windows of the log end in states where an episode would end.
        """
        parts: list[Window] = []
        missing = count
        for _ in range(_TRIES):
            self._sampler.batch = missing
            batch = self._sampler.draw_together()
            window = Window(batch.q, batch.qd, batch.control, batch.channels)
            bad = torch.zeros(missing, dtype=torch.bool, device=batch.q.device)
            if batch.failed is not None:
                bad |= batch.failed[:, -1]
            if self._ended is not None:
                bad |= self._ended(window.present, None if batch.contacts is None else batch.contacts[:, -1])
            if bool(bad.any()):
                window = window.rows((~bad).nonzero()[:, 0])
            parts.append(window)
            missing -= len(window.q)
            if not missing:
                return Window.concatenate(parts)
        raise InputError(
            "starts: nearly all windows of the log end where an episode of the task does; give --starts another log"
        )

    def state(self) -> dict[str, Any]:
        """Return the state of the sampler."""
        return self._sampler.state_dict()

    def load(self, saved: dict[str, Any]) -> None:
        """Restore the state that `state` returned."""
        self._sampler.load_state_dict(saved)


class MixedStarts(Starts):
    """A mixture of two distributions, such as states of the task and states of logs."""

    def __init__(self, first: Starts, second: Starts, share: float, seed: int) -> None:
        """Prepare the mixture.

        Args:
            first: The first distribution.
            second: The second distribution. Only the last state of a window is used.
            share: Share of the first distribution, between 0 and 1.
            seed: Seed of the random rounding.
        """
        self._first, self._second, self._share = first, second, share
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "mixed starts"))

    def draw(self, count: int) -> State:
        """Draw `count` states; the number from the first distribution is rounded at random."""
        ours = int(count * self._share + float(torch.rand((), generator=self._generator)))
        parts = [
            present_state(source.draw(number))
            for source, number in ((self._first, ours), (self._second, count - ours))
            if number
        ]
        return State(torch.cat([part.q for part in parts]), torch.cat([part.qd for part in parts]))

    def state(self) -> dict[str, Any]:
        """Return the state of both distributions and of the rounding."""
        return {"first": self._first.state(), "second": self._second.state(), "shares": self._generator.get_state()}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore the state that `state` returned."""
        self._first.load(saved["first"])
        self._second.load(saved["second"])
        self._generator.set_state(saved["shares"])


def widen_rows(context: State | Window, rows: Tensor, worlds: int) -> State | Window:
    """Return a context of `worlds` rows with `context` in the given rows and zeros in the others."""
    wide = {
        name: values.new_zeros(worlds, *values.shape[1:]).index_copy(0, rows, values)
        for name, values in vars(context).items()
        if values is not None
    }
    return replace(context, **wide)


SIZE = (104.0, 40.0)
"""Least edges of a terrain along x and y [m], so that no episode leaves it: an ant runs 42 m along x, ANYmal walks 17 m
along either. The simulator stores a terrain once per world."""
_SHIFT = torch.tensor([9.0, 2.0])
"""Distance of episode starts from the middle of a terrain, along x and y [m]."""
_REACH, _PLACES = 0.8, 9
"""Range of ground measurements around the middle of a robot [m], and number of points along x and y."""


def home_ground(task: Task) -> Environment:
    """Return the default ground of a task's robot."""
    scene = task.declaration().named_ground()
    return Environment() if scene is None else Environment(ground=Ground(scene))


def task_ground(task: Task, name: str, worlds: int, seed: int) -> Environment:
    """Return a ground on which a task's episodes can start, with a separate piece for each world.

    Terrains are regenerated with edges of at least `SIZE`. The ground lies below the robot at its start.

    Args:
        task: The task.
        name: Name of one of the robot's grounds, or a file with a scene.
        worlds: Number of worlds.
        seed: Seed of the pieces.

    Raises:
        InputError: There is no such ground.
    """
    scene = _widen(scenario(task.declaration(), name, words=()).scene or Scene())
    pose = torch.zeros(worlds, 7)
    pose[:, 6] = 1.0
    if any(isinstance(shape, Terrain) for shape in scene.shapes):
        generator = torch.Generator().manual_seed(derive_seed(seed, "grounds", task.name))
        pose[:, :2] = _SHIFT * (2 * torch.rand(worlds, 2, generator=generator) - 1)
    ground = Ground(scene, pose)
    return Environment(ground=ground.at_pose(lower_below_starts(ground)))


def heights_above(quantities: Quantities, ground: Ground) -> Quantities:
    """Return quantities with the base position's height relative to the ground below the base, not to zero."""
    from neurodyn.sim.sampling import ground_height

    def height(_: Quantities) -> Tensor:
        position = quantities["base_position"]
        return (position[:, 2] - ground_height(ground, position[:, :2].cpu()).to(position))[:, None]

    def raise_base(above: Quantities) -> Tensor:
        return torch.cat([quantities["base_position"][:, :2], above["base_height"]], 1)

    return quantities.replacing({"base_height": height, "base_position": raise_base})


def _widen(scene: Scene) -> Scene:
    shapes = tuple(
        msgspec.structs.replace(shape, size=(max(SIZE[0], shape.size[0]), max(SIZE[1], shape.size[1])))
        if isinstance(shape, Terrain)
        else shape
        for shape in scene.shapes
    )
    return msgspec.structs.replace(scene, shapes=shapes)


def lower_below_starts(ground: Ground) -> Tensor:
    """Return the poses of a ground at which it is at most 0 around the robot's start, shape [worlds, 7]."""
    from neurodyn.sim.sampling import ground_height

    assert ground.pose is not None
    along = torch.linspace(-_REACH, _REACH, _PLACES)
    places = torch.cartesian_prod(along, along)
    spread = ground.at_pose(ground.pose.repeat_interleave(len(places), 0))
    heights = ground_height(spread, places.repeat(len(ground.pose), 1))
    highest = heights.view(len(ground.pose), -1).amax(1)
    return torch.cat([ground.pose[:, :2], ground.pose[:, 2:3] - highest[:, None], ground.pose[:, 3:]], 1)
