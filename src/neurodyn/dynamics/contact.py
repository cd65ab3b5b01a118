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
        gap = readings.distance - self.radius
        approach = (readings.normal * readings.velocity).sum(-1)
        seen = readings.valid & (gap < self.margin)
        near = torch.where(seen, 1 - gap / self.margin, 0.0)
        scale = 10.0 / self.margin  # an input of 1 is a tenth of the margin: depths are small beside distances
        deep = torch.where(seen, torch.relu(-gap) * scale, 0.0)
        ahead = torch.where(seen, torch.relu(-(gap + self.dt * approach)) * scale, 0.0)
        fading = near.clamp(max=1.0).unsqueeze(-1)
        touching = (ahead > 0).to(near.dtype).unsqueeze(-1)
        # The nearest point of the ground as a function of the probe's place, so that it follows it along a plane.
        point = readings.position - readings.distance.unsqueeze(-1) * readings.normal
        depths = torch.stack([near, deep, ahead], dim=-1)
        vectors = [
            ahead.unsqueeze(-1) * readings.normal,
            touching * readings.velocity,
            fading * readings.normal,
            fading * readings.velocity,
            fading * point,
        ]
        return torch.cat([depths, *vectors], dim=-1).flatten(-2)


def default_margins(layout: ProbeLayout, margin: float | None = None) -> tuple[float, ...]:
    """Return how far each probe sees [m]: four radii, at least 0.12 m, unless declared otherwise."""
    return tuple(max(4.0 * probe.radius, 0.12) if margin is None else margin for probe in layout.probes)
