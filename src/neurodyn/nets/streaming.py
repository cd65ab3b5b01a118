# SPDX-License-Identifier: Apache-2.0
"""Networks as functions of tensors alone: one frame in, one frame out, with the memory as plain tensors.

That is the form of other runtimes. A multilayer perceptron has no memory, a recurrent net its hidden states. A
transformer keeps the last frames as a register that shifts by one at every step, with keys that are not rotated yet:
attention depends on how far apart frames are, so positions in the register serve as well as positions in time, and no
frame need be counted.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from neurodyn.nets.attention import SlidingAttention
from neurodyn.nets.gru import GRU
from neurodyn.nets.mlp import MLP
from neurodyn.nets.predictor import Predictor
from neurodyn.nets.rotary import rotate
from neurodyn.nets.transformer import Block, Transformer

Memory = tuple[Tensor, ...]


class StreamingPredictor(nn.Module):
    """One frame of a predictor; inputs and outputs in physical units."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.predictor = predictor
        if isinstance(predictor.net, Transformer):
            predictor.net.rotary.tables(predictor.net.embed.weight)  # made now: a tracer would keep tables of its own

    @property
    def memory_names(self) -> tuple[str, ...]:
        """Names of the memory's tensors."""
        net = self.predictor.net
        if isinstance(net, GRU):
            return tuple(f"hidden_{layer}" for layer in range(net.depth))
        if isinstance(net, Transformer):
            return (*(f"keys_values_{layer}" for layer in range(len(net.blocks))), "filled")
        return ()

    def begin(self, worlds: int) -> Memory:
        """Return the memory of worlds without history; worlds are the first axis of every tensor."""
        net = self.predictor.net
        if isinstance(net, GRU):
            return net.begin(worlds)
        if isinstance(net, Transformer):
            rings = [block.attention for block in _blocks(net)]
            empty = [torch.zeros(worlds, a.window - 1, 2, a.heads, a.channels) for a in rings]
            return (*empty, torch.zeros(worlds, dtype=torch.long))
        return ()

    def forward(self, x: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        """Predict one frame, [worlds, inputs] and memory -> [worlds, outputs] and memory."""
        predictor, net = self.predictor, self.predictor.net
        n = predictor.normalise_input(x)
        if isinstance(net, Transformer):
            y, memory = _transformer_step(net, n, memory)
        elif isinstance(net, GRU):
            y, memory = net.step(n, memory)
        else:
            y = cast(MLP, net)(n)
        if predictor.skip is not None:
            y = y + predictor.skip(n)
        return (predictor.denormaliser.inverse(y), *memory)


def _blocks(net: Transformer) -> list[Block]:
    return cast(list[Block], list(net.blocks))


def _transformer_step(net: Transformer, n: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
    *registers, filled = memory
    cos, sin = net.rotary.at(net.window, n)
    # Slots of the register from the oldest to the present frame; those before a world's history are hidden.
    age = torch.arange(net.window - 1, -1, -1, device=n.device)
    hidden = age > filled[:, None]
    x, kept = net.embed(n), []
    for block, register in zip(_blocks(net), registers, strict=True):
        mixed, register = _attend(block.attention, block.norm1(x), register, cos, sin, hidden)
        x = x + mixed
        x = x + block.narrow(functional.gelu(block.widen(block.norm2(x))))
        kept.append(register)
    return net.head(net.norm(x)), (*kept, (filled + 1).clamp(max=net.window - 1))


def _attend(
    attention: SlidingAttention, x: Tensor, register: Tensor, cos: Tensor, sin: Tensor, hidden: Tensor
) -> tuple[Tensor, Tensor]:
    """Attend from the present frame to it and to those in the register; return the register one frame later."""
    heads, channels = attention.heads, attention.channels
    q, k, v = attention.qkv(x).view(-1, 3, heads, channels).unbind(1)
    seen = torch.cat((register, torch.stack((k, v), 1)[:, None]), 1)  # [worlds, window, 2, heads, channels]
    keys = rotate(seen[:, :, 0].transpose(1, 2), cos, sin)  # [worlds, heads, window, channels]
    query = rotate(q[:, :, None], cos[-1:], sin[-1:])
    scores = (keys * query).sum(-1) * channels**-0.5
    weights = scores.masked_fill(hidden[:, None], -torch.inf).softmax(-1)
    mixed = (seen[:, :, 1].transpose(1, 2) * weights[..., None]).sum(2)
    return attention.out(mixed.reshape(-1, heads * channels)), seen[:, 1:]
