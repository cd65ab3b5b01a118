# SPDX-License-Identifier: Apache-2.0
"""Free quantities of a mechanism as numbers without bounds, which optimisers can move at will.

A parameter with both bounds goes through a sigmoid, one with a single bound through a softplus, and one without none
is scaled alone. Where all six entries of a link's inertia are free, they come from a Cholesky factor L of the second
moment of mass about the centre of mass, S = L L^T and I = tr(S) 1 - S, so that every choice of numbers is the inertia
of some body (Wensing, Kim and Slotine 2018, "Linear matrix inequalities for physically consistent inertial parameter
identification").
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from neurodyn.core.parameter import Parameter

_ENTRIES = ("xx", "yy", "zz", "xy", "xz", "yz")
_DIAGONAL = [(0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)]
_TRIANGLE = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]


class Parameters(nn.Module):
    """Free quantities; `forward` returns their physical values.

    Attributes:
        specs: The parameters, in order.
        raw: What optimisers move, shape [parameters], float64; zero is nominal.
        blocks: For each link whose whole inertia is free, the indexes of its six entries.
    """

    nominal: Tensor
    _start: Tensor

    def __init__(self, specs: Sequence[Parameter]) -> None:
        super().__init__()
        self.specs = tuple(specs)
        names = [spec.name for spec in specs]
        links = [name.removesuffix(".inertia.xx") for name in names if name.endswith(".inertia.xx")]
        blocks = [[f"{link}.inertia.{entry}" for entry in _ENTRIES] for link in links]
        self.blocks = [[names.index(name) for name in block] for block in blocks if set(block) <= set(names)]
        inside = {index for block in self.blocks for index in block}
        self._single = [index for index in range(len(names)) if index not in inside]
        self.register_buffer("nominal", torch.tensor([spec.nominal for spec in specs], dtype=torch.float64))
        self.register_buffer("_start", self._inverse(self.nominal), persistent=False)
        self.raw = nn.Parameter(torch.zeros(len(specs), dtype=torch.float64))

    def forward(self, raw: Tensor | None = None) -> Tensor:
        """Return physical values, shape [..., parameters], of `raw`, likewise; None for the module's own."""
        moved = (self.raw if raw is None else raw) + self._start
        columns: list[Tensor | None] = [None] * len(self.specs)
        for index in self._single:
            columns[index] = _bounded(self.specs[index], moved[..., index])
        for block in self.blocks:
            for index, value in zip(block, _inertia(moved[..., block]), strict=True):
                columns[index] = value
        return torch.stack([c for c in columns if c is not None], -1) if columns else moved

    def raw_of(self, values: Tensor) -> Tensor:
        """Return what `forward` turns into these physical values, shape [..., parameters]."""
        return self._inverse(values) - self._start

    def _inverse(self, values: Tensor) -> Tensor:
        moved = torch.empty_like(values)
        for index in self._single:
            moved[..., index] = _unbounded(self.specs[index], values[..., index])
        for block in self.blocks:
            moved[..., block] = _factor(values[..., block])
        return moved


def size_of(spec: Parameter) -> float:
    """Return the scale on which a parameter moves."""
    return max(abs(spec.nominal), 1e-3)


def _bounded(spec: Parameter, x: Tensor) -> Tensor:
    if spec.lower is not None and spec.upper is not None:
        return spec.lower + (spec.upper - spec.lower) * torch.sigmoid(x)
    if spec.lower is not None:
        return spec.lower + size_of(spec) * functional.softplus(x, threshold=40.0)
    if spec.upper is not None:
        return spec.upper - size_of(spec) * functional.softplus(x, threshold=40.0)
    return size_of(spec) * x


def _unbounded(spec: Parameter, value: Tensor) -> Tensor:
    # A value on its bound would lie at infinity; it starts a little inside.
    if spec.lower is not None and spec.upper is not None:
        share = ((value - spec.lower) / (spec.upper - spec.lower)).clamp(1e-4, 1.0 - 1e-4)
        return torch.logit(share)
    if spec.lower is not None or spec.upper is not None:
        distance = value - spec.lower if spec.lower is not None else spec.upper - value  # type: ignore[operator]
        share = (distance / size_of(spec)).clamp_min(1e-3)
        return share + torch.log(-torch.expm1(-share))
    return value / size_of(spec)


def _inertia(raw: Tensor) -> Tensor:
    """Return xx, yy, zz, xy, xz, yz along the first axis, of a factor with logarithms on its diagonal."""
    factor = raw.new_zeros(*raw.shape[:-1], 3, 3)
    for place, (i, j) in enumerate(_TRIANGLE):
        factor[..., i, j] = torch.exp(raw[..., place]) if i == j else raw[..., place]
    moment = factor @ factor.mT
    trace = moment.diagonal(dim1=-2, dim2=-1).sum(-1)
    return torch.stack([(trace if i == j else 0.0) - moment[..., i, j] for i, j in _DIAGONAL])


def _factor(entries: Tensor) -> Tensor:
    inertia = entries.new_zeros(*entries.shape[:-1], 3, 3)
    for place, (i, j) in enumerate(_DIAGONAL):
        inertia[..., i, j] = inertia[..., j, i] = entries[..., place]
    identity = torch.eye(3, dtype=entries.dtype)
    half = 0.5 * inertia.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    moment = half * identity - inertia
    # Thin rods have no second moment across; a trace of one keeps the factor regular.
    size = moment.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None].clamp_min(1e-12)
    factor = torch.linalg.cholesky(moment + 1e-6 * size * identity)
    return torch.stack([torch.log(factor[..., i, j]) if i == j else factor[..., i, j] for i, j in _TRIANGLE], -1)
