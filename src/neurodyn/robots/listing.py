# SPDX-License-Identifier: Apache-2.0
"""What there is: the robots that ship with the package, and the models that are pretrained for each."""

from neurodyn.core.artifacts import (
    PRETRAINED_POLICY,
    pretrained_names,
    pretrained_policy_names,
    read_json,
    resolve_policy,
    resolve_run,
)
from neurodyn.core.config import Config, read_config, read_plain
from neurodyn.core.errors import InputError
from neurodyn.robots import is_installed, load, names


class ShippedErrors(Config, frozen=True):
    """Errors of a shipped model: errors.json beside it.

    Attributes:
        what: Data of the measurement.
        horizon: Frames of a roll-out.
        rollouts: Number of roll-outs.
        seed: Seed of their initial states; not that of any training data.
        errors: Mean errors over all frames and roll-outs by name, as `neurodyn evaluate` reports them.
    """

    what: str
    horizon: int
    rollouts: int
    seed: int
    errors: dict[str, float]


class ListedRobot(Config, frozen=True, rename={"simulator": "teacher"}):
    """One robot of the list.

    Attributes:
        name: Name of the robot.
        description: What it is.
        joints: Names of its joints.
        controls: Names of the driven joints.
        dt: Length of one frame [s].
        simulator: Solver of the reference simulator.
        substeps: Solver steps in one frame.
        pretrained: Models of it that ship with the package, as `pretrained:NAME`.
        installed: Whether the package with its asset is installed.
        measured: Errors of the pretrained models, by `pretrained:NAME`.
    """

    name: str
    description: str
    joints: tuple[str, ...]
    controls: tuple[str, ...]
    dt: float
    simulator: str
    substeps: int
    pretrained: tuple[str, ...]
    installed: bool
    measured: dict[str, ShippedErrors]


def list_robots() -> list[ListedRobot]:
    """Return all robots that ship with the package."""
    models = {f"pretrained:{name}": _robot_of(name) for name in pretrained_names()}
    listings = []
    for name in names():
        robot, own = load(name), [model for model, of in models.items() if of == name]
        listings.append(
            ListedRobot(
                name=name,
                description=robot.description,
                joints=tuple(joint.name for joint in robot.joints),
                controls=tuple(robot.actuated),
                dt=robot.dt,
                simulator=robot.simulator.solver,
                substeps=robot.simulator.substeps,
                pretrained=tuple(own),
                installed=is_installed(robot),
                measured={model: read_config(resolve_run(model) / "errors.json", ShippedErrors) for model in own},
            )
        )
    return listings


class ListedPolicy(Config, frozen=True):
    """One policy that ships with the package.

    Attributes:
        name: As it is called, `pretrained-policy:NAME`.
        task: Name of its task.
        dynamics: What it was trained in, and in nothing else.
    """

    name: str
    task: str
    dynamics: str


def list_policies() -> list[ListedPolicy]:
    """Return all policies that ship with the package."""
    found = []
    for name in (f"{PRETRAINED_POLICY}{name}" for name in pretrained_policy_names()):
        record = read_plain(resolve_policy(name) / "config.yaml")
        found.append(ListedPolicy(name=name, task=record["task"], dynamics=record["dynamics"]))
    return found


def _robot_of(pretrained: str) -> str | None:
    """Return the name of the robot of a pretrained model; None where its spec does not say."""
    try:
        spec = read_json(resolve_run(f"pretrained:{pretrained}") / "model" / "spec.json")
    except InputError:
        return None
    state = spec.get("state")
    return state.get("robot") if isinstance(state, dict) else None
