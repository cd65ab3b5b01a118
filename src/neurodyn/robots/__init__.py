# SPDX-License-Identifier: Apache-2.0
"""Declared robots: shipped ones by name, and user-defined ones by path."""

from pathlib import Path

from neurodyn.core.config import from_dict, read_plain
from neurodyn.core.errors import InputError, choices, describe_os_error, notice, unknown
from neurodyn.core.registry import Registry, lazy
from neurodyn.robots.assets import asset_path, is_installed
from neurodyn.robots.declaration import Joint, Robot
from neurodyn.robots.sections import ContactPointSelection, Fluid, Ranges, SimulatorConfig, expand

with lazy(__name__):
    from neurodyn.robots.data import open_robot_data

__all__ = [
    "ROBOTS", "ContactPointSelection", "Fluid", "Joint", "Ranges", "Robot", "SimulatorConfig", "asset_path",
    "is_installed", "load", "locate", "names", "open_robot_data", "ships",
]  # fmt: skip

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
    robot = from_dict(expand(read_plain(path), str(path)), Robot, str(path)).located(path.resolve().parent)
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
        return path
    raise unknown("robot", str(path), names(), "the path of a declaration (YAML, TOML or JSON)")
