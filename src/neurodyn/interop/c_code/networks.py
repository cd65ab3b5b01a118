# SPDX-License-Identifier: Apache-2.0
"""Networks as C functions: layers, recurrent cells and cached attention, with weights in tables."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neurodyn.core.activations import ACTIVATIONS
from neurodyn.core.errors import InputError
from neurodyn.interop.c_code.source import AFFINE, CArray
from neurodyn.interop.texts import template
from neurodyn.multibody.trace import Loop
from neurodyn.nets.gru import GRU
from neurodyn.nets.mlp import MLP
from neurodyn.nets.sequence import SequenceNet
from neurodyn.nets.transformer import Transformer, TransformerBlock


def activation_text(name: str, what: str) -> str:
    """Return an activation as an expression in z, or raise an InputError if it has no C form."""
    one = ACTIVATIONS[name]
    if one.value or one.kernel:
        return one.value or one.kernel.replace("v[i]", "z").replace("sigmoid", "(1 / (1 + ::wp::exp(-z)))")
    valid = ", ".join(name for name in ACTIVATIONS if ACTIVATIONS[name].value or ACTIVATIONS[name].kernel)
    raise InputError(f"{what}: the activation {name!r} has no form in C; valid: {valid}")


_NAME = "network"
"""Name of a network's function."""


