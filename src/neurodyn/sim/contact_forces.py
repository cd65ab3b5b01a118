# SPDX-License-Identifier: Apache-2.0
"""Normal forces of the contacts of a robot's declared bodies, read from MuJoCo Warp after a step."""

from typing import Any

import torch
from torch import Tensor

from neurodyn.core.errors import InputError, choices
from neurodyn.robots.sections import matching
from neurodyn.sim.engine import short_label


class ContactForces:
    """Sums the normal forces of the contacts of each declared body, for all worlds at once.

    Attributes:
        names: Names of the declared contacts, in order.
    """

    def __init__(self, solver: Any, model: Any, contacts: dict[str, tuple[str, ...]]) -> None:
        """Find the shapes of each declared contact.

        Args:
            solver: A `SolverMuJoCo`.
            model: Its Newton model.
            contacts: Patterns (as of a shell) of the labels of collision shapes, by name.

        Raises:
            InputError: A pattern matches no shape that can touch anything.
        """
        import warp as wp

        self.names = tuple(contacts)
        self._worlds = int(model.world_count)
        data = solver.mjw_data
        # All worlds are alike, so that the first says what a geometry is.
        shapes = solver.mjc_geom_to_newton_shape.numpy()[0]
        labels = [short_label(model.shape_label[shape]) if shape >= 0 else "" for shape in shapes]
        groups = list(contacts.values())
        rows = [next((n for n, patterns in enumerate(groups) if matching(label, patterns)), -1) for label in labels]
        for number, (name, patterns) in enumerate(contacts.items()):
            if number not in rows:
                raise InputError(
                    f"contacts: {name!r} ({', '.join(patterns)}) matches no collision shape; valid: patterns of "
                    f"{choices(label for label in labels if label)}"
                )
        self._group = torch.tensor(rows, dtype=torch.long, device=wp.device_to_torch(model.device))
        self._elliptic = int(solver.mjw_model.opt.cone) == 1
        self._count = wp.to_torch(data.nacon)
        self._geometries = wp.to_torch(data.contact.geom).view(-1, 2)
        self._world = wp.to_torch(data.contact.worldid)
        self._address = wp.to_torch(data.contact.efc_address)
        self._force = wp.to_torch(data.efc.force)

    def read(self) -> Tensor:
        """Return the normal forces of the last solver step [N], shape [worlds, names]."""
        count = int(self._count[0])
        address, world = self._address[:count].long(), self._world[:count].long()
        rows = self._force[world[:, None], address.clamp_min(0)]
        rows = torch.where(address >= 0, rows, 0.0)
        # A pyramid's edges carry the normal force between them; a cone has it in its first row.
        normal = rows[:, 0] if self._elliptic else rows.sum(1)
        width = len(self.names) + 1  # and a column for shapes of no declared contact
        total = torch.zeros(self._worlds * width, device=rows.device, dtype=rows.dtype)
        for side in (0, 1):
            group = self._group[self._geometries[:count, side].long()]
            total.index_add_(0, world * width + group % width, normal)
        return total.view(self._worlds, width)[:, :-1]
