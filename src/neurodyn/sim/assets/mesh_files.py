# SPDX-License-Identifier: Apache-2.0
"""Mesh files of assets: where they are, and whether anything installed can read them."""

from importlib.util import find_spec
from pathlib import Path

from neurodyn.core.notices import notice
from neurodyn.robots.asset_files import find_file

_READERS = {".dae": ("trimesh", "collada"), ".msh": ()}
_PACKAGES = {"trimesh": "trimesh", "collada": "pycollada"}


class MissingMeshError(Exception):
    """A mesh cannot be loaded; the message says why."""


def find_mesh(path: Path, name: str, folders: tuple[Path, ...] = ()) -> str:
    """Return the absolute path of a mesh; package://PACKAGE/REST is looked for above the asset.

    Args:
        path: The asset.
        name: The mesh as the asset names it.
        folders: Where relative names are looked for; none for the folder of the asset.

    Raises:
        MissingMeshError: There is no such file, or nothing installed reads it.
    """
    place = find_file(path, name, folders)
    if place is None:
        raise MissingMeshError(f"mesh {name!r} does not exist")
    _require_reader(place)
    return str(place)


def leave_out(path: Path, reasons: list[str]) -> None:
    """Give notice of meshes that were left out of an asset, if there are any."""
    if reasons:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        notice(f"{path}: left out: {reasons[0]}{more}; `meshes: false` leaves all meshes out")


def _require_reader(path: Path) -> None:
    for module in _READERS.get(path.suffix.lower(), ("trimesh",)):
        if find_spec(module) is None:
            raise MissingMeshError(f"mesh {path.name!r} needs {_PACKAGES[module]}: pip install 'neurodyn[sim]'")
