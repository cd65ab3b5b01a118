# SPDX-License-Identifier: Apache-2.0
"""Networks of several members in one batched pass: each has weights of its own, and none knows of the others.

Arrays begin with the axis of the members. Where it has length 1, all members share what it holds.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class MemberLinear(nn.Module):
    """y_m = x_m W_m + b_m for each member m.

    Attributes:
        weight: Shape [members, inputs, outputs].
        bias: Shape [members, 1, outputs].
    """

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(max(1, inputs))
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Map rows, shape [members or 1, rows, inputs] -> [members, rows, outputs]."""
        if self.weight.shape[0] == 1:
            return torch.addmm(self.bias[0], x.flatten(0, 1), self.weight[0]).unflatten(0, x.shape[:2])
        return torch.baddbmm(self.bias, x.expand(self.weight.shape[0], -1, -1), self.weight)

    def zero(self) -> None:
        """Make the output exactly zero."""
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


class MemberGRU(nn.Module):
    """One layer of gated recurrent units per member, in the variant of `nets.gru`, gates in the order r, z, n.

    r = sigmoid(W_ir x + b_r + W_hr h),  z likewise,  n = tanh(W_in x + b_n + r (W_hn h + b_hn)),  h' = (1 - z) n + z h.

    Attributes:
        project: From inputs to the gates' inputs, with all biases that add to them.
        weight: From the hidden state to the gates, shape [members, width, 3 width].
        bias: b_hn, shape [members, 1, width].
    """

    def __init__(self, members: int, inputs: int, width: int) -> None:
        super().__init__()
        self.width = width
        bound = 1.0 / math.sqrt(width)
        self.project = MemberLinear(members, inputs, 3 * width)
        nn.init.uniform_(self.project.weight, -bound, bound)
        nn.init.uniform_(self.project.bias, -bound, bound)
        self.weight = nn.Parameter(torch.empty(members, width, 3 * width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, width).uniform_(-bound, bound))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        """Map a sequence, shape [members, time, rows, inputs], from `h` [members, rows, width].

        Returns:
            Hidden states after each frame, shape [members, time, rows, width].
        """
        gates = self.project(x.flatten(1, 2)).unflatten(1, x.shape[1:3])
        if not self._tracked(x, h):
            return torch.stack([h := self.advance(g, h) for g in gates.unbind(1)], 1)
        return _Recurrence.apply(gates, h, self.weight, self.bias)  # type: ignore[return-value]

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        """Map one frame, shape [members, rows, inputs]; returns the hidden state, shape [members, rows, width]."""
        if not self._tracked(x, h):
            return self.advance(self.project(x), h)
        return self.forward(x.unsqueeze(1), h)[:, 0]

    def _tracked(self, x: Tensor, h: Tensor) -> bool:
        return torch.is_grad_enabled() and (x.requires_grad or h.requires_grad or self.weight.requires_grad)

    def advance(self, gates: Tensor, h: Tensor) -> Tensor:
        """Return the next hidden state without gradients; `gates` [members, rows, 3 width] is overwritten."""
        width = self.width
        recurrent = torch.bmm(h, self.weight) if len(h) > 1 else torch.mm(h[0], self.weight[0])[None]
        rz = gates[..., : 2 * width].add_(recurrent[..., : 2 * width]).sigmoid_()
        n = recurrent[..., 2 * width :].add_(self.bias).mul_(rz[..., :width]).add_(gates[..., 2 * width :]).tanh_()
        return torch.lerp(n, h, rz[..., width:])


class _Recurrence(torch.autograd.Function):
    """The recurrence of a layer over time, with the gradients of its weights as one product over all frames."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # type: ignore[override]
        members, frames, rows, width = *gates.shape[:3], h.shape[-1]
        acts = gates.new_empty(frames, members, rows, 4 * width)  # r, z, n, and what r multiplies
        out = gates.new_empty(members, frames, rows, width)
        first = h
        for t in range(frames):
            act = acts[t]
            recurrent = torch.bmm(h, weight)
            torch.add(gates[:, t, :, : 2 * width], recurrent[..., : 2 * width], out=act[..., : 2 * width]).sigmoid_()
            inner = torch.add(recurrent[..., 2 * width :], bias, out=act[..., 3 * width :])
            n = act[..., 2 * width : 3 * width]
            torch.addcmul(gates[:, t, :, 2 * width :], act[..., :width], inner, out=n).tanh_()
            h = torch.lerp(n, h, act[..., width : 2 * width], out=out[:, t])
        ctx.save_for_backward(acts, out, first, weight)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        acts, out, first, weight = ctx.saved_tensors
        members, frames, rows, width = out.shape
        d_input = out.new_empty(members, frames, rows, 3 * width)
        d_recurrent = out.new_empty(members, frames, rows, 3 * width)
        transposed = weight.mT
        dh = torch.zeros_like(first)
        for t in reversed(range(frames)):
            before = out[:, t - 1] if t else first
            r, z, n, inner = acts[t].split(width, -1)
            dh = dh + grad[:, t]
            dn = torch.addcmul(dh, dh, z, value=-1.0)
            dn = torch.addcmul(dn, dn * n, n, value=-1.0)  # through the tanh
            dz = (before - n).mul_(dh).mul_(z)
            dr = (dn * inner).mul_(r)
            into = d_recurrent[:, t]
            into[..., :width] = dr.addcmul_(dr, r, value=-1.0)
            into[..., width : 2 * width] = dz.addcmul_(dz, z, value=-1.0)
            torch.mul(dn, r, out=into[..., 2 * width :])
            d_input[:, t, :, : 2 * width] = into[..., : 2 * width]
            d_input[:, t, :, 2 * width :] = dn
            dh = torch.baddbmm(dh * z, into, transposed)
        d_weight = torch.bmm(first.mT, d_recurrent[:, 0])
        if frames > 1:
            earlier = out[:, :-1].reshape(members, -1, width)
            d_weight.baddbmm_(earlier.mT, d_recurrent[:, 1:].reshape(members, -1, 3 * width))
        d_bias = d_recurrent[..., 2 * width :].sum((1, 2)).unsqueeze(1)
        return d_input, dh, d_weight, d_bias
