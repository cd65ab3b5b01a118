# SPDX-License-Identifier: Apache-2.0
"""Equations of motion of single joints, as the articulated-body algorithm solves them."""

from dataclasses import dataclass
from typing import Any

from neurodyn.multibody.vectors import (
    IDENTITY,
    Matrix,
    Vector,
    add,
    apply,
    apply_transposed,
    dot,
    minus,
    mirrored,
    outer,
    plus,
    product,
    scale,
    subtract,
    symmetric_inverse,
    transpose,
)

ZERO: Vector = [0.0, 0.0, 0.0]


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
            self.upper, self.lower = apply(body.rotational, axis), apply_transposed(body.coupling, axis)
            inertia, bias = dot(axis, self.upper), dot(axis, body.moment)
        else:
            self.upper, self.lower = apply(body.coupling, axis), apply(body.linear, axis)
            inertia, bias = dot(axis, self.lower), dot(axis, body.force)
        self.inverse = 1.0 / (inertia + armature)
        self.rest = torque - bias

    def reduce(self, body: Articulated) -> Articulated:
        """Return inertia and bias that the parent feels, without the velocity product's part."""
        upper, lower, u = scale(self.inverse, self.upper), scale(self.inverse, self.lower), self.rest
        reduced = Articulated(
            mirrored(minus(body.rotational, outer(upper, self.upper))),
            minus(body.coupling, outer(upper, self.lower)),
            mirrored(minus(body.linear, outer(lower, self.lower))),
            add(body.moment, scale(u, upper)),
            add(body.force, scale(u, lower)),
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
        along = scale(rate, self.axis)
        return ([rate], along, ZERO) if self.revolute else ([rate], ZERO, along)


class BallJoint:
    """A ball joint: the same with S = [1; 0]."""

    def __init__(self, body: Articulated, torque: Vector, armature: Any) -> None:
        self.rotational, self.coupling = body.rotational, body.coupling
        self.inverse = symmetric_inverse(plus(body.rotational, [[armature * x for x in row] for row in IDENTITY]))
        self.rest = subtract(torque, body.moment)

    def reduce(self, body: Articulated) -> Articulated:
        """Return inertia and bias that the parent feels."""
        k = product(body.rotational, self.inverse)
        j = product(transpose(body.coupling), self.inverse)
        return Articulated(
            mirrored(minus(body.rotational, product(k, body.rotational))),
            minus(body.coupling, product(k, body.coupling)),
            mirrored(minus(body.linear, product(j, body.coupling))),
            add(body.moment, apply(k, self.rest)),
            add(body.force, apply(j, self.rest)),
        )

    def __call__(self, spin: Vector, linear: Vector) -> tuple[list[Any], Vector, Vector]:
        """Return the joint's own rates, and what they add to the acceleration that the parent gives."""
        pushed = add(apply(self.rotational, spin), apply(self.coupling, linear))
        own = apply(self.inverse, subtract(self.rest, pushed))
        return own, own, ZERO


class FreeJoint:
    r"""A floating base: $[I, H; H^T, M] [\dot w; \dot v] = rest$, by the Schur complement of M; gravity is left in."""

    def __init__(self, body: Articulated, torque: list[Any]) -> None:
        self.body = body
        self.rest = subtract(torque[:3], body.moment), subtract(torque[3:], body.force)

    def __call__(self, spin: Vector, linear: Vector) -> tuple[list[Any], Vector, Vector]:
        """Return the joint's own rates, and what they add to the acceleration that the parent gives."""
        body, (moment, force) = self.body, self.rest
        light = symmetric_inverse(body.linear)
        k = product(body.coupling, light)
        schur = minus(body.rotational, product(k, transpose(body.coupling)))
        own_spin = apply(symmetric_inverse(schur), subtract(moment, apply(k, force)))
        total = apply(light, subtract(force, apply_transposed(body.coupling, own_spin)))
        # The whole acceleration follows from the forces; own is what the joint adds to the parent's (minus gravity).
        return [*own_spin, *subtract(total, linear)], subtract(own_spin, spin), subtract(total, linear)
