# SPDX-License-Identifier: Apache-2.0
"""What a URDF must not hold, because importers take it without a word: another robot would come of it."""

import math
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from neurodyn.core.errors import InputError, choices

_NUMBERS = {
    "mass": ("value",),
    "inertia": ("ixx", "iyy", "izz", "ixy", "ixz", "iyz"),
    "origin": ("xyz", "rpy"),
    "limit": ("lower", "upper", "effort", "velocity"),
    "dynamics": ("damping", "friction"),
    "box": ("size",),
    "sphere": ("radius",),
    "cylinder": ("radius", "length"),
    "capsule": ("radius", "length"),
    "mesh": ("scale",),
}
_MAY_BE_INFINITE = {"lower", "upper", "effort", "velocity"}
_LIMITED = ("revolute", "prismatic")
_SHOWN = 3


def require_sound(path: Path, root: ElementTree.Element) -> None:
    """Refuse a URDF with names that stand twice, several roots, loops, or numbers that no robot has.

    Raises:
        InputError: It has something of that, which the message names.
    """
    links, joints = root.findall("link"), root.findall("joint")
    if not links:
        raise InputError(f"{path}: has no link; expected a robot")
    for kind, elements in (("link", links), ("joint", joints)):
        twice = [str(name) for name, count in Counter(one.get("name") for one in elements).items() if count > 1]
        if twice:
            raise InputError(f"{path}: {kind} {twice[0]!r} is there more than once; valid: each name once")
    for element in [*links, *joints]:
        _require_numbers(path, element)
    for joint in joints:
        _require_limits(path, joint)
    for link in links:
        mass = link.find("inertial/mass")
        if mass is not None and float(mass.get("value", "0")) < 0:
            raise InputError(
                f"{path}: mass of link {link.get('name')!r} is {mass.get('value')}; valid: at least 0 [kg]"
            )


def require_tree(path: Path, root: ElementTree.Element) -> None:
    """Refuse joints that do not make a tree of all links; their ends are links of the file.

    Raises:
        InputError: A link has two joints above it, there are several roots, or joints form a loop.
    """
    links, above = [str(link.get("name")) for link in root.findall("link")], {}
    for joint in root.findall("joint"):
        parent, child = (str(joint.find(end).get("link")) for end in ("parent", "child"))  # type: ignore[union-attr]
        if child in above:
            raise InputError(
                f"{path}: link {child!r} is the child of two joints, {above[child][0]!r} and {joint.get('name')!r}; "
                "valid: one joint above each link"
            )
        above[child] = (joint.get("name"), parent)
    roots = [link for link in links if link not in above]
    if len(roots) > 1:
        more = f" and {len(roots) - _SHOWN} more" if len(roots) > _SHOWN else ""
        raise InputError(
            f"{path}: has several roots, {choices(roots[:_SHOWN])}{more}; valid: one link that all others hang on"
        )
    for link in links:
        seen = {link}
        while link in above:
            link = above[link][1]
            if link in seen:
                raise InputError(f"{path}: the joints around link {link!r} form a loop; valid: a tree of links")
            seen.add(link)


def _require_numbers(path: Path, element: ElementTree.Element) -> None:
    for part in element.iter():
        for name in _NUMBERS.get(part.tag, ()):
            text = part.get(name)
            for word in () if text is None else text.split():
                try:
                    value = float(word)
                except ValueError:
                    value = math.nan
                if math.isnan(value) or (math.isinf(value) and name not in _MAY_BE_INFINITE):
                    raise InputError(
                        f"{path}: {name} of <{part.tag}> in {element.tag} {element.get('name')!r} is {text!r}; "
                        "valid: finite numbers"
                    )


def _require_limits(path: Path, joint: ElementTree.Element) -> None:
    limit = joint.find("limit")
    if limit is None or joint.get("type") not in _LIMITED:
        return
    lower, upper = float(limit.get("lower", "0")), float(limit.get("upper", "0"))
    if lower > upper:
        raise InputError(
            f"{path}: limits of joint {joint.get('name')!r} are swapped: lower {lower:g} is above upper {upper:g}"
        )
