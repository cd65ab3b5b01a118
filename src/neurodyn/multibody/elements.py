# SPDX-License-Identifier: Apache-2.0
"""Forces of passive elements between joints or points (`core.description.elements`), in a traced step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from neurodyn.core.description.elements import FORCE_ELEMENTS, QUANTITY, Attachment, ForceElement
from neurodyn.core.errors import InputError, choices
from neurodyn.multibody.articulated import RelativeMotion, Tree
from neurodyn.multibody.points import LinkPose, Wrenches, link_poses
from neurodyn.multibody.scope import Scope
from neurodyn.multibody.vectors import ZERO, Vector, array, cross


@dataclass
class ElementMotion:
    """Where a mechanism is, and how it moves, as elements see it.

    Attributes:
        scope: Quantities by name.
        tree: The mechanism.
        motions: Motions of its links.
        q: Positions.
        qd: Velocities.
    """

    scope: Scope
    tree: Tree
    motions: Sequence[RelativeMotion]
    q: list[Any]
    qd: list[Any]

    @cached_property
    def poses(self) -> list[LinkPose]:
        """Where the links are."""
        return link_poses(self.tree, self.motions)

    @cached_property
    def links(self) -> dict[str, int]:
        """Indices of the links by the joint that moves them."""
        return {link.joint.name: index for index, link in enumerate(self.tree.links)}

    @cached_property
    def dofs(self) -> dict[str, int]:
        """Velocity coordinates of the joints with one axis, by name."""
        return {name: dof for dof, name in self.tree.single_dofs()}


@dataclass
class ElementStep:
    """An element in a step.

    Attributes:
        element: The element.
        motion: The mechanism.
    """

    element: ForceElement
    motion: ElementMotion

    def __call__(self, number: str) -> Any:
        """Return one of its numbers, which may be free, or depend on a network."""
        return self.motion.scope(f"{QUANTITY}{self.element.name}.{number}")

    def position(self, at: Attachment) -> Any:
        """Return the position of a joint with one axis [rad or m]."""
        index = self.motion.links[self._single(at)]
        return self.motion.tree.q_of(index, self.motion.q)[0]

    def velocity(self, at: Attachment) -> Any:
        """Return its velocity [rad/s or m/s]."""
        return self.motion.qd[self.motion.dofs[self._single(at)]]

    def place(self, at: Attachment) -> Vector:
        """Return a point in the world [m]."""
        if not at.joint:
            return array(at.point)
        pose = self.motion.poses[self.motion.links[at.joint]]
        return pose.origin + self.arm(at)

    def point_velocity(self, at: Attachment) -> Vector:
        """Return the velocity of a point in the world [m/s]."""
        if not at.joint:
            return ZERO
        index = self.motion.links[at.joint]
        turn, motion = self.motion.poses[index].turn, self.motion.motions[index]
        return turn @ motion.velocity + cross(turn @ motion.spin, self.arm(at))

    def arm(self, at: Attachment) -> Vector:
        """Return a point seen from the origin of its link's frame, world axes [m]."""
        index = self.motion.links[at.joint]
        return self.motion.poses[index].turn @ self.motion.tree.in_link_frame(index, array(at.point))

    def _single(self, at: Attachment) -> str:
        if at.joint not in self.motion.dofs:
            raise InputError(
                f"element {self.element.name!r}: there is no joint {at.joint!r} with one axis; valid: "
                f"{choices(self.motion.dofs)}"
            )
        return at.joint


@dataclass
class ElementForces:
    """What an element does; networks may act on each number.

    Attributes:
        torques: On joints with one axis, by name [N m or N].
        pulls: On points, world axes: attachment and force [N]. Those on the world do nothing.
    """

    torques: Mapping[str, Any] = field(default_factory=dict)
    pulls: Sequence[tuple[Attachment, Vector]] = ()


def element_forces(elements: Sequence[ForceElement], motion: ElementMotion) -> tuple[dict[int, Any], Wrenches]:
    """Return torques by velocity coordinate, and moment and force on links in their frames, of all elements."""
    torques: dict[int, Any] = {}
    wrenches: Wrenches = {}
    for element in elements:
        step = ElementStep(element, motion)
        found: ElementForces = FORCE_ELEMENTS[element.kind].function(step)
        name = f"{QUANTITY}{element.name}"
        for joint, given in found.torques.items():
            dof, value = motion.dofs[joint], motion.scope.define(f"{name}.torque.{joint}", given)
            torques[dof] = torques[dof] + value if dof in torques else value
        for number, (at, given) in enumerate(found.pulls):
            if not at.joint:
                continue
            index = motion.links[at.joint]
            acted = [motion.scope.define(f"{name}.force.{number}.{x}", f) for x, f in zip("xyz", given, strict=True)]
            back, force = motion.poses[index].turn.T, array(acted)
            moment, known = wrenches.get(index, (ZERO, ZERO))
            wrenches[index] = (moment + back @ cross(step.arm(at), force), known + back @ force)
    return torques, wrenches
