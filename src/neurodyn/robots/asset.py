# SPDX-License-Identifier: Apache-2.0
"""Path of a declared robot's asset, and the error where it is missing."""

import importlib.metadata
import importlib.util
from pathlib import Path

from neurodyn.core.errors import InputError
from neurodyn.robots.declaration import Robot

_EXTRAS = {"example-robot-data": "robots", "newton": "sim"}


def package_folder(package: str) -> Path | None:
    """Return the folder of robots that a package installs, or None where the package is not installed."""
    if package == "newton":
        return _newton_assets()
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    marker = f"share/{package}/robots/"
    for file in files:
        text = str(file)
        if marker in text:
            return Path(str(file.locate())).parents[len(text.split(marker, 1)[1].split("/")) - 1]
    return None


def _newton_assets() -> Path | None:
    try:
        spec = importlib.util.find_spec("newton")  # looks it up without importing it
    except (ImportError, ValueError):  # a broken or hidden installation
        return None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        return Path(folder) / "examples" / "assets"
    return None


def is_installed(robot: Robot) -> bool:
    """Say whether the package that holds the robot's asset, if any, is installed."""
    return robot.package is None or package_folder(robot.package) is not None


def asset_path(robot: Robot) -> Path:
    """Return the path of the robot's asset.

    Raises:
        InputError: The asset is missing, or the package that holds it is not installed.
    """
    if not robot.asset:
        raise InputError(
            f"robot {robot.name!r} has no asset, so that it cannot be simulated; valid: models of its logs, or a "
            "declaration of your own with an asset"
        )
    folder = Path(robot.folder)
    if robot.package is not None:
        installed = package_folder(robot.package)
        if installed is None:
            raise InputError(
                f"robot {robot.name!r} needs the package {robot.package}, which is not installed; "
                f"install it with: pip install 'neurodyn[{_EXTRAS[robot.package]}]'"
            )
        folder = installed
    path = folder / robot.asset
    if not path.is_file():
        raise InputError(f"robot {robot.name!r}: asset {path} does not exist; give its path relative to {folder}")
    return path
