# SPDX-License-Identifier: Apache-2.0
"""Trainable parts of a hybrid model: free quantities as unbounded numbers for optimisers, and initial weights.

A parameter with two bounds goes through a sigmoid, one with a single bound through a softplus, and one without bounds
is only scaled. If all six entries of a link's inertia are free, they come from a Cholesky factor L of the second moment
of mass about the centre of mass, S = L L^T and I = tr(S) 1 - S, so that any numbers give a physically possible inertia
(Wensing, Kim and Slotine 2018, "Linear matrix inequalities for physically consistent inertial parameter
identification"). Their entries cannot have bounds.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from neurodyn.core.description.blueprint import STRUCTURES
from neurodyn.core.description.mechanism import INERTIA_ENTRIES
from neurodyn.core.description.parameter import Parameter
from neurodyn.core.errors import InputError
from neurodyn.multibody.engine import EngineConfig

_DIAGONAL = [(0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)]
_TRIANGLE = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]

_THIN = 1e-6
"""Minimum second moment of mass across any axis, as a share of their sum."""


class Parameters(nn.Module):
    """Free quantities; `forward` returns their physical values.

    Attributes:
        specs: The parameters, in order.
        raw: Numbers for optimisers, shape [parameters], float64; zero is nominal.
        blocks: Indices of the six inertia entries of each link whose whole inertia is free.
    """

    nominal: Tensor
    _start: Tensor

    def __init__(self, specs: Sequence[Parameter]) -> None:
        """Prepare the free quantities.

        Raises:
            InputError: The whole inertia of a link is free, and an entry has bounds or the nominal inertia is
                impossible.
        """
        super().__init__()
        self.specs = tuple(specs)
        names = [spec.name for spec in specs]
        links = [name.removesuffix(".inertia.xx") for name in names if name.endswith(".inertia.xx")]
        blocks = [[f"{link}.inertia.{entry}" for entry in INERTIA_ENTRIES] for link in links]
        self.blocks = [[names.index(name) for name in block] for block in blocks if set(block) <= set(names)]
        inside = {index for block in self.blocks for index in block}
        self._single = [index for index in range(len(names)) if index not in inside]
        self.register_buffer("nominal", torch.tensor([spec.nominal for spec in specs], dtype=torch.float64))
        self._require_unbounded()
        self._sizes = [float(self.nominal[block[:3]].sum() / 6.0) ** 0.5 for block in self.blocks]
        self.register_buffer("_start", self._inverse(self.nominal, 1e-3), persistent=False)
        self.raw = nn.Parameter(torch.zeros(len(specs), dtype=torch.float64))
        self._kept: tuple[Tensor, Tensor] | None = None  # `raw` and its values

    def values(self) -> Tensor:
        """Return the physical values, shape [parameters]; those without a gradient are computed once and shared."""
        raw = self.raw
        if raw.device.type != "cpu" or (torch.is_grad_enabled() and raw.requires_grad):
            return self()
        if self._kept is None or self._kept[0].dtype != raw.dtype or not torch.equal(self._kept[0], raw):
            with torch.no_grad():  # fused optimisers change numbers without counting it as a new version
                self._kept = raw.detach().clone(), self()
        return self._kept[1]

    def forward(self, raw: Tensor | None = None) -> Tensor:
        """Return physical values [..., parameters] of `raw` [..., parameters], by default the module's."""
        moved = (self.raw if raw is None else raw) + self._start
        columns: list[Tensor | None] = [None] * len(self.specs)
        for index in self._single:
            columns[index] = _to_bounded(self.specs[index], moved[..., index])
        for block, size in zip(self.blocks, self._sizes, strict=True):
            for index, value in zip(block, _inertia(moved[..., block], size), strict=True):
                columns[index] = value
        return torch.stack([c for c in columns if c is not None], -1) if columns else moved

    def raw_of(self, values: Tensor) -> Tensor:
        """Return the inverse of `forward`, shape [..., parameters]; an `InputError` for an impossible inertia."""
        return self._inverse(values, 1e-12) - self._start

    @torch.no_grad()
    def set_values(self, values: Tensor) -> None:
        """Set the free quantities to physical values, shape [parameters]."""
        self.raw.copy_(self.raw_of(values.detach()))

    def _inverse(self, values: Tensor, inside: float) -> Tensor:
        moved = torch.empty_like(values)
        for index in self._single:
            moved[..., index] = _to_unbounded(self.specs[index], values[..., index], inside)
        for block, size in zip(self.blocks, self._sizes, strict=True):
            moved[..., block] = _factor(values[..., block], size, self._link(block))
        return moved

    def _link(self, block: list[int]) -> str:
        return self.specs[block[0]].name.removesuffix(".inertia.xx")

    def _require_unbounded(self) -> None:
        for block in self.blocks:
            for spec in (self.specs[index] for index in block):
                if spec.upper is not None or spec.lower not in (None, 0.0):
                    raise InputError(
                        f"parameter {spec.name!r}: has bounds, but the whole inertia of link {self._link(block)!r} is "
                        "free, whose entries bound each other; valid: no bounds, or fewer free entries"
                    )


