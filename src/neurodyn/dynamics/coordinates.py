# SPDX-License-Identifier: Apache-2.0
"""The robot's own frame: a state relative to its base, and the change of a state over one frame.

Everything is expressed in the frame of the base at the start of the frame (NeRD, section 3.2, anchor frame
"every"): velocities and changes do not depend on where the robot stands nor on how it is turned.

A free joint's linear velocity is that of the base's centre of mass, so the change of position that goes with it
is that of the centre of mass, x_c = x + R c. With R the rotation of the base at the start of the frame:

    velocity   [R^T v, R^T w]
    change     dq = [R^T (x_c' - x_c), Log(R^T R')],   dqd = [R^T (v' - v), R^T (w' - w)]

Ball joints stay in the axes of their parent: dq = Log(R' R^T). A fixed base needs no conversion.
"""

import torch
from torch import Tensor, nn

from neurodyn.core.description.scene import Vector3
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.tangent import position_difference
from neurodyn.geometry import base_frame, rotation
from neurodyn.geometry.array_shapes import Matrices, Positions, Velocities


class Coordinates(nn.Module):
    """Converts states of one robot to and from the frame of its base.

    Attributes:
        free: Whether the base floats.
        balls: First position and velocity coordinate of each ball joint.
        scalars: Position coordinates of joints with one degree of freedom.
        scalar_dofs: Their velocity coordinates.
    """

    com: Tensor

    def __init__(self, spec: StateSpec, com: Vector3 = (0.0, 0.0, 0.0)) -> None:
        """Prepare the conversion.

        Args:
            spec: Names and order of the state.
            com: Centre of mass of a floating base in its own frame [m].

        Raises:
            InputError: A free joint is not the first one.
        """
        super().__init__()
        self.spec = spec
        self.free = spec.floating
        self.balls: list[tuple[int, int]] = []
        self.scalars: list[int] = []
        self.scalar_dofs: list[int] = []
        for index, (joint, place) in enumerate(zip(spec.joints, spec.places, strict=True)):
            if joint.kind == "free" and index:
                raise InputError(
                    f"robot {spec.robot!r}: joint {joint.name!r} is free, but not the first; neural dynamics take one "
                    "floating base"
                )
            if joint.kind == "ball":
                self.balls.append((place.q.start, place.qd.start))
            elif joint.scalar:
                self.scalars.append(place.q.start)
                self.scalar_dofs.append(place.qd.start)
        self._plain = not self.free and not self.balls
        self._centred = not any(com)
        self.register_buffer("com", torch.tensor(com), persistent=False)

    def view(self, q: Positions, qd: Velocities, down: Tensor | None) -> base_frame.BaseView | None:
        """Return what a floating base sees of itself, with gravity in any unit; None of a fixed one."""
        return base_frame.view(q, qd, down, unit=False) if self.free else None

    def base_rotation(self, q: Positions) -> Matrices | None:
        """Return the rotation of a floating base, base to world, shape [..., 3, 3]; None of a fixed one."""
        return rotation.matrix(q[..., 3:7]) if self.free else None

    def to_base(self, base: Matrices | None, qd: Velocities) -> Velocities:
        """Return velocities in the frame of the base, shape [..., nv]."""
        if base is None:
            return qd
        turned = rotation.turn_rows(qd[..., :6].unflatten(-1, (2, 3)), base)
        return torch.cat([turned.flatten(-2), qd[..., 6:]], dim=-1)

    def change(
        self, q: Positions, qd: Velocities, q_next: Positions, qd_next: Velocities
    ) -> tuple[Velocities, Velocities]:
        """Return dq and dqd over one frame, each of shape [..., nv]."""
        base = self.base_rotation(q)
        dqd = self.to_base(base, qd_next - qd)
        dq = position_difference(self.spec, q_next, q)
        if base is None:
            return dq, dqd
        turn = rotation.logarithm(rotation.multiply(rotation.conjugate(q[..., 3:7]), q_next[..., 3:7]))
        shift = dq[..., :3] + rotation.rotate(q_next[..., 3:7], self.com.expand_as(turn))
        # The centre of mass is turned to the world: as a row, by the transpose.
        shift = shift - rotation.turn_rows(self.com.expand(*base.shape[:-2], 1, 3), base.mT).squeeze(-2)
        shift = rotation.turn_rows(shift.unsqueeze(-2), base)
        return torch.cat([shift.squeeze(-2), turn, dq[..., 6:]], dim=-1), dqd

    def advance(
        self, base: Matrices | None, q: Positions, qd: Velocities, dq: Velocities, dqd: Velocities
    ) -> tuple[Positions, Velocities]:
        """Apply a change, as `change` returns it, to a state; `base` is `base_rotation(q)`."""
        if self._plain:
            return q + dq, qd + dqd
        if base is None:
            return self._turn_balls(q, dq), qd + dqd
        com = None if self._centred else self.com
        if not self.balls:
            return base_frame.advance(base, q, qd, dq, dqd, com)
        moved, velocity = base_frame.advance(base, q[..., :7], qd, dq, dqd, com)
        return torch.cat([moved, self._turn_balls(q, dq)[..., 7:]], dim=-1), velocity

    def _turn_balls(self, q: Tensor, dq: Tensor) -> Tensor:
        """Return positions with the changes of ball joints and of joints with one degree of freedom applied."""
        q_next = q.clone()
        if self.scalars:
            q_next[..., self.scalars] = q[..., self.scalars] + dq[..., self.scalar_dofs]
        for row, dof in self.balls:
            turn = rotation.exponential(dq[..., dof : dof + 3])
            q_next[..., row : row + 4] = rotation.normalise(rotation.multiply(turn, q[..., row : row + 4]))
        return q_next
