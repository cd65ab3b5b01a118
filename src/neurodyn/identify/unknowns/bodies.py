# SPDX-License-Identifier: Apache-2.0
r"""Inertias of bodies with something added: a ball, or a mass and a first moment.

Two bodies of masses $m_1$ and $m_2$ whose centres are $d$ apart have, about their common centre, the inertia (parallel
axes)

$$I = I_1 + I_2 + \frac{m_1 m_2}{m_1 + m_2} (d^T d\,1 - d d^T)$$
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.mechanism import INERTIA_ENTRIES
from neurodyn.core.errors import InputError, choices
from neurodyn.data.commands import Loads
from neurodyn.dynamics.hybrid.declared import declared_mechanism
from neurodyn.robots import Robot


class BodyTensors(NamedTuple):
    """A body: mass [kg], centre in its frame [m], and entries of the inertia about the centre [kg m^2] by name."""

    mass: Tensor
    centre: Sequence[Tensor]
    inertia: Mapping[str, Tensor]

    def quantities(self, link: str) -> dict[str, Tensor]:
        """Return the engine's quantities of a link that is this body."""
        places = {f"{link}.com.{axis}": value for axis, value in zip("xyz", self.centre, strict=True)}
        moments = {f"{link}.inertia.{entry}": value for entry, value in self.inertia.items()}
        return {f"{link}.mass": self.mass, **places, **moments}


def with_ball(body: BodyTensors, mass: Tensor, place: Sequence[Tensor], radius: Tensor) -> BodyTensors:
    """Return a body with a ball at a place, with a radius of gyration [m]."""
    total = body.mass + mass
    centre = [(body.mass * c + mass * p) / total for c, p in zip(body.centre, place, strict=True)]
    apart = [p - c for p, c in zip(place, body.centre, strict=True)]
    swung, ball = _steiner(body.mass * mass / total, apart), mass * radius.square()
    inertia = {
        entry: value + swung[entry] + (ball if entry[0] == entry[1] else 0.0) for entry, value in body.inertia.items()
    }
    return BodyTensors(total, centre, inertia)


def loads_of(robot: Robot) -> Loads:
    """Return what gives the quantities of a robot's links with a payload, for logs that hold its mass.

    See `data.commands.Loads`; it raises an InputError for a joint that the robot does not have.
    """
    links = {link.joint.name: link for link in declared_mechanism(robot, None)[0].links}

    def loads(
        joint: str, place: tuple[float, float, float], radius: float, masses: np.ndarray
    ) -> dict[str, np.ndarray]:
        if joint not in links:
            raise InputError(f"parameters: {joint}.payload: no joint {joint!r}; valid: {choices(list(links))}")
        link = links[joint]
        mass, (x, y, z) = torch.from_numpy(masses).double(), (torch.tensor(one).double() for one in place)
        body = BodyTensors(
            mass.new_tensor(link.mass), mass.new_tensor(link.com).unbind(),
            dict(zip(INERTIA_ENTRIES, mass.new_tensor(link.inertia).unbind(), strict=True)),
        )  # fmt: skip
        loaded = with_ball(body, mass, (x, y, z), mass.new_tensor(radius))
        return {name: value.expand(len(mass)).numpy() for name, value in loaded.quantities(joint).items()}

    return loads


def with_moment(body: BodyTensors, mass: Tensor, moment: Sequence[Tensor]) -> BodyTensors:
    """Return a body with a further mass [kg] and first moment [kg m], and the same inertia about its frame's origin.

    This is linear in both, as the torques that they cause are.
    """
    total = body.mass + mass
    centre = [(body.mass * c + h) / total for c, h in zip(body.centre, moment, strict=True)]
    before, after = _steiner(body.mass, body.centre), _steiner(total, centre)
    return BodyTensors(total, centre, {e: value + before[e] - after[e] for e, value in body.inertia.items()})


def stretch(inertia: Mapping[str, Tensor], factors: Sequence[Tensor]) -> dict[str, Tensor]:
    r"""Return the inertia of a body whose lengths along x, y and z change by factors $s$.

    With the second moments $\Sigma = \tfrac12 \mathrm{tr}(I) 1 - I$, which any factors keep positive,
    $I' = \mathrm{tr}(\Sigma') 1 - \Sigma'$ and $\Sigma'_{ij} = s_i s_j \Sigma_{ij}$: it is always that of a body.
    """
    half = 0.5 * (inertia["xx"] + inertia["yy"] + inertia["zz"])
    second = {
        entry: factors["xyz".index(entry[0])] * factors["xyz".index(entry[1])]
        * ((half if entry[0] == entry[1] else 0.0) - inertia[entry])
        for entry in INERTIA_ENTRIES
    }  # fmt: skip
    trace = second["xx"] + second["yy"] + second["zz"]
    return {entry: (trace if entry[0] == entry[1] else 0.0) - second[entry] for entry in INERTIA_ENTRIES}


def _steiner(mass: Tensor, arm: Sequence[Tensor]) -> dict[str, Tensor]:
    square = arm[0].square() + arm[1].square() + arm[2].square()
    moments = {}
    for entry in INERTIA_ENTRIES:
        i, j = ("xyz".index(letter) for letter in entry)
        moments[entry] = mass * ((square if i == j else 0.0) - arm[i] * arm[j])
    return moments
