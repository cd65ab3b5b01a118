# SPDX-License-Identifier: Apache-2.0
"""Quantities of a hybrid model's declared contacts on a plane, from one compiled program on a CPU."""

from collections.abc import Mapping, Sequence
from functools import cache

from torch import Tensor

from neurodyn.core.description.contacts import ContactPoint
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.spec import StateSpec
from neurodyn.dynamics.quantities import STILL, Maker, Quantities
from neurodyn.multibody.contacts.plane_readings import CONTACT, HEIGHT, SPEED, PlaneReadings


def compiled_contacts(
    measured: Mapping[str, Maker], mechanism: Mechanism, spec: StateSpec, bodies: Sequence[Sequence[ContactPoint]],
    plane: tuple[float, ...],
) -> dict[str, Maker]:  # fmt: skip
    """Return makers that agree with `measured`, which remain for GPUs and for bodies without contact points.

    Arguments: see `PlaneReadings`.
    """
    if not all(bodies):
        return dict(measured)
    readings = cache(lambda: PlaneReadings(mechanism, spec, bodies, plane, STILL))

    def rows(of: Quantities) -> Tensor:
        return of.derive("plane_readings", lambda given: readings()(given.state.q, given.state.qd))

    def read(name: str, row: int, of: Quantities) -> Tensor:
        if not of.state.q.is_cpu:
            return measured[name](of)
        values = rows(of)[:, row]
        return values.detach() if row == CONTACT else values

    rows_of = {"contact": CONTACT, "contact_height": HEIGHT, "contact_speed": SPEED}
    return {**measured, **{name: lambda of, name=name, row=row: read(name, row, of) for name, row in rows_of.items()}}
