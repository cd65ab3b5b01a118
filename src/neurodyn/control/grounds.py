# SPDX-License-Identifier: Apache-2.0
"""Tasks on other grounds than the robot's default one: pieces of a terrain, and heights that count from the ground.

On a ground that is not level a task's heights are those above the ground below the base, as where the robot starts.
"""

import msgspec
import torch
from torch import Tensor

from neurodyn.core.description.scene import Scene, Terrain
from neurodyn.core.seeds import derive_seed
from neurodyn.dynamics.batch import Environment
from neurodyn.dynamics.quantities import Quantities
from neurodyn.evaluate.scenario import scenario
from neurodyn.geometry.ground import Ground
from neurodyn.tasks import Task

SIZE = (104.0, 40.0)
"""Least edges of a terrain along x and y [m], so that no episode leads over it: an ant runs 42 m along x, ANYmal walks
17 m along either. The simulator holds a terrain once for each world."""
_SHIFT = torch.tensor([9.0, 2.0])
"""How far from the middle of a terrain episodes start, along x and y [m]."""
_REACH, _PLACES = 0.8, 9
"""The ground is measured up to here from the middle of a robot [m], at so many places along x and y."""


def home_ground(task: Task) -> Environment:
    """Return the default ground of a task's robot."""
    scene = task.declaration().named_ground()
    return Environment() if scene is None else Environment(ground=Ground(scene))


def task_ground(task: Task, name: str, worlds: int, seed: int) -> Environment:
    """Return a ground on which a task's episodes can start, and of which each world has a piece of its own.

    Terrains are made anew with the edges of `SIZE` at least. The ground lies below the robot where this starts.

    Args:
        task: The task.
        name: Name of one of the robot's grounds, or a file with a scene.
        worlds: Number of worlds.
        seed: Seed of the pieces.

    Raises:
        InputError: There is no such ground.
    """
    scene = _widened(scenario(task.declaration(), name, words=()).scene or Scene())
    pose = torch.zeros(worlds, 7)
    pose[:, 6] = 1.0
    if any(isinstance(shape, Terrain) for shape in scene.shapes):
        generator = torch.Generator().manual_seed(derive_seed(seed, "grounds", task.name))
        pose[:, :2] = _SHIFT * (2 * torch.rand(worlds, 2, generator=generator) - 1)
    pose[:, 2] = -_highest(Ground(scene, pose))
    return Environment(ground=Ground(scene, pose))


def heights_above(quantities: Quantities, ground: Ground) -> Quantities:
    """Return quantities whose base position has its height above the ground below the base, instead of above zero."""
    from neurodyn.sim.sampling import ground_height

    def height(_: Quantities) -> Tensor:
        position = quantities["base_position"]
        return (position[:, 2] - ground_height(ground, position[:, :2].cpu()).to(position))[:, None]

    def raised(above: Quantities) -> Tensor:
        return torch.cat([quantities["base_position"][:, :2], above["base_height"]], 1)

    return quantities.replacing({"base_height": height, "base_position": raised})


def _widened(scene: Scene) -> Scene:
    shapes = tuple(
        msgspec.structs.replace(shape, size=(max(SIZE[0], shape.size[0]), max(SIZE[1], shape.size[1])))
        if isinstance(shape, Terrain)
        else shape
        for shape in scene.shapes
    )
    return msgspec.structs.replace(scene, shapes=shapes)


def _highest(ground: Ground) -> Tensor:
    """Return the greatest height of the ground where a robot starts, about the origin of each world [m]."""
    from neurodyn.sim.sampling import ground_height

    assert ground.pose is not None
    along = torch.linspace(-_REACH, _REACH, _PLACES)
    places = torch.cartesian_prod(along, along)
    spread = ground.posed(ground.pose.repeat_interleave(len(places), 0))
    heights = ground_height(spread, places.repeat(len(ground.pose), 1))
    return heights.view(len(ground.pose), -1).amax(1)
