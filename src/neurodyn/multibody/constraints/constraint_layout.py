# SPDX-License-Identifier: Apache-2.0
"""Structure of a problem of soft constraints, and the places of its numbers among the inputs of `constraint_loop`."""

from dataclasses import dataclass

from neurodyn.core.description.soft_constraints import Cone

PER_POINT = 13
"""Inputs of a contact point: place, normal and first tangent (3 each), depth, D, k d r, friction."""

PER_LIMIT = 4
"""Inputs of a limit: depth, side (1: lower), D, residual without the acceleration."""

PER_FRICTION = 3
"""Inputs of a joint's friction: D, residual without the acceleration, greatest friction."""


@dataclass(frozen=True)
class Group:
    """The contact points of a link.

    Attributes:
        chain: Velocity coordinates that move the link, ascending.
        points: Their number; points of groups follow each other.
    """

    chain: tuple[int, ...]
    points: int


@dataclass(frozen=True)
class Structure:
    """Structure of a problem.

    Attributes:
        chains: For each velocity coordinate those that carry it, itself last: where the mass matrix may not be zero.
        groups: Contact points by link.
        limits: Velocity coordinates that have limits.
        frictions: Velocity coordinates that have friction.
        cone: Friction cone.
        impratio: Ratio of the impedances of friction and normal force.
    """

    chains: tuple[tuple[int, ...], ...]
    groups: tuple[Group, ...]
    limits: tuple[int, ...]
    frictions: tuple[int, ...]
    cone: Cone = "pyramidal"
    impratio: float = 1.0


class Layout:
    """Where the inputs of a problem begin.

    Attributes:
        nv: Number of velocity coordinates.
        points: Number of contact points.
        entries: Rows and columns of the entries of M, which come first.
        free: Where the accelerations without constraints begin.
        velocity: The velocities.
        columns: The motion of links per unit of each velocity coordinate.
        damping: b of the contacts.
        first_point: The points.
        first_limit: The limits.
        first_friction: The frictions of joints.
        inputs: Number of inputs.
    """

    def __init__(self, structure: Structure) -> None:
        self.nv = len(structure.chains)
        self.points = sum(group.points for group in structure.groups)
        self.entries = [(i, j) for i, chain in enumerate(structure.chains) for j in chain]
        self.free = len(self.entries)
        self.velocity = self.free + self.nv
        self.columns = self.velocity + self.nv
        self.damping = self.columns + 6 * self.nv
        self.first_point = self.damping + 1
        self.first_limit = self.first_point + PER_POINT * self.points
        self.first_friction = self.first_limit + PER_LIMIT * len(structure.limits)
        self.inputs = self.first_friction + PER_FRICTION * len(structure.frictions)