class NetworkWriter:
    """Writes one network as a static C function `network`, layer by layer.

    Attributes:
        memory: Arrays that the network keeps between calls.
        what: Name of the network's owner, for messages.
    """

    def __init__(self, inputs: int, what: str) -> None:
        """Start with the inputs, the array `in`."""
        self.memory: list[CArray] = []
        self.what = what
        self._inputs, self._count = inputs, 0
        self._tables: list[str] = []
        self._lines: list[str] = []
        self._helpers: dict[str, None] = {template("affine.c", BLOCK=AFFINE): None}

    def loop(self, x: str, width: int) -> Loop:
        """Return the network as a graph node, with an array as its outputs."""
        self._lines.append(f"for (int i = 0; i < {width}; ++i) out[i] = {x}[i];")
        call = f"{_NAME}({'state, ' if self.memory else ''}in, out);"
        return Loop(name=_NAME, inputs=self._inputs, outputs=width, saved=0, forward=call, adjoint="")

    def text(self) -> str:
        """Return the tables and the function."""
        state = "@_state *state, " if self.memory else ""
        body = "\n".join(self._lines)
        own = f"static void {_NAME}({state}const real *in, real *out) {{\n{body}\n}}\n"
        return "\n".join([*self._helpers, *self._tables, own])

    def line(self, text: str) -> None:
        """Add a statement."""
        self._lines.append(text)

    def array(self, width: int) -> str:
        """Declare an array padded to whole blocks of a layer's outputs, and return its name."""
        self._count += 1
        self._lines.append(f"real y{self._count}[{_pad(width)}];")
        return f"y{self._count}"

    def table(self, values: Any, kind: str = "float") -> str:
        """Add a table of numbers and return its name."""
        name = f"{_NAME}_{len(self._tables)}"
        flat = np.asarray(values, dtype=np.float64 if kind == "double" else np.float32).ravel()
        numbers = ", ".join(f"{x!r}" if kind == "double" else _single(np.float32(x)) for x in flat.tolist())
        self._tables.append(f"static const {kind} {name}[{len(flat)}] = {{{numbers}}};")
        return name

    def linear(self, x: str, weight: Tensor, bias: Tensor | None) -> str:
        """Add a layer, with weights [outputs, inputs], and return the array of its outputs."""
        outputs, inputs = weight.shape
        whole = _pad(outputs)
        blocks = np.zeros((whole, inputs), np.float32)
        blocks[:outputs] = weight.detach().cpu().numpy()
        shifts = np.zeros(whole, np.float32)
        if bias is not None:
            shifts[:outputs] = bias.detach().cpu().numpy()
        table = self.table(blocks.reshape(-1, AFFINE, inputs).transpose(0, 2, 1))
        shift, y = self.table(shifts), self.array(outputs)
        self.line(f"affine({inputs}, {whole}, {table}, {shift}, {x}, {y});")
        return y

    def activate(self, x: str, width: int, name: str) -> None:
        """Apply an activation in place."""
        text = activation_text(name, self.what)
        self.line(f"for (int i = 0; i < {width}; ++i) {{ const real z = {x}[i]; {x}[i] = {text}; }}")

    def perceptron(self, x: str, layers: Sequence[nn.Linear], activation: str) -> str:
        """Add layers with an activation between them."""
        for number, layer in enumerate(layers):
            if number:
                self.activate(x, layer.in_features, activation)
            x = self.linear(x, layer.weight, layer.bias)
        return x

    def keep(self, name: str, width: int, about: str, *, whole: bool = False) -> None:
        """Add an array to the memory."""
        self.memory.append(CArray(name, width, about, "int" if whole else "real"))

    def recurrent(self, x: str, cells: nn.GRU | nn.LSTM) -> str:
        """Add recurrent layers; their states are kept as hidden_0, cell_0 and so on."""
        width, lstm = cells.hidden_size, isinstance(cells, nn.LSTM)
        self._helpers[template("lstm.c" if lstm else "gru.c")] = None
        for layer in range(cells.num_layers):
            wi, wh, bi, bh = (
                getattr(cells, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            given, kept = self.linear(x, wi, bi), self.linear(f"state->hidden_{layer}", wh, bh)
            self.keep(f"hidden_{layer}", width, "hidden state")
            if lstm:
                self.keep(f"cell_{layer}", width, "cell state")
                self.line(f"lstm_cell({width}, {given}, {kept}, state->hidden_{layer}, state->cell_{layer});")
            else:
                self.line(f"gru_cell({width}, {given}, {kept}, state->hidden_{layer});")
            x = f"state->hidden_{layer}"
        return x

    def transformer(self, x: str, net: Transformer) -> str:
        """Add a transformer, which keeps keys and values of the last frames in ring buffers."""
        window, width = net.window, net.embed.out_features
        self._helpers[template("transformer.c", WINDOW=window)] = None
        period, half = net.rotary.period, len(net.rotary.harmonics)
        turns = np.outer(np.arange(period), net.rotary.harmonics) % period * (2 * math.pi / period)
        cosine, sine = self.table(np.cos(turns), "double"), self.table(np.sin(turns), "double")
        for name, about in (
            ("slot", "of the present frame"),
            ("seen", "frames"),
            ("frame", "number modulo the period"),
        ):
            self.keep(name, 1, about, whole=True)
        self.line(f"const int seen = state->seen[0] < {window} ? state->seen[0] + 1 : {window};")
        self.line(f"const int slot = state->slot[0]; const int turn = state->frame[0] * {half};")
        x = self.linear(x, net.embed.weight, net.embed.bias)
        for number, block in enumerate(net.blocks):
            assert isinstance(block, TransformerBlock)
            ring = f"keys_values_{number}"
            self.keep(ring, 2 * window * width, "of the last frames")
            qkv = self.linear(self._norm(x, block.norm1), block.attention.qkv.weight, None)
            mixed = self.array(width)
            self.line(
                f"attend({block.attention.heads}, {block.attention.channels}, {window}, slot, seen, {cosine} + turn, "
                f"{sine} + turn, {qkv}, state->{ring}, {mixed});"
            )
            self._add(x, self.linear(mixed, block.attention.out.weight, None), width)
            wide = self.linear(self._norm(x, block.norm2), block.widen.weight, None)
            self.activate(wide, 4 * width, "gelu")
            self._add(x, self.linear(wide, block.narrow.weight, None), width)
        self.line(f"state->slot[0] = (slot + 1) % {window}; state->seen[0] = seen;")
        self.line(f"state->frame[0] = (state->frame[0] + 1) % {period};")
        return self.perceptron(self._norm(x, net.norm), modules_of(net.head.layers), net.head.activation)

    def _norm(self, x: str, norm: nn.LayerNorm) -> str:
        y, width = self.array(norm.normalized_shape[0]), norm.normalized_shape[0]
        self.line(f"layer_norm({width}, {self.table(norm.weight.detach())}, {x}, {y});")
        return y

    def _add(self, x: str, y: str, width: int) -> None:
        self.line(f"for (int i = 0; i < {width}; ++i) {x}[i] += {y}[i];")


def _pad(width: int) -> int:
    return -(-width // AFFINE) * AFFINE


def _single(value: np.float32) -> str:
    text = np.format_float_positional(value, unique=True, trim="0") if 1e-4 < abs(value) < 1e6 else f"{value!s}"
    return f"{text if any(c in text for c in '.e') else text + '.0'}f"


def _write_mlp(writer: NetworkWriter, x: str, net: MLP) -> str:
    return writer.perceptron(x, modules_of(net.layers), net.activation)


def _write_gru(writer: NetworkWriter, x: str, net: GRU) -> str:
    return writer.perceptron(writer.recurrent(x, net.cells), modules_of(net.head.layers), net.head.activation)


_NETWORKS: dict[type, Callable[[NetworkWriter, str, Any], str]] = {
    MLP: _write_mlp, GRU: _write_gru, Transformer: NetworkWriter.transformer
}  # fmt: skip
"""Writers of networks by type, which return the array of the outputs."""


def write_network(writer: NetworkWriter, x: str, net: SequenceNet) -> str:
    """Add a sequence network and return the array of its outputs, or raise an InputError for kinds without a C form."""
    if type(net) not in _NETWORKS:
        valid = ", ".join(kind.__name__ for kind in _NETWORKS)
        raise InputError(f"{writer.what}: a network of kind {type(net).__name__} has no form in C; valid: {valid}")
    return _NETWORKS[type(net)](writer, x, net)


def modules_of(layers: Iterable[nn.Module]) -> list[nn.Linear]:
    """Return the linear layers of an MLP."""
    return [layer for layer in layers if isinstance(layer, nn.Linear)]


def columns(tensor: Tensor) -> list[float]:
    """Return a vector's numbers, in its precision."""
    return tensor.detach().to("cpu", torch.float64).flatten().tolist()
