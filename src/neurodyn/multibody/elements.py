# SPDX-License-Identifier: Apache-2.0
"""Forces of passive elements between joints or points (`core.description.elements`), in a traced step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neurodyn.core.description.elements import FORCE_ELEMENTS, QUANTITY, Attachment, ForceElement
from neurodyn.core.errors import InputError, choices
from neurodyn.multibody.articulated import Wrenches
from neurodyn.multibody.points import Kinematics, add_wrench
from neurodyn.multibody.scope import Scope, StepMemory
from neurodyn.multibody.vectors import ZERO, Vector, array, cross


@dataclass
class ElementMotion(Kinematics):
    """Motion of a mechanism in a step: links, quantities by name, positions and velocities with names, and memory."""

    scope: Scope
    q: list[Any]
    qd: list[Any]
    qd_names: Sequence[str] = ()
    memory: StepMemory | None = None


@dataclass
class ElementStep:
    """A force element evaluated in a step.

    Attributes:
        element: The element.
        motion: Motion of the mechanism.
    """

    element: ForceElement
    motion: ElementMotion

    def __call__(self, number: str) -> Any:
        """Return one of the element's numbers, which may be free or depend on a network."""
        return self.motion.scope(f"{QUANTITY}{self.element.name}.{number}")

    def position(self, at: Attachment) -> Any:
        """Return the position of a joint with one axis [rad or m]."""
        tree = self.motion.tree
        return tree.q_of(tree.index_of[self._single(at)], self.motion.q)[0]

    def velocity(self, at: Attachment) -> Any:
        """Return the velocity of a joint with one axis [rad/s or m/s]."""
        return self.motion.qd[self.motion.tree.dofs[self._single(at)]]

    def place(self, at: Attachment) -> Vector:
        """Return the position of an attachment point, world axes [m]."""
        if not at.joint:
            return array(at.point)
        return self.motion.poses[self.motion.tree.index_of[at.joint]].origin + self.arm(at)

    def point_velocity(self, at: Attachment) -> Vector:
        """Return the velocity of an attachment point, world axes [m/s]."""
        if not at.joint:
            return ZERO
        return self.motion.velocity(self.motion.tree.index_of[at.joint], self.arm(at))

    def arm(self, at: Attachment) -> Vector:
        """Return an attachment point relative to the origin of its link's frame, world axes [m]."""
        return self.motion.arm(self.motion.tree.index_of[at.joint], array(at.point))

    def twist(self, joint: str, point: Sequence[Any]) -> tuple[Vector, Vector]:
        """Return the angular velocity of a joint's body and the velocity of a point of it, in the body's axes."""
        index, tree = self.motion.tree.index_of[joint], self.motion.tree
        motion, arm = self.motion.motions[index], tree.in_link_frame(index, array(point))
        velocity = motion.velocity + cross(motion.spin, arm)
        return tree.rotate_to_body(index, motion.spin), tree.rotate_to_body(index, velocity)

    def push(self, joint: str, point: Sequence[Any], moment: Sequence[Any], force: Sequence[Any]) -> "ElementForces":
        """Return a moment and a force at a point of a joint's body, all in the body's axes."""
        return ElementForces(wrenches=((joint, array(point), array(moment), array(force)),))

    def missing_force(self, joint: str, rate: Any) -> tuple[list[Any], Vector, Vector]:
        """Return the centre of a free body, and the moment and force there of what was missed in its measured past.

        All are in the body's axes. `rate` [1/s] is that at which errors of predicted velocities add to accelerations.
        """
        motion, memory, tree = self.motion, self.motion.memory, self.motion.tree
        index = tree.index_of[joint]
        if tree.links[index].joint.kind != "free" or memory is None:
            raise InputError(f"element {self.element.name!r}: joint {joint!r} is not free; valid: that of a free base")
        dofs = tree.v_of(index, list(range(len(motion.qd))))
        errors = [motion.scope(f"innovation.qd.{motion.qd_names[dof]}") for dof in dofs]
        push, spin = (motion.to_body(index, array(part)) for part in (errors[:3], errors[3:]))
        kept = []
        for axis, error in zip(("x", "y", "z", "turn_x", "turn_y", "turn_z"), [*push, *spin], strict=True):
            name = f"{QUANTITY}{self.element.name}.{axis}"
            kept.append(memory.recall(name, 0.0) + rate * error)
            memory.keep(name, kept[-1])
        mass, centre = motion.scope(f"{joint}.mass"), [motion.scope(f"{joint}.com.{axis}") for axis in "xyz"]
        moment = [motion.scope(f"{joint}.inertia.{2 * axis}") * x for axis, x in zip("xyz", kept[3:], strict=True)]
        return centre, array(moment), array([mass * x for x in kept[:3]])

    def _single(self, at: Attachment) -> str:
        dofs = self.motion.tree.dofs
        if at.joint not in dofs:
            raise InputError(
                f"element {self.element.name!r}: there is no joint {at.joint!r} with one axis; valid: {choices(dofs)}"
            )
        return at.joint


@dataclass
class ElementForces:
    """Forces of an element; networks may act on each number.

    Attributes:
        torques: On joints with one axis, by name [N m or N].
        pulls: On points, world axes: attachment and force [N]. Forces on the world have no effect.
        wrenches: On bodies, in the axes of each: joint that moves it, point [m], moment [N m] and force [N].
    """

    torques: Mapping[str, Any] = field(default_factory=dict)
    pulls: Sequence[tuple[Attachment, Vector]] = ()
    wrenches: Sequence[tuple[str, Vector, Vector, Vector]] = ()


def element_forces(elements: Sequence[ForceElement], motion: ElementMotion) -> tuple[dict[int, Any], Wrenches]:
    """Return torques by velocity coordinate, and moment and force on links in their frames, of all elements."""
    torques: dict[int, Any] = {}
    wrenches: Wrenches = {}
    for element in elements:
        step = ElementStep(element, motion)
        forces: ElementForces = FORCE_ELEMENTS[element.kind].forces(step)
        name = f"{QUANTITY}{element.name}"
        for joint, given in forces.torques.items():
            dof, value = motion.tree.dofs[joint], motion.scope.define(f"{name}.torque.{joint}", given)
            torques[dof] = torques[dof] + value if dof in torques else value
        for number, (at, given) in enumerate(forces.pulls):
            if not at.joint:
                continue
            index = motion.tree.index_of[at.joint]
            acted = [motion.scope.define(f"{name}.force.{number}.{x}", f) for x, f in zip("xyz", given, strict=True)]
            back, force = motion.poses[index].rotation.T, array(acted)
            add_wrench(wrenches, index, back @ cross(step.arm(at), force), back @ force)
        for joint, point, given_moment, given in forces.wrenches:
            index, tree = motion.tree.index_of[joint], motion.tree
            moment, force = (
                array([motion.scope.define(f"{name}.{what}.{x}", part) for x, part in zip("xyz", parts, strict=True)])
                for what, parts in (("moment", given_moment), ("force", given))
            )
            arm, pushed = tree.in_link_frame(index, point), tree.rotate_to_link(index, force)
            add_wrench(wrenches, index, tree.rotate_to_link(index, moment) + cross(arm, pushed), pushed)
    return torques, wrenches
