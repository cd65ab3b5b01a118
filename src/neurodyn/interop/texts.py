# SPDX-License-Identifier: Apache-2.0
"""Text of exported files: XML assets, comments included, and Python files with configuration calls."""

import re
import shutil
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any
from xml.etree import ElementTree

from msgspec import UNSET

from neurodyn.core.errors import InputError
from neurodyn.interop.identified import IdentifiedRobot, number

Element = ElementTree.Element


def template(file: str, **values: object) -> str:
    """Return the text of a file of `templates`, without its licence, with each $NAME replaced by its value."""
    return Template(template_file(file).partition("\n")[2]).substitute(values)


def template_file(file: str) -> str:
    """Return the whole text of a file of `templates`."""
    return resources.files("neurodyn.interop").joinpath("templates", file).read_text(encoding="utf-8")


def read_xml(path: Path) -> Element:
    """Return an asset's tree with its comments, or raise an InputError if it cannot be read."""
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    try:
        return ElementTree.parse(path, parser).getroot()
    except (OSError, ElementTree.ParseError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); valid: the robot's asset") from None


def comments_before(path: Path) -> list[str]:
    """Return the comments before the root of an XML file, such as its licence."""
    text = path.read_text(encoding="utf-8", errors="replace")
    root = re.search(r"<[A-Za-z]", re.sub(r"<!--.*?-->", lambda match: "#" * len(match[0]), text, flags=re.DOTALL))
    return re.findall(r"<!--(.*?)-->", text[: root.start() if root else 0], flags=re.DOTALL)


def write_xml(path: Path, root: Element, heading: Iterable[str], before: Iterable[str] = ()) -> None:
    """Write an XML file after its original comments and a heading."""
    ElementTree.indent(root, "  ")
    own = "\n     ".join(map(_safe, heading))
    comments = "".join(f"<!--{text}-->\n" for text in (*before, *([f" {own} "] if own else [])))
    body = ElementTree.tostring(root, encoding="unicode")
    path.write_text(f'<?xml version="1.0"?>\n{comments}{body}\n', encoding="utf-8")


def entry(parent: Element, tag: str) -> Element:
    """Return the first child of a tag; add one if there is none."""
    known = parent.find(tag)
    return ElementTree.SubElement(parent, tag) if known is None else known


def note(parent: Element, element: Element, lines: list[str]) -> None:
    """Insert a comment before an element, unless there are no lines."""
    if lines:
        parent.insert(list(parent).index(element), ElementTree.Comment(f" {_safe('; '.join(lines))} "))


def vector(values: Iterable[float]) -> str:
    """Format numbers as the text of an attribute."""
    return " ".join(map(number, values))


def joint_of(joints: Mapping[str, Element], name: str, path: Path) -> Element:
    """Return the joint of an asset by name, or raise an InputError if the asset has none."""
    if name not in joints:
        raise InputError(f"{path}: has no joint {name!r}; valid: the asset that the model was made of")
    return joints[name]


def _safe(text: str) -> str:
    return re.sub(r"-(?=-)", "- ", text)  # two hyphens would end the comment


class Files:
    """Copies the files that an exported asset references into `folder / below`."""

    def __init__(self, folder: Path, below: str) -> None:
        self._folder, self._below = folder, below
        self._names: dict[Path, str] = {}

    def copy(self, source: Path) -> str:
        """Copy a file and return its path relative to the asset."""
        source = source.resolve()
        if source not in self._names:
            taken = {Path(name).name for name in self._names.values()}
            name = source.name if source.name not in taken else f"{zlib.crc32(str(source).encode()):08x}_{source.name}"
            (self._folder / self._below).mkdir(exist_ok=True)
            shutil.copyfile(source, self._folder / self._below / name)
            self._names[source] = f"{self._below}/{name}"
        return self._names[source]


@dataclass(frozen=True)
class Raw:
    """Python code written verbatim."""

    text: str


def code(value: Any) -> str:
    """Return a value as Python code."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text = number(value)
        return text if re.search(r"[.en]", text) else f"{text}.0"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{code(key)}: {code(one)}" for key, one in value.items()) + "}"
    inner = ", ".join(map(code, value))
    return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"


def call(name: str, fields: Mapping[str, Any], indent: int) -> str:
    """Return a call with one argument per line."""
    space = " " * (indent + 4)
    lines = [f"{space}{key}={code(value)}," for key, value in fields.items()]
    return "\n".join([f"{name}(", *lines, f"{' ' * indent})"])


def constant(name: str, values: Mapping[str, Any]) -> str:
    """Return the assignment of a dictionary with one entry per line."""
    lines = [f"    {code(key)}: {code(value)}," for key, value in values.items()]
    return "\n".join([f"{name} = {{", *lines, "}"])


def docstring(lines: list[str]) -> str:
    """Return the docstring of a module."""
    first, *rest = (line.replace("\\", "\\\\").replace('"""', "'''") for line in lines)
    return "\n".join([f'"""{first}', "", *rest, '"""'])


def variable(robot: str) -> str:
    """Return the name of a robot's configuration variable."""
    return f"{re.sub(r'[^0-9A-Za-z]', '_', robot).upper()}_CFG"


CONFIGURATION, NETWORK = "robot_cfg.py", "actuator_network.pt"
"""Files for Isaac Lab and mjlab: the configuration, and the network as TorchScript."""

STEP_NOTE = "PHYSICS_DT is the simulation's time step, of which delays are multiples: set it to yours."


def drive_fields(identified: IdentifiedRobot, joint: str) -> tuple[dict[str, Any], set[str]]:
    """Return gains and effort limit of a drive as configuration fields, and the drive parameters they represent."""
    drive, placed = identified.drives[joint], {"effort_limit"}
    fields: dict[str, Any] = {"stiffness": 0.0, "damping": 0.0}
    if (gains := drive.pd_gains()) is not None:
        fields["stiffness"], fields["damping"], held = gains
        placed |= held
    limit = drive.effort_limit if drive.effort_limit is not None else identified.effort_limits.get(joint)
    if drive.effort_limit is None and drive.force_range is not UNSET:
        limit = max(map(abs, drive.force_range))
    return fields | {"effort_limit": Raw("math.inf") if limit is None else limit}, placed


def network_call(name: str, fields: Mapping[str, Any], period: float) -> str:
    """Return the configuration call of an actuator network, with a comment on its sample period [s]."""
    return call(name, fields, 4).replace("(\n", f"(  # one sample every {code(period)} s: PHYSICS_DT must be that\n", 1)
