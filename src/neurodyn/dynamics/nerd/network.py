# SPDX-License-Identifier: Apache-2.0
"""The transformer of NeRD's checkpoints: learned positions within the window, heads of ReLU layers.

Facts: models/models.py and models/model_transformer.py of https://github.com/NVlabs/neural-robot-dynamics. Unlike
our own (`nets.transformer`), whose positions are relative, it must see a window from its beginning at every frame.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from neurodyn.core.config import Config, require_numbers
from neurodyn.nets.mlp import MLP
from neurodyn.nets.networks import Activation

EPSILON = 1e-5
"""Added to variances."""


class NerdNetConfig(Config, frozen=True):
    """Sizes of the network.

    Attributes:
        inputs: Numbers that it sees of a frame.
        outputs: Numbers that it predicts.
        width: Width of the stream.
        depth: Number of blocks.
        heads: Number of attention heads.
        positions: Number of learned positions.
        head: Widths of hidden layers between stream and output.
        activation: Activation of these.
        bias: Whether blocks have biases.
    """

    inputs: int
    outputs: int
    width: int
    depth: int
    heads: int
    positions: int
    head: tuple[int, ...] = (64,)
    activation: Activation = "relu"
    bias: bool = False

    def __post_init__(self) -> None:
        require_numbers(self, above=("inputs", "outputs", "width", "depth", "heads", "positions", "head"))
        if self.width % self.heads:
            raise ValueError(f"width is {self.width} with {self.heads} heads; valid: a multiple of the heads")


class _Block(nn.Module):
    def __init__(self, config: NerdNetConfig) -> None:
        super().__init__()
        width, bias = config.width, config.bias
        self.heads = config.heads
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=bias), nn.LayerNorm(width, bias=bias)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)
        self.widen, self.narrow = nn.Linear(width, 4 * width, bias=bias), nn.Linear(4 * width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.widen(self.norm2(x))))


class NerdNet(nn.Module):
    """From windows of inputs to predictions of their last frames, normalisation included."""

    input_mean: Tensor
    input_variance: Tensor
    output_mean: Tensor
    output_variance: Tensor

    def __init__(self, config: NerdNetConfig) -> None:
        """Build a network with fresh weights."""
        super().__init__()
        self.config = config
        for name, size in (("input", config.inputs), ("output", config.outputs)):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_variance", torch.ones(size))
        self.embed = nn.Linear(config.inputs, config.width)
        self.positions = nn.Parameter(torch.zeros(config.positions, config.width))
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width, bias=config.bias)
        self.project = nn.Linear(config.width, config.width, bias=False)
        self.head = MLP(config.width, config.outputs, config.head, config.activation)

    def forward(self, x: Tensor) -> Tensor:
        """Map windows of frames, [worlds, time, inputs] -> [worlds, time, outputs]."""
        x = (x - self.input_mean) / (self.input_variance + EPSILON).sqrt()
        x = self.embed(x) + self.positions[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        y = self.head(self.project(self.norm(x)))
        return y * (self.output_variance + EPSILON).sqrt() + self.output_mean
