# SPDX-License-Identifier: Apache-2.0
"""Reads the XML files of assets and finds their meshes."""

from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from neurodyn.core.errors import InputError, notice
from neurodyn.core.plain_data import require_regular
from neurodyn.robots.assets import find_file

_READERS = {".dae": ("trimesh", "collada"), ".msh": ()}
_PACKAGES = {"trimesh": "trimesh", "collada": "pycollada"}


class MissingMeshError(Exception):
    """A mesh cannot be loaded; the message says why."""


def find_mesh(path: Path, name: str, folders: tuple[Path, ...] = ()) -> str:
    """Return the absolute path of a mesh; arguments: see `find_file`.

    Raises:
        MissingMeshError: There is no such file, or no installed package reads it.
    """
    file = find_file(path, name, folders)
    if file is None:
        raise MissingMeshError(f"mesh {name!r} does not exist")
    for module in _READERS.get(file.suffix.lower(), ("trimesh",)):
        if find_spec(module) is None:
            raise MissingMeshError(f"mesh {file.name!r} needs {_PACKAGES[module]}: pip install 'neurodyn[mujoco]'")
    return str(file)


def leave_out(path: Path, reasons: list[str]) -> None:
    """Give notice of meshes that were left out of an asset, if any."""
    if reasons:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        # The name alone: the same file is also read as a copy in another folder.
        notice(f"{path.name}: left out: {reasons[0]}{more}; `meshes: false` leaves all meshes out")


def parse_xml(path: Path, tag: str, what: str) -> ElementTree.Element:
    """Parse an XML file; refuse one that cannot be read, is not XML, or has a root other than `tag`."""
    require_regular(path, what)
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError, ValueError, LookupError) as error:  # ValueError, LookupError: encodings
        raise InputError(f"{path}: not readable as {what} ({error})") from None
    if root.tag != tag:
        raise InputError(f"{path}: not a {what}: its root is <{root.tag}>; valid: <{tag}>")
    return root
