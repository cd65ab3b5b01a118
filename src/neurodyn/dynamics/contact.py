# SPDX-License-Identifier: Apache-2.0
"""Contact candidates as the network sees them: the probes' distances, normals, points and velocities, masked.

NeRD (arXiv 2508.15755, section 3.1) feeds the contact candidates that collision detection would hand to the solver,
and zero for those farther away than a margin. Here every entry fades to zero at the margin instead of jumping, and
the entries that decide an impact are given as such: how deep the probe is, how deep it would be one frame ahead at its
present velocity, and that depth along the normal.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from neurodyn.core.config import Config
from neurodyn.core.probes import ProbeLayout

if TYPE_CHECKING:
    from neurodyn.rigid.probing import Readings

FEATURES = 18
"""Inputs for each probe."""


class ContactConfig(Config, frozen=True):
    """Constants of the contact inputs.

    Attributes:
        margins: Distance of each probe's surface from the ground at which it begins to be seen [m].
    """

    margins: tuple[float, ...]


class Contact(nn.Module):
    """From what probes read to network inputs."""

    radius: Tensor
    margin: Tensor
    dt: Tensor

    def __init__(self, layout: ProbeLayout, config: ContactConfig, dt: float) -> None:
        super().__init__()
        self.register_buffer("radius", torch.tensor([probe.radius for probe in layout.probes]), persistent=False)
        self.register_buffer("margin", torch.tensor(config.margins), persistent=False)
        self.register_buffer("dt", torch.tensor(dt), persistent=False)

    @property
    def inputs(self) -> int:
        """Number of network inputs."""
        return FEATURES * len(self.radius)

    def forward(self, readings: "Readings") -> Tensor:
        """Return network inputs, shape [worlds, inputs]; every entry is zero where a probe is beyond its margin."""
        depths, factors, vectors = self._parts(readings)
        products = [factor.unsqueeze(-1) * vector for factor, vector in zip(factors, vectors, strict=True)]
        return torch.cat([torch.stack(depths, dim=-1), *products], dim=-1).flatten(-2)

    def write(self, readings: "Readings", out: Tensor) -> None:
        """Write the same inputs into `out`, shape [worlds, inputs], without gradients: no copies on the way."""
        depths, factors, vectors = self._parts(readings)
        table = out.unflatten(-1, (-1, FEATURES))
        for column, depth in enumerate(depths):
            table[..., column] = depth
        for place, (factor, vector) in enumerate(zip(factors, vectors, strict=True)):
            first = len(depths) + 3 * place
            torch.mul(factor.unsqueeze(-1), vector, out=table[..., first : first + 3])

    def _parts(self, readings: "Readings") -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Return depths, and vectors with the factor of each, shapes [worlds, probes] and [worlds, probes, 3]."""
        gap = readings.distance - self.radius
        approach = (readings.normal * readings.velocity).sum(-1)
        seen = readings.valid & (gap < self.margin)
        near = torch.where(seen, 1 - gap / self.margin, 0.0)
        scale = torch.where(seen, 10.0 / self.margin, 0.0)  # 1 is a tenth of the margin: depths are small distances
        deep = torch.relu(-gap) * scale
        ahead = torch.relu(-torch.addcmul(gap, self.dt, approach)) * scale
        fading = near.clamp(max=1.0)
        touching = (ahead > 0).to(near.dtype)
        # The nearest point of the ground as a function of the probe's place, so that it follows it along a plane.
        point = torch.addcmul(readings.position, readings.distance.unsqueeze(-1), readings.normal, value=-1)
        normal, velocity = readings.normal, readings.velocity
        factors = [ahead, touching, fading, fading, fading]
        return [near, deep, ahead], factors, [normal, velocity, normal, velocity, point]


def default_margins(layout: ProbeLayout, margin: float | None = None) -> tuple[float, ...]:
    """Return how far each probe sees [m]: four radii, at least 0.12 m, unless declared otherwise."""
    return tuple(max(4.0 * probe.radius, 0.12) if margin is None else margin for probe in layout.probes)
