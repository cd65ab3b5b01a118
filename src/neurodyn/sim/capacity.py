# SPDX-License-Identifier: Apache-2.0
"""Memory that MuJoCo Warp reserves for the contacts and constraints of a world."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.sim.scene import PREFIX

_ROWS = 4  # constraints of a contact: the edges of a pyramid of friction
_AT_ONCE = 2  # shapes of the scene that a shape of the robot is taken to touch at once


@dataclass(frozen=True)
class Capacity:
    """Capacity for the contacts of one world.

    Attributes:
        contacts: Contacts; worlds share the capacity of all, so that this is a mean.
        rows: Constraints: those of contacts, of limits and of dry friction.
    """

    contacts: int
    rows: int

    GROWS: ClassVar[int] = 0b11111 | 1 << 16 | 1 << 17
    """Bits of MuJoCo Warp's and Newton's reports that more capacity helps against."""
    TRUNCATED: ClassVar[int] = 1 << 5
    """Bit for a shape on more triangles of a heightfield than are looked at."""

    @classmethod
    def of(cls, model: Any, newton: Any) -> "Capacity":
        """Return what the robot of world 0 of a Newton model can touch at once."""
        types = newton.GeoType
        points = {int(types.SPHERE): 1, int(types.CAPSULE): 2, int(types.BOX): 8}
        kind, world = model.shape_type.numpy(), model.shape_world.numpy()
        collides = model.shape_flags.numpy() & int(newton.ShapeFlags.COLLIDE_SHAPES) != 0
        scene = np.array([label.startswith(f"{PREFIX}/") for label in model.shape_label], dtype=bool)
        body = model.shape_body.numpy()
        smooth = {int(types.PLANE), int(types.SPHERE), int(types.CAPSULE), int(types.BOX)}
        rough = not {int(k) for k in kind[scene]} <= smooth
        touching = sum(
            max(points.get(int(k), 4), 4 * rough) for k in kind[(world == 0) & (body >= 0) & collides & ~scene]
        )
        contacts = max(1, touching * min(_AT_ONCE, int((scene & (world == 0)).sum())))
        dofs = model.joint_dof_count // max(int(model.world_count), 1)
        return cls(contacts, _ROWS * contacts + 2 * dofs)

    def doubled(self) -> "Capacity":
        """Return twice the capacity.

        Raises:
            InputError: No robot needs that much.
        """
        if self.contacts > 1 << 20:
            raise InputError(
                "the contact solver runs out of any capacity, as it does where a simulation has exploded; raise "
                "simulator.substeps, or ask `neurodyn check` what is wrong with the robot"
            )
        return Capacity(2 * self.contacts, 2 * self.rows)
