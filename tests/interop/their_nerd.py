# SPDX-License-Identifier: Apache-2.0
"""Modules with the names, attributes and arithmetic that the authors of NeRD document, saved as they save them.

Facts: models/ of https://github.com/NVlabs/neural-robot-dynamics. The modules exist under their names only while a file
is written, as on a machine without the authors' code.
"""

import sys
import types
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

INPUTS = {"states_embedding": 4, "joint_acts": 2}
"""What the cartpole's network sees, and how many numbers."""


class RunningMeanStd:
    def __init__(self, size: int) -> None:
        self.mean, self.var, self.count = torch.randn(size), torch.rand(size) + 0.5, 1e-4

    def scale(self) -> Tensor:
        return torch.sqrt(self.var + 1e-5)


class LayerNorm(nn.Module):
    def __init__(self, size: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(size))
        self.bias = nn.Parameter(0.1 * torch.randn(size)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class GPTConfig:
    def __init__(self) -> None:
        self.block_size = 16


class CausalSelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, *, bias: bool) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)
        self.attn_dropout, self.n_head, self.n_embd, self.flash = nn.Dropout(0.0), heads, width, True

    def forward(self, x: Tensor) -> Tensor:
        worlds, time, width = x.shape
        q, k, v = (y.view(worlds, time, self.n_head, -1).transpose(1, 2) for y in self.c_attn(x).split(width, dim=2))
        hidden = torch.ones(time, time).triu(1).bool()
        weights = (q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5).masked_fill(hidden, float("-inf")).softmax(-1)
        return self.c_proj((weights @ v).transpose(1, 2).reshape(worlds, time, width))


class MLP(nn.Module):
    def __init__(self, width: int, *, bias: bool) -> None:
        super().__init__()
        self.c_fc, self.gelu = nn.Linear(width, 4 * width, bias=bias), nn.GELU()
        self.c_proj = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, *, bias: bool) -> None:
        super().__init__()
        self.ln_1, self.attn = LayerNorm(width, bias=bias), CausalSelfAttention(width, heads, bias=bias)
        self.ln_2, self.mlp = LayerNorm(width, bias=bias), MLP(width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, inputs: int, width: int, heads: int, depth: int, *, bias: bool) -> None:
        super().__init__()
        self.config = GPTConfig()
        self.transformer = nn.ModuleDict({
            "wte": nn.Linear(inputs, width), "wpe": nn.Embedding(16, width), "drop": nn.Dropout(0.0),
            "h": nn.ModuleList([Block(width, heads, bias=bias) for _ in range(depth)]),
            "ln_f": LayerNorm(width, bias=bias),
        })  # fmt: skip
        self.lm_head = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.transformer["wte"](x) + self.transformer["wpe"](torch.arange(x.shape[1]))
        for block in self.transformer["h"]:
            x = block(x)
        return self.lm_head(self.transformer["ln_f"](x))


class MLPBase(nn.Module):
    def __init__(self, inputs: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in widths:
            layers += [nn.Linear(inputs, width), nn.ReLU()]
            inputs = width
        self.device, self.body, self.out_features = "cuda:0", nn.Sequential(*layers), inputs


class MLPDeterministic(nn.Module):
    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.feature_net, self.output_net = MLPBase(width, (12,)), nn.Linear(12, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.output_net(self.feature_net.body(x))


class ModelMixedInput(nn.Module):
    def __init__(self, inputs: dict[str, int] | None = None, outputs: int = 4, *, bias: bool = False) -> None:
        super().__init__()
        inputs = INPUTS if inputs is None else inputs
        self.device, self.is_rnn, self.is_transformer = "cuda:0", False, True
        self.normalize_input = self.normalize_output = True
        self.low_dim_input_names = list(inputs)
        self.encoders = nn.ModuleDict({"low_dim": MLPBase(sum(inputs.values()), ())})
        self.transformer_model = GPT(sum(inputs.values()), 8, 2, 2, bias=bias)
        self.model = MLPDeterministic(8, outputs)
        self.input_rms = {name: RunningMeanStd(size) for name, size in inputs.items()}
        self.output_rms = RunningMeanStd(outputs)

    def evaluate(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the prediction of the last frame of windows, shape [worlds, outputs]."""
        rms = self.input_rms
        x = torch.cat([(inputs[name] - rms[name].mean) / rms[name].scale() for name in self.low_dim_input_names], -1)
        y = self.model(self.transformer_model(x))
        return (y * self.output_rms.scale() + self.output_rms.mean)[:, -1]


PLACES = {
    "models.models": (ModelMixedInput, MLPDeterministic), "models.base_models": (MLPBase,),
    "models.model_transformer": (GPT, GPTConfig, Block, MLP, CausalSelfAttention, LayerNorm),
    "utils.running_mean_std": (RunningMeanStd,),
}  # fmt: skip


def save(model: nn.Module, path: Path) -> Path:
    """Write a model as the authors do: with the name of its robot, its classes under the names of their modules."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = dict(sys.modules)
    own = {kind: kind.__module__ for kinds in PLACES.values() for kind in kinds}
    try:
        for name, kinds in PLACES.items():
            sys.modules.setdefault(name.partition(".")[0], types.ModuleType(name.partition(".")[0]))
            sys.modules[name] = types.ModuleType(name)
            for kind in kinds:
                kind.__module__ = name
                setattr(sys.modules[name], kind.__name__, kind)
        torch.save((model, "Cartpole"), path)
    finally:
        for kind, name in own.items():
            kind.__module__ = name
        for name in {*PLACES, *(name.partition(".")[0] for name in PLACES)} - set(before):
            sys.modules.pop(name, None)
    return path
