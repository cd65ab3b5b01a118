# SPDX-License-Identifier: Apache-2.0
"""What a robot's declaration adds to the quantities of a state: the end effector, and contacts by depth.

Neither needs a simulator: the chain of joints is declared, and a model of a simulator's state carries its contact
points.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neurodyn.core.description.contact_points import ContactPoint, ContactPointLayout
from neurodyn.dynamics.interface import State
from neurodyn.dynamics.quantities import Maker
from neurodyn.geometry.ground import Ground
from neurodyn.robots import Robot
from neurodyn.robots.sections import EndEffector, matching

if TYPE_CHECKING:
    from neurodyn.geometry.proximity import ProximityQuery


def reach(robot: Robot | None, state: State) -> dict[str, Maker]:
    """Return the place of the end effector, where the robot declares one."""
    end = None if robot is None else robot.end_effector
    if end is None:
        return {}
    return {"end_effector_position": lambda _: _end_effector(end)(None, state.q, state.qd).position[:, 0]}


def touch(
    robot: Robot | None, layout: ContactPointLayout | None, ground: Ground | None, state: State
) -> dict[str, Maker]:
    """Return which of the declared contacts touch the ground: those with a contact point that is inside."""
    if robot is None or layout is None or not robot.contacts:
        return {}
    return {"contact": lambda _: _touching(layout, tuple(robot.contacts.values()), ground, state)}


def contact_names(robot: Robot | None) -> tuple[str, ...]:
    """Return the names of the declared contacts."""
    return () if robot is None else tuple(robot.contacts)


def _touching(
    layout: ContactPointLayout, contacts: tuple[tuple[str, ...], ...], ground: Ground | None, state: State
) -> Tensor:
    """Return 1 where a body touches the ground and 0 elsewhere, shape [worlds, contacts]."""
    readings = _proximity(layout)(ground, state.q.detach(), state.qd.detach())
    radius, members = _members(layout, contacts, state.q.device)
    inside = (readings.distance < radius) & readings.valid
    return (inside.to(state.q) @ members.to(state.q)).clamp_max(1.0)


@lru_cache(maxsize=16)
def _end_effector(end: EndEffector) -> "ProximityQuery":
    index = [joint.name for joint in end.joints].index(end.joint)
    contact_point = ContactPoint(name="end_effector", joint=index, point=end.point, radius=0.0)
    return _proximity(ContactPointLayout(joints=end.joints, contact_points=(contact_point,)))


@lru_cache(maxsize=16)
def _proximity(layout: ContactPointLayout) -> "ProximityQuery":
    from neurodyn.geometry.proximity import ProximityQuery  # loads Warp, which robots without contacts do not need

    return ProximityQuery(layout)


@lru_cache(maxsize=16)
def _members(
    layout: ContactPointLayout, contacts: tuple[tuple[str, ...], ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the radius of each contact point, and which contact it belongs to, shape [contact points, contacts]."""
    shapes = [contact_point.name.rpartition("/")[0] for contact_point in layout.contact_points]
    with torch.inference_mode(False):
        radius = torch.tensor([contact_point.radius for contact_point in layout.contact_points], device=device)
        members = torch.tensor(
            [[float(matching(shape, patterns)) for patterns in contacts] for shape in shapes], device=device
        )
    return radius, members
