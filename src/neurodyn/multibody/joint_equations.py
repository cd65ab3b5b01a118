# SPDX-License-Identifier: Apache-2.0
"""Equations of motion of single joints, as the articulated-body algorithm solves them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from neurodyn.multibody.vectors import IDENTITY, ZERO, Matrix, Vector, dot, mirrored, symmetric_inverse


@dataclass
class Articulated:
    """An articulated inertia [[rotational, coupling], [coupling^T, linear]] and bias force, in a link's frame."""

    rotational: Matrix
    coupling: Matrix
    linear: Matrix
    moment: Vector
    force: Vector


class SingleJoint:
    r"""A revolute or prismatic joint: $U = I^A S$, $D = S^T U$ + armature, $u = \tau - S^T p^A$."""

    def __init__(self, kind: str, axis: Vector, body: Articulated, torque: Any, armature: Any) -> None:
        self.revolute, self.axis, self.torque = kind == "revolute", axis, torque
        self.plain = isinstance(armature, float) and armature == 0.0
        if self.revolute:
            self.upper, self.lower = body.rotational @ axis, body.coupling.T @ axis
            inertia, bias = dot(axis, self.upper), dot(axis, body.moment)
        else:
            self.upper, self.lower = body.coupling @ axis, body.linear @ axis
            inertia, bias = dot(axis, self.lower), dot(axis, body.force)
        self.inverse = 1.0 / (inertia + armature)
        self.rest = torque - bias

    def reduce(self, body: Articulated) -> Articulated:
        """Return inertia and bias that the parent feels, without the velocity product's part."""
        upper, lower, u = self.inverse * self.upper, self.inverse * self.lower, self.rest
        reduced = Articulated(
            mirrored(body.rotational - np.outer(upper, self.upper)),
            body.coupling - np.outer(upper, self.lower),
            mirrored(body.linear - np.outer(lower, self.lower)),
            body.moment + u * upper,
            body.force + u * lower,
        )
        if self.plain:
            self._release(reduced)
        return reduced

    def _release(self, reduced: Articulated) -> None:
        """Write the zeros of an inertia that resists no motion along the joint, where it has no rotor."""
        for k, share in enumerate(self.axis):
            if not (isinstance(share, float) and abs(share) == 1.0):
                continue
            square = reduced.rotational if self.revolute else reduced.linear
            for i in range(3):
                square[i][k] = square[k][i] = 0.0
                if self.revolute:
                    reduced.coupling[k][i] = 0.0
                else:
                    reduced.coupling[i][k] = 0.0
            (reduced.moment if self.revolute else reduced.force)[k] = share * self.torque

    def __call__(self, spin: Vector, linear: Vector) -> tuple[list[Any], Vector, Vector]:
        """Return the joint's own rates, and what they add to the acceleration that the parent gives."""
        rate = self.inverse * (self.rest - dot(self.upper, spin) - dot(self.lower, linear))
        along = rate * self.axis
        return ([rate], along, ZERO) if self.revolute else ([rate], ZERO, along)


class BallJoint:
    """A ball joint: the same with S = [1; 0]."""

    def __init__(self, body: Articulated, torque: Vector, armature: Any) -> None:
        self.rotational, self.coupling = body.rotational, body.coupling
        self.inverse = symmetric_inverse(body.rotational + armature * IDENTITY)
        self.rest = torque - body.moment

    def reduce(self, body: Articulated) -> Articulated:
        """Return inertia and bias that the parent feels."""
        k = body.rotational @ self.inverse
        j = body.coupling.T @ self.inverse
        return Articulated(
            mirrored(body.rotational - k @ body.rotational),
            body.coupling - k @ body.coupling,
            mirrored(body.linear - j @ body.coupling),
            body.moment + k @ self.rest,
            body.force + j @ self.rest,
        )

    def __call__(self, spin: Vector, linear: Vector) -> tuple[list[Any], Vector, Vector]:
        """Return the joint's own rates, and what they add to the acceleration that the parent gives."""
        own = self.inverse @ (self.rest - (self.rotational @ spin + self.coupling @ linear))
        return [*own], own, ZERO


class FreeJoint:
    r"""A floating base: $[I, H; H^T, M] [\dot w; \dot v] = rest$, by the Schur complement of M; gravity is left in."""

    def __init__(self, body: Articulated, torque: Vector) -> None:
        self.body = body
        self.rest = torque[:3] - body.moment, torque[3:] - body.force

    def __call__(self, spin: Vector, linear: Vector) -> tuple[list[Any], Vector, Vector]:
        """Return the joint's own rates, and what they add to the acceleration that the parent gives."""
        body, (moment, force) = self.body, self.rest
        light = symmetric_inverse(body.linear)
        k = body.coupling @ light
        schur = body.rotational - k @ body.coupling.T
        own_spin = symmetric_inverse(schur) @ (moment - k @ force)
        total = light @ (force - body.coupling.T @ own_spin)
        # The whole acceleration follows from the forces; own is what the joint adds to the parent's (minus gravity).
        return [*own_spin, *(total - linear)], own_spin - spin, total - linear
