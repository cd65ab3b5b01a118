# SPDX-License-Identifier: Apache-2.0
"""Robots by name or path, and lists of the shipped robots, with their pretrained models, and policies."""

from pathlib import Path

from neurodyn.core.artifacts import (
    PRETRAINED,
    PRETRAINED_POLICY,
    pretrained_names,
    pretrained_policy_names,
    read_json,
    resolve_policy,
    resolve_run,
)
from neurodyn.core.config import Config, from_dict, read_config, read_plain, read_record
from neurodyn.core.errors import InputError, choices, describe_os_error, notice, unknown
from neurodyn.core.registry import Registry
from neurodyn.robots.assets import asset_path, is_installed, missing_asset
from neurodyn.robots.declaration import ASSET_SUFFIXES, Robot
from neurodyn.robots.sections import expand

_ROOT = Path(__file__).resolve().parent
_FILES = ("robot.yaml", "robot.yml", "robot.toml", "robot.json")

ROBOTS: Registry[Path] = Registry("robot")
"""Declarations of the robots known by name: one folder each in this package, and those of plug-ins."""

for _path in sorted(_ROOT.glob("*/robot.yaml")):
    ROBOTS.add(_path.parent.name.replace("_", "-"), _path)


def names() -> list[str]:
    """Return the names of the known robots."""
    return sorted(ROBOTS)


def locate(robot: Robot | str | Path) -> str:
    """Return a reference to a robot that works from any folder: its name, or the absolute path of its declaration."""
    if isinstance(robot, Robot):
        return robot.name if ships(robot) else str(Path(robot.folder).resolve())
    text = str(robot)
    return text if _is_name(robot) or not Path(text).exists() else str(Path(text).resolve())


def _is_name(robot: str | Path) -> bool:
    """Return whether this is the name of a known robot; a `Path` that exists is a path."""
    return str(robot) in ROBOTS and not (isinstance(robot, Path) and robot.exists())


def ships(robot: Robot) -> bool:
    """Return whether a robot is part of the package, so that it is known by name on every machine."""
    return _ROOT in Path(robot.folder).resolve().parents


def load(name_or_path: str | Path) -> Robot:
    """Read a robot by name, or by the path of a declaration or its folder.

    Raises:
        InputError: There is no such robot, or its declaration is invalid.
    """
    text, named = str(name_or_path), _is_name(name_or_path)
    if named and any((Path(text) / file).is_file() for file in _FILES):
        notice(f"robot {text!r} is the one that ships with neurodyn, not the folder {text} here; "
               f"write ./{text} for that")  # fmt: skip
    try:
        path = ROBOTS[text] if named else _declaration(Path(text))
    except (OSError, ValueError) as error:  # not a possible path
        raise InputError(f"robot {text[:80]!r}: {describe_os_error(error)}; valid: {choices(names())}") from None
    robot = from_dict(expand(read_plain(path), str(path)), Robot, str(path)).locate(path.resolve().parent)
    if robot.package is None and robot.asset:
        asset_path(robot)
    return robot


def _declaration(path: Path) -> Path:
    if path.is_dir():
        for file in _FILES:
            if (path / file).is_file():
                return path / file
        raise InputError(f"{path}: holds no robot; expected one of {', '.join(_FILES)} in it")
    if path.is_file():
        if path.suffix.lower() in ASSET_SUFFIXES:
            raise InputError(f"{path}: is an asset, no declaration; `neurodyn init {path}` writes one")
        return path
    raise unknown("robot", str(path), names(), "the path of a declaration (YAML, TOML or JSON)")


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
    extra: str  # the extra that installs it, if it is not
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
                extra=missing_asset(robot),
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
    policies = []
    for name in (f"{PRETRAINED_POLICY}{name}" for name in pretrained_policy_names()):
        record = read_record(resolve_policy(name) / "config.yaml")
        where = record["dynamics"]
        caveat = _caveat_of(where) if where.startswith(PRETRAINED) else ""
        policies.append(ListedPolicy(name=name, task=record["task"], dynamics=where, caveat=caveat))
    return policies


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
