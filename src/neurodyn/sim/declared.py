# SPDX-License-Identifier: Apache-2.0
"""Parts of an asset that a declaration names, in either simulator; a name or pattern without such a part is refused."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from neurodyn.core.errors import InputError, choices
from neurodyn.robots import Robot, asset_path
from neurodyn.robots.sections import choose, matching
from neurodyn.sim.articulations import short_label

K = TypeVar("K")


def require_joints(robot: Robot, built: Sequence[tuple[str, str]]) -> None:
    """Raise InputError unless moving joints (name, kind) are the declared ones; a free base may have any name."""
    declared = [(joint.name, joint.kind) for joint in robot.joints]
    if built and built[0][1] == "free" == declared[0][1]:
        built = [declared[0], *built[1:]]
    if list(built) != declared:
        words = [", ".join(f"{name} ({kind})" for name, kind in joints) for joints in (built, declared)]
        raise InputError(
            f"robot {robot.name!r}: {asset_path(robot).name} has the moving joints {words[0]} instead of the declared "
            f"{words[1]}; list all of them in this order, or under `locked`"
        )


def added_inertia(robot: Robot, links: Sequence[str]) -> list[float]:
    """Return the declared additional inertia of each link [kg m^2], 0 for none."""
    for pattern in robot.added_inertia:
        if not any(matching(link, [pattern]) for link in links):
            raise InputError(
                f"robot {robot.name!r}: added_inertia names {pattern!r}, which no link of {asset_path(robot).name} "
                f"matches; valid: patterns of {choices(links)}"
            )
    return [choose(link, robot.added_inertia) or 0.0 for link in links]


def declared_colliders(robot: Robot, labels: Mapping[K, set[str]]) -> list[K]:
    """Return the collision shapes among the declared colliders, given the labels of each shape and its body."""
    colliders = [shape for shape, names in labels.items() if any(matching(name, robot.colliders) for name in names)]
    if labels and not colliders:
        raise InputError(
            f"robot {robot.name!r}: colliders {list(robot.colliders)} match no collision shape; valid: patterns of "
            f"{choices({short_label(name) for names in labels.values() for name in names})}"
        )
    return colliders


def shapes_of_contacts(contacts: Mapping[str, Sequence[str]], labels: Mapping[K, set[str]]) -> dict[K, str]:
    """Return the declared contact of each collision shape that has one; the first that matches a label of the shape.

    `contacts` are patterns by name. A contact without any shape raises InputError.
    """
    owner = {
        shape: name
        for shape, own in labels.items()
        if (name := next((n for n, patterns in contacts.items() if any(matching(x, patterns) for x in own)), None))
    }
    for name, patterns in contacts.items():
        if name not in owner.values():
            raise InputError(
                f"contacts: {name!r} ({', '.join(patterns)}) matches no collision shape; valid: patterns of "
                f"{choices({short_label(label) for own in labels.values() for label in own})}"
            )
    return owner
