# SPDX-License-Identifier: Apache-2.0
"""What a release needs: LICENSES.md lists all that ships, the wheel has it, and the changelog knows the version."""

import re
import tomllib

import pytest

import neurodyn
from neurodyn.core.artifacts import pretrained_names, pretrained_policy_names
from neurodyn.robots import ROBOTS, load
from tests.plant import repository

TEXT = (repository() / "LICENSES.md").read_text(encoding="utf-8")
SECTIONS = {part.split(" ", 1)[0].strip(): part for part in TEXT.split("\n## ")[1:]}


@pytest.mark.parametrize(
    ("section", "there"),
    [("Models", pretrained_names()), ("Policies", pretrained_policy_names()), ("Robots", list(ROBOTS))],
)
def test_what_ships_is_listed_and_nothing_else(section: str, there: list[str]):
    part = SECTIONS[section]
    listed = re.findall(r"`([a-z0-9-]+)`", part if section == "Policies" else _first_column(part))
    assert sorted(listed) == sorted(there)


def _first_column(part: str) -> str:
    return "\n".join(line.split("|")[1] for line in part.splitlines() if line.startswith("| `"))


def test_assets_of_packages_are_listed_as_theirs():
    rows = [line for line in SECTIONS["Robots"].splitlines() if line.startswith("| `")]
    for name in ROBOTS:
        (row,) = (line for line in rows if f"`{name}`" in line.split("|")[1])
        package = load(name).package
        assert ("in the wheel" if package is None else f"`{package}`") in row.split("|")[2], name


def test_the_wheel_has_the_list():
    project = tomllib.loads((repository() / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"LICENSE", "LICENSES.md"} <= set(project["license-files"])


def test_the_changelog_has_the_version_and_goes_backwards():
    text = (repository() / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = [tuple(map(int, found.split("."))) for found in re.findall(r"^## (\d+(?:\.\d+)+)", text, re.MULTILINE)]
    assert versions == sorted(versions, reverse=True)
    own = tuple(int(part) for part in neurodyn.__version__.split("."))
    assert any(own[: len(version)] == version for version in versions)
