# SPDX-License-Identifier: Apache-2.0
"""Reads the XML files of assets and finds their meshes."""

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.parsers import expat

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


class XmlFile(NamedTuple):
    """A parsed XML file, and the lines in which its elements begin."""

    path: Path
    root: ElementTree.Element
    lines: dict[ElementTree.Element, int]

    def where(self, element: ElementTree.Element | None) -> str:
        """Return the file and the line of an element of it, "arm.urdf, line 7"; the file alone for others."""
        line = None if element is None else self.lines.get(element)
        return str(self.path) if line is None else f"{self.path}, line {line}"


def parse_xml(path: Path, tag: str, what: str) -> XmlFile:
    """Parse an XML file; refuse one that cannot be read, is not XML, or has a root other than `tag`."""
    require_regular(path, what)
    try:
        file = _parse(path)
    except (OSError, expat.ExpatError, ValueError, LookupError) as error:  # ValueError, LookupError: encodings
        raise InputError(f"{path}: not readable as {what} ({error})") from None
    if file.root.tag != tag:
        raise InputError(f"{path}: not a {what}: its root is <{file.root.tag}>; valid: <{tag}>")
    return file


def _parse(path: Path) -> XmlFile:
    """Parse a file as ElementTree does, which does not keep lines."""
    parser, builder = expat.ParserCreate(namespace_separator="}"), ElementTree.TreeBuilder()
    lines: dict[ElementTree.Element, int] = {}

    def named(name: str) -> str:
        return f"{{{name}" if "}" in name else name

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = builder.start(named(tag), {named(name): value for name, value in attributes.items()})
        lines[element] = parser.CurrentLineNumber

    parser.buffer_text = True
    parser.StartElementHandler, parser.CharacterDataHandler = start, builder.data
    parser.EndElementHandler = lambda tag: builder.end(named(tag))
    with path.open("rb") as file:
        parser.ParseFile(file)
    return XmlFile(path, builder.close(), lines)
