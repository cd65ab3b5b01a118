# SPDX-License-Identifier: Apache-2.0
"""What a traced step knows at its beginning: motions, accelerations and forces of all links, for what is measured."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from neurodyn.multibody.articulated import LinkMotion, Tree
from neurodyn.multibody.contact_model import Contacts
from neurodyn.multibody.memory import Memory
from neurodyn.multibody.points import LinkPose, Wrenches, link_poses
from neurodyn.multibody.scope import Scope
from neurodyn.multibody.vectors import ZERO, Vector, cross


@dataclass
class Instant:
    """A step of a mechanism before it is integrated.

    Attributes:
        scope: Quantities by name.
        memory: What the step hands on to the next.
        tree: The mechanism.
        motions: Motions of its links.
        torque: Generalised forces of actuators and passive joints, by velocity coordinate.
        external: Wrenches on the links that are none of contacts, in their frames.
        touching: Wrenches of contacts that are forces, likewise.
        acceleration: Time derivative of the velocities over the step, contacts included.
        contacts: What touches, and the forces of contacts that are none of `touching`.
    """

    scope: Scope
    memory: Memory
    tree: Tree
    motions: list[LinkMotion]
    torque: list[Any]
    external: Wrenches
    touching: Wrenches
    acceleration: list[Any]
    contacts: Contacts

    @cached_property
    def poses(self) -> list[LinkPose]:
        """Where the links are."""
        return link_poses(self.tree, self.motions)

    @cached_property
    def accelerations(self) -> list[tuple[Vector, Vector]]:
        """Spatial acceleration of each link less gravity, in its frame: angular, and linear at the frame's origin."""
        return self.tree.carried(self.motions, self.acceleration)

    @cached_property
    def pushes(self) -> Wrenches:
        """Moment about its origin and force of all contacts on each link that can touch, in its frame."""
        found = dict(self.touching)
        for push in self.contacts.pushes or ():
            turn = self.poses[push.link].turn
            moment, force = found.get(push.link, (ZERO, ZERO))
            found[push.link] = (moment + turn.T @ cross(push.arm, push.force), force + turn.T @ push.force)
        return found

    @cached_property
    def transmitted(self) -> list[tuple[Vector, Vector]]:
        """Moment about its origin and force that each link receives through its joint, in its frame.

        The backward pass of the recursive Newton-Euler algorithm (Featherstone 2008, table 5.1).
        """
        tree, totals = self.tree, []
        for index, motion in enumerate(self.motions):
            moment, force = tree.inertial_wrench(index, motion, self.accelerations[index])
            for wrenches in (self.external, self.pushes):
                if index in wrenches:
                    moment, force = moment - wrenches[index][0], force - wrenches[index][1]
            totals.append((moment, force))
        for index in range(len(totals) - 1, -1, -1):
            parent, motion = tree.links[index].joint.parent, self.motions[index]
            if parent >= 0:
                force = motion.turn @ totals[index][1]
                moment = motion.turn @ totals[index][0] + cross(motion.offset, force)
                totals[parent] = (totals[parent][0] + moment, totals[parent][1] + force)
        return totals
