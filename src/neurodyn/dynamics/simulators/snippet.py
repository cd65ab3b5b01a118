# SPDX-License-Identifier: Apache-2.0
"""Python files for other tools, written as text: calls of configurations, one a group of joints with equal numbers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neurodyn.dynamics.simulators.identified import number


@dataclass(frozen=True)
class Raw:
    """Code that is to stand in a file as it is."""

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
    """Return a call with one argument a line."""
    space = " " * (indent + 4)
    lines = [f"{space}{key}={code(value)}," for key, value in fields.items()]
    return "\n".join([f"{name}(", *lines, f"{' ' * indent})"])


def constant(name: str, values: Mapping[str, Any]) -> str:
    """Return a dictionary as an assignment with one entry a line."""
    lines = [f"    {code(key)}: {code(value)}," for key, value in values.items()]
    return "\n".join([f"{name} = {{", *lines, "}"])


def docstring(lines: list[str]) -> str:
    """Return lines as a module's docstring."""
    first, *rest = (line.replace("\\", "\\\\").replace('"""', "'''") for line in lines)
    return "\n".join([f'"""{first}', "", *rest, '"""'])


def pattern(joint: str) -> str:
    """Return a regular expression that matches a joint's name and no other."""
    return re.escape(joint)


def variable(robot: str) -> str:
    """Return the name of a robot's configuration."""
    return f"{re.sub(r'[^0-9A-Za-z]', '_', robot).upper()}_CFG"
