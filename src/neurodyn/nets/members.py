# SPDX-License-Identifier: Apache-2.0
"""Layers of several members in one batched pass, and networks as matrices for code that runs them without torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional


class MemberLinear(nn.Module):
    r"""$y_m = x_m W_m + b_m$ for each member m; `weight` [members, inputs, outputs], `bias` [members, 1, outputs]."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(max(1, inputs))
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound))

    @classmethod
    def together(cls, layers: Sequence[nn.Linear]) -> Self:
        """Combine layers as members; each member's matrix keeps its layout in memory."""
        stacked = cls(len(layers), layers[0].in_features, layers[0].out_features)
        stacked.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]).mT)
        stacked.bias = nn.Parameter(torch.stack([layer.bias.detach()[None] for layer in layers]))
        return stacked

    def forward(self, x: Tensor) -> Tensor:
        """Map rows, shape [members or 1, ..., inputs] -> [members, ..., outputs]."""
        if x.ndim > 3:
            return self.forward(x.flatten(1, -2)).unflatten(1, x.shape[1:-1])
        if self.weight.shape[0] == 1:
            return torch.addmm(self.bias[0], x.flatten(0, 1), self.weight[0]).unflatten(0, x.shape[:2])
        return torch.baddbmm(self.bias, x.expand(self.weight.shape[0], -1, -1), self.weight)

    def zero(self) -> None:
        """Set the output to exactly zero."""
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


class MemberLayer(MemberLinear):
    """A hidden layer without memory: y_m = silu(x_m W_m + b_m)."""

    recurrent: ClassVar[bool] = False

    def forward(self, x: Tensor) -> Tensor:
        """Map rows, shape [members or 1, rows, inputs] -> [members, rows, outputs]."""
        return functional.silu(super().forward(x))


