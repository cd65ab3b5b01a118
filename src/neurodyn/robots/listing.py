# SPDX-License-Identifier: Apache-2.0
"""What there is: the robots that ship with the package, and the models that are pretrained for each."""

from neurodyn.core.artifacts import pretrained_names, read_json, resolve_run
from neurodyn.core.config import Config
from neurodyn.core.errors import InputError
from neurodyn.robots import is_installed, load, names


class Listing(Config, frozen=True):
    """One robot of the list.

    Attributes:
        name: Name of the robot.
        description: What it is.
        joints: Names of its joints.
        controls: Names of the driven joints.
        dt: Length of one frame [s].
        teacher: Solver that teaches.
        substeps: Solver steps in one frame.
        pretrained: Models of it that ship with the package, as `pretrained:NAME`.
        installed: Whether the package with its asset is installed.
    """

    name: str
    description: str
    joints: tuple[str, ...]
    controls: tuple[str, ...]
    dt: float
    teacher: str
    substeps: int
    pretrained: tuple[str, ...]
    installed: bool


def list_robots() -> list[Listing]:
    """Return all robots that ship with the package."""
    models = {f"pretrained:{name}": _robot_of(name) for name in pretrained_names()}
    found = []
    for name in names():
        robot = load(name)
        found.append(
            Listing(
                name=name,
                description=robot.description,
                joints=tuple(joint.name for joint in robot.joints),
                controls=tuple(robot.actuated),
                dt=robot.dt,
                teacher=robot.teacher.solver,
                substeps=robot.teacher.substeps,
                pretrained=tuple(model for model, of in models.items() if of == name),
                installed=is_installed(robot),
            )
        )
    return found


def _robot_of(pretrained: str) -> str | None:
    """Return the name of the robot of a pretrained model; None where its spec does not say."""
    try:
        spec = read_json(resolve_run(f"pretrained:{pretrained}") / "model" / "spec.json")
    except InputError:
        return None
    state = spec.get("state")
    return state.get("robot") if isinstance(state, dict) else None