def size_of(spec: Parameter) -> float:
    """Return the scale of a parameter: its nominal value, or if that is 0 a hundredth of its range."""
    if spec.nominal == 0.0 and spec.lower is not None and spec.upper is not None:
        return max(0.01 * (spec.upper - spec.lower), 1e-3)
    return max(abs(spec.nominal), 1e-3)


def _to_bounded(spec: Parameter, x: Tensor) -> Tensor:
    if spec.lower is not None and spec.upper is not None:
        return spec.lower + (spec.upper - spec.lower) * torch.sigmoid(x)
    if spec.lower is not None:
        return spec.lower + size_of(spec) * functional.softplus(x, threshold=40.0)
    if spec.upper is not None:
        return spec.upper - size_of(spec) * functional.softplus(x, threshold=40.0)
    return size_of(spec) * x


def _to_unbounded(spec: Parameter, value: Tensor, inside: float) -> Tensor:
    # A value on its bound would lie at infinity; it is moved inside by this share of the range, or of its size.
    if spec.lower is not None and spec.upper is not None:
        share = ((value - spec.lower) / (spec.upper - spec.lower)).clamp(inside, 1.0 - inside)
        return torch.logit(share)
    if spec.lower is not None or spec.upper is not None:
        distance = value - spec.lower if spec.lower is not None else spec.upper - value  # type: ignore[operator]
        share = (distance / size_of(spec)).clamp_min(inside)
        return share + torch.log(-torch.expm1(-share))
    return value / size_of(spec)


def _inertia(raw: Tensor, size: float) -> Tensor:
    """Return xx, yy, zz, xy, xz, yz along the first axis, from a factor with logarithms on its diagonal.

    Off-diagonal entries are in units of `size`, the root of a mean second moment [kg^(1/2) m].
    """
    factor = raw.new_zeros(*raw.shape[:-1], 3, 3)
    for place, (i, j) in enumerate(_TRIANGLE):
        factor[..., i, j] = torch.exp(raw[..., place]) if i == j else size * raw[..., place]
    moment = factor @ factor.mT
    x, y, z = moment.diagonal(dim1=-2, dim2=-1).unbind(-1)
    # Sums of two moments, not the trace minus one: rounding cannot break their triangle inequality.
    return torch.stack([y + z, x + z, x + y, *(-moment[..., i, j] for i, j in _DIAGONAL[3:])])


def _factor(entries: Tensor, size: float, link: str) -> Tensor:
    inertia = entries.new_zeros(*entries.shape[:-1], 3, 3)
    for place, (i, j) in enumerate(_DIAGONAL):
        inertia[..., i, j] = inertia[..., j, i] = entries[..., place]
    identity = torch.eye(3, dtype=entries.dtype, device=entries.device)
    half = 0.5 * inertia.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    moment = half * identity - inertia
    # Thin rods have no second moment across, whose logarithm would be infinite.
    least = torch.linalg.eigvalsh(moment)[..., :1, None]
    lack = (_THIN * half - least).clamp_min(0.0)
    factor, failed = torch.linalg.cholesky_ex(moment + lack * identity)
    if bool(failed.any()) or bool((least < -_THIN * half).any()):
        raise InputError(
            f"link {link!r}: its inertia is that of no body, so it cannot be free as a whole; valid: moments along the "
            "main axes of which none exceeds the sum of the others"
        )
    return torch.stack([torch.log(factor[..., i, j]) if i == j else factor[..., i, j] / size for i, j in _TRIANGLE], -1)


def first_weights(config: EngineConfig, seed: int) -> Tensor:
    """Return initial weights of a blueprint's networks with zero or little effect.

    Hidden layers are uniform within 1 / sqrt(inputs). Output layers are zero, except that they are small for networks
    that replace a quantity, and for structures whose gradient vanishes at zero.
    """
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for augmentation in config.blueprint.owners:
        widths = augmentation.widths
        for number, (before, after) in enumerate(pairwise(widths)):
            last = number == len(widths) - 2
            size = torch.full((after,), before**-0.5, dtype=torch.float64)
            if last:  # rows that feed a memory are scaled like hidden layers
                start = STRUCTURES[augmentation.structure].start
                size[: augmentation.outputs] = start if augmentation.mode != "replace" else 1e-2
            sizes = torch.cat([size.repeat_interleave(before), size])
            draw = torch.rand(after * (before + 1), generator=generator, dtype=torch.float64)
            parts.append(sizes * (2.0 * draw - 1.0))
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)
