# SPDX-License-Identifier: Apache-2.0
"""Lists the shipped robots with their pretrained models, and the shipped policies."""

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
    """Errors of a shipped model, from errors.json beside it.

    Attributes:
        what: Data of the measurement.
        horizon: Frames of a roll-out.
        rollouts: Number of roll-outs.
        seed: Seed of their initial states; differs from that of any training data.
        errors: Mean errors over all frames and roll-outs by name, as reported by `neurodyn evaluate`.
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
        description: Description of the robot.
        joints: Names of its joints.
        controls: Names of the driven joints.
        dt: Length of one frame [s].
        simulator: Solver of the reference simulator.
        substeps: Solver steps in one frame.
        pretrained: Its shipped models, as `pretrained:NAME`.
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
    """Return all shipped robots."""
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
    """One shipped policy.

    Attributes:
        name: `pretrained-policy:NAME`.
        task: Name of its task.
        dynamics: The only dynamics it was trained in.
    """

    name: str
    task: str
    dynamics: str


def list_policies() -> list[ListedPolicy]:
    """Return all shipped policies."""
    found = []
    for name in (f"{PRETRAINED_POLICY}{name}" for name in pretrained_policy_names()):
        record = read_plain(resolve_policy(name) / "config.yaml")
        found.append(ListedPolicy(name=name, task=record["task"], dynamics=record["dynamics"]))
    return found


def _robot_of(pretrained: str) -> str | None:
    """Return the robot of a pretrained model; None if its spec does not name one."""
    try:
        spec = read_json(resolve_run(f"pretrained:{pretrained}") / "model" / "spec.json")
    except InputError:
        return None
    state = spec.get("state")
    return state.get("robot") if isinstance(state, dict) else None