class MemberGRU(nn.Module):
    """One layer of gated recurrent units per member, as in `nets.gru`, with gates in the order r, z, n.

    Attributes:
        project: Map from inputs to the gates, including all biases that add to it.
        weight: Map from the hidden state to the gates, shape [members, width, 3 width].
        bias: b_hn, shape [members, 1, width].
    """

    recurrent: ClassVar[bool] = True

    def __init__(self, members: int, inputs: int, width: int) -> None:
        super().__init__()
        self.width = width
        bound = 1.0 / math.sqrt(width)
        self.project = MemberLinear(members, inputs, 3 * width)
        nn.init.uniform_(self.project.weight, -bound, bound)
        nn.init.uniform_(self.project.bias, -bound, bound)
        self.weight = nn.Parameter(torch.empty(members, width, 3 * width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, width).uniform_(-bound, bound))

    @classmethod
    def together(cls, cells: Sequence[nn.GRU], layer: int) -> Self:
        """Combine one layer of several recurrent networks as members."""
        names = (f"{name}_l{layer}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        w_in, w_h, b_in, b_h = (torch.stack([getattr(c, name).detach() for c in cells]) for name in names)
        width = w_h.shape[-1]
        stacked = cls(len(cells), w_in.shape[-1], width).to(w_h)
        with torch.no_grad():
            stacked.project.weight.copy_(w_in.mT)
            stacked.weight.copy_(w_h.mT)
            stacked.project.bias.copy_(b_in[:, None])
            stacked.project.bias[..., : 2 * width] += b_h[:, None, : 2 * width]
            stacked.bias.copy_(b_h[:, None, 2 * width :])
        return stacked

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        """Map a sequence from hidden state `h` [members, rows, width]; shape [members, time, rows, inputs or width]."""
        if self._tracked(x, h):
            weights = (self.project.weight, self.project.bias, self.weight, self.bias)
            return _Recurrence.apply(x, h, *weights)  # type: ignore[return-value]
        gates = self.project(x.flatten(1, 2)).unflatten(1, x.shape[1:3])
        return torch.stack([h := self.advance(g, h) for g in gates.unbind(1)], 1)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        """Map one frame, shape [members, rows, inputs]; return the hidden state, shape [members, rows, width]."""
        if not self._tracked(x, h):
            return self.advance(self.project(x), h)
        return self.forward(x.unsqueeze(1), h)[:, 0]

    def _tracked(self, x: Tensor, h: Tensor) -> bool:
        return torch.is_grad_enabled() and (x.requires_grad or h.requires_grad or self.weight.requires_grad)

    def advance(self, gates: Tensor, h: Tensor) -> Tensor:
        """Return the next hidden state without gradients; overwrites `gates` [members, rows, 3 width]."""
        width = self.width
        recurrent = torch.bmm(h, self.weight) if len(h) > 1 else torch.mm(h[0], self.weight[0])[None]
        rz = gates[..., : 2 * width].add_(recurrent[..., : 2 * width]).sigmoid_()
        n = recurrent[..., 2 * width :].add_(self.bias).mul_(rz[..., :width]).add_(gates[..., 2 * width :]).tanh_()
        return torch.lerp(n, h, rz[..., width:])


def _activations(
    x: Tensor, h: Tensor, weight_in: Tensor, bias_in: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return r, z and n side by side [members, time, rows, 3 width], the factor of r, and the hidden states."""
    members, frames, rows, width = *x.shape[:3], h.shape[-1]
    acts = torch.baddbmm(bias_in, x.flatten(1, 2), weight_in).view(members, frames, rows, 3 * width)
    inner = acts.new_empty(members, frames, rows, width)
    out = acts.new_empty(members, frames, rows, width)
    for t in range(frames):
        act = acts[:, t]
        recurrent = torch.bmm(h, weight)
        rz = act[..., : 2 * width].add_(recurrent[..., : 2 * width]).sigmoid_()
        torch.add(recurrent[..., 2 * width :], bias, out=inner[:, t])
        n = act[..., 2 * width :].addcmul_(rz[..., :width], inner[:, t]).tanh_()
        h = torch.lerp(n, h, rz[..., width:], out=out[:, t])
    return acts, inner, out


class _Recurrence(torch.autograd.Function):
    """A recurrent layer over time, with the gradients of its weights as one product over all frames.

    The backward pass overwrites the buffers of the forward pass, because allocating memory for long sequences takes
    longer than filling it. A second backward pass through the same graph recomputes the forward pass.
    """

    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        acts, inner, out = _activations(*given)
        ctx.save_for_backward(*given, out)
        ctx.left = (acts, inner)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, first, weight_in, bias_in, weight, bias, out = ctx.saved_tensors
        if ctx.left is None:
            ctx.left = _activations(x, first, weight_in, bias_in, weight, bias)[:2]
        (acts, inner), ctx.left = ctx.left, None
        members, frames, _, width = out.shape
        into_rz, into_n = weight[..., : 2 * width].mT, weight[..., 2 * width :].mT
        dh = torch.zeros_like(first)
        for t in reversed(range(frames)):
            before = out[:, t - 1] if t else first
            r, z, n = acts[:, t].split(width, -1)
            hidden = inner[:, t]
            dh = dh + grad[:, t]
            dn = torch.addcmul(dh, dh, z, value=-1.0)
            dn = torch.addcmul(dn, dn * n, n, value=-1.0)  # through the tanh
            dz = (before - n).mul_(dh).mul_(z)
            dr = (dn * hidden).mul_(r)
            torch.mul(dn, r, out=hidden)
            n.copy_(dn)
            kept = dh.mul_(z)
            torch.addcmul(dr, dr, r, value=-1.0, out=r)
            torch.addcmul(dz, dz, z, value=-1.0, out=z)
            dh = torch.baddbmm(kept, acts[:, t, :, : 2 * width], into_rz).baddbmm_(hidden, into_n)
        d_acts, d_inner = acts.view(members, -1, 3 * width), inner.view(members, -1, width)
        d_weight = torch.empty_like(weight)
        for columns, values in ((slice(2 * width), acts[..., : 2 * width]), (slice(2 * width, None), inner)):
            part = torch.bmm(first.mT, values[:, 0])
            if frames > 1:
                earlier = out[:, :-1].flatten(1, 2)
                part.baddbmm_(earlier.mT, values[:, 1:].flatten(1, 2))
            d_weight[..., columns] = part
        return (
            torch.bmm(d_acts, weight_in.mT).view_as(x) if ctx.needs_input_grad[0] else None,
            dh,
            torch.bmm(x.flatten(1, 2).mT, d_acts),
            d_acts.sum(1, keepdim=True),
            d_weight,
            d_inner.sum(1, keepdim=True),
        )


class Weight(NamedTuple):
    """A parameter or buffer by module and name, looked up at each use: moving a module replaces its tensors."""

    module: nn.Module
    """The module."""
    name: str
    """Its name there."""
    members: bool = False
    """Whether its first axis is the members, with matrices transposed (`MemberLinear`)."""

    @property
    def holder(self) -> dict[str, Tensor | None]:
        """Dictionary of the module that holds it; for parametrizations the buffers, which do not contain it."""
        module: Any = self.module
        return module._parameters if self.name in module._parameters else module._buffers

    @property
    def tensor(self) -> Tensor:
        """Current tensor, with matrices as in `nn.Linear`, shape [members, ...] for members."""
        weight = getattr(self.module, self.name)
        return weight.mT if self.members else weight

    @property
    def rows(self) -> int:
        """Number of rows of a matrix."""
        return self.tensor.shape[-2]

    @property
    def stride(self) -> int:
        """Bytes from one member to the next; 0 without members."""
        tensor = self.tensor
        return tensor.stride(0) * tensor.element_size() if self.members else 0


@dataclass(frozen=True)
class Dense:
    """Gated recurrent layers followed by fully connected layers."""

    cells: tuple[tuple[Weight, ...], ...]
    """$W_i, W_h, b_i, b_h$ of each recurrent layer, gates in the order r, z, n as in `nets.gru`."""
    layers: tuple[tuple[Weight, Weight], ...]
    """$W, b$ of each fully connected layer."""
    activation: str
    """Name of the activation between fully connected layers."""
    width: int = 0
    """Size of a hidden state; 0 without recurrent layers."""


def linear_weights(layer: nn.Linear | MemberLinear) -> tuple[Weight, Weight]:
    """Return matrix and bias of a layer."""
    members = isinstance(layer, MemberLinear)
    return Weight(layer, "weight", members), Weight(layer, "bias", members)
