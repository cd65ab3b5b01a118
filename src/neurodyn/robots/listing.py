# SPDX-License-Identifier: Apache-2.0
"""Lists the shipped robots with their pretrained models, and the shipped policies."""

from neurodyn.core.artifacts import (
    PRETRAINED,
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
    """Errors of a shipped model over roll-outs, from errors.json beside it."""

    what: str  # data of the measurement
    horizon: int  # frames of a roll-out
    rollouts: int
    seed: int  # of the initial states; differs from that of any training data
    errors: dict[str, float]  # means over all frames and roll-outs, as reported by `neurodyn evaluate`


class ListedRobot(Config, frozen=True, rename={"simulator": "teacher"}):
    """One robot of the list."""

    name: str
    description: str
    joints: tuple[str, ...]  # names
    controls: tuple[str, ...]  # names of the driven joints
    dt: float  # length of one frame [s]
    simulator: str  # solver of the reference simulator
    substeps: int  # solver steps in one frame
    pretrained: tuple[str, ...]  # its shipped models, as `pretrained:NAME`
    installed: bool  # whether the package with its asset is installed
    measured: dict[str, ShippedErrors]  # errors by `pretrained:NAME`
    caveats: dict[str, str]  # what a model lacks of what its kind suggests, by `pretrained:NAME`


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
                caveats={model: text for model in own if (text := _caveat_of(model))},
            )
        )
    return listings


class ListedPolicy(Config, frozen=True):
    """One shipped policy."""

    name: str  # `pretrained-policy:NAME`
    task: str
    dynamics: str  # the only dynamics that it was trained in
    caveat: str  # that of the shipped model in which it was trained


def list_policies() -> list[ListedPolicy]:
    """Return all shipped policies."""
    found = []
    for name in (f"{PRETRAINED_POLICY}{name}" for name in pretrained_policy_names()):
        record = read_plain(resolve_policy(name) / "config.yaml")
        where = record["dynamics"]
        caveat = _caveat_of(where) if where.startswith(PRETRAINED) else ""
        found.append(ListedPolicy(name=name, task=record["task"], dynamics=where, caveat=caveat))
    return found


def _caveat_of(pretrained: str) -> str:
    """Return the caveat stored with a shipped model; see `Dynamics.caveat`."""
    return read_json(resolve_run(pretrained) / "model" / "config.json").get("caveat", "")


def _robot_of(pretrained: str) -> str | None:
    """Return the robot of a pretrained model; None if its spec does not name one."""
    try:
        spec = read_json(resolve_run(f"pretrained:{pretrained}") / "model" / "spec.json")
    except InputError:
        return None
    return spec.get("state", {}).get("robot")
