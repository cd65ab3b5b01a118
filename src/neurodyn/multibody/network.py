# SPDX-License-Identifier: Apache-2.0
"""A small network as a native loop with its own adjoint, and its derivative along a direction in its inputs."""

from dataclasses import dataclass
from itertools import pairwise

from neurodyn.core.activations import ACTIVATIONS
from neurodyn.core.description.blueprint import Augmentation
from neurodyn.multibody.trace import Loop


def network_loop(augmentation: Augmentation, first_weight: int, name: str) -> Loop:
    """Return the network of an augmentation as a loop from scaled inputs to unscaled outputs.

    Weights are laid out as `Augmentation.weights` says; the first is at `first_weight` in the program's. `saved` holds,
    for each hidden layer, the sums z and then the values y.
    """
    widths, activation = augmentation.widths, ACTIVATIONS[augmentation.activation]
    layers = _layers(widths, 2)
    return Loop(
        name=name,
        inputs=widths[0],
        outputs=widths[-1],
        saved=2 * sum(widths[1:-1]),
        forward="\n".join(_forward(layer, activation.value) for layer in layers),
        adjoint=_adjoint(layers, widths, activation.slope),
        weights=augmentation.weights,
        first_weight=first_weight,
    )


def tangent_loop(augmentation: Augmentation, first_weight: int, name: str) -> Loop:
    """Return the loop from scaled inputs, and a direction in them, to the derivatives of the unscaled outputs.

    Arguments: see `network_loop`. `saved` holds z, y, and their derivatives along the direction, s and t.
    """
    widths, activation = augmentation.widths, ACTIVATIONS[augmentation.activation]
    layers = _layers(widths, 4)
    return Loop(
        name=name,
        inputs=2 * widths[0],
        outputs=widths[-1],
        saved=4 * sum(widths[1:-1]),
        forward="\n".join(_tangent_forward(layer, activation.value, activation.slope) for layer in layers),
        adjoint=_tangent_adjoint(layers, widths, activation.slope, activation.curvature),
        weights=augmentation.weights,
        first_weight=first_weight,
    )


@dataclass(frozen=True)
class _Layer:
    """A layer: widths, index of its first weight, the arrays it reads, and its place in `saved`."""

    before: int
    after: int
    weight: int
    values: str
    slopes: str  # derivatives of the values along the direction
    place: int
    hidden: bool

    @property
    def bias(self) -> int:
        return self.weight + self.before * self.after

    def kept_value(self, number: int) -> str:
        """Return the expression of z (0), y (1), s (2) or t (3) of unit i."""
        return f"saved[{self.place + number * self.after} + i]"


def _layers(widths: tuple[int, ...], kept: int) -> list[_Layer]:
    """Return the layers of a network that saves `kept` numbers per hidden unit."""
    layers, weight, place = [], 0, 0
    values, slopes = "in", f"(in + {widths[0]})"
    for number, (before, after) in enumerate(pairwise(widths)):
        layers.append(_Layer(before, after, weight, values, slopes, place, number < len(widths) - 2))
        values, slopes = f"(saved + {place + after})", f"(saved + {place + 3 * after})"
        place += kept * after
        weight += after * (before + 1)
    return layers


def _forward(layer: _Layer, value: str) -> str:
    keep = f"{layer.kept_value(0)} = z; {layer.kept_value(1)} = {value};" if layer.hidden else "out[i] = z;"
    return (
        f"for (int i = 0; i < {layer.after}; ++i) {{ real z = (real)weight[{layer.bias} + i]; "
        f"const number* row = weight + {layer.weight} + i * {layer.before}; "
        f"for (int j = 0; j < {layer.before}; ++j) z += row[j] * {layer.values}[j]; {keep} }}"
    )


def _adjoint(layers: list[_Layer], widths: tuple[int, ...], slope: str) -> str:
    widest = max(widths)
    lines = [
        f"real delta[{widest}]; real passed[{widest}];",
        f"for (int i = 0; i < {widths[-1]}; ++i) delta[i] = seed[i];",
    ]
    for layer in reversed(layers):
        if layer.hidden:
            lines.append(
                f"for (int i = 0; i < {layer.after}; ++i) {{ const real z = {layer.kept_value(0)}; "
                f"const real y = {layer.kept_value(1)}; (void)z; (void)y; delta[i] *= ({slope}); }}"
            )
        lines.append(
            f"for (int j = 0; j < {layer.before}; ++j) passed[j] = 0;\n"
            f"for (int i = 0; i < {layer.after}; ++i) {{ const real d = delta[i]; weight_adj[{layer.bias} + i] += d; "
            f"const number* row = weight + {layer.weight} + i * {layer.before}; "
            f"const Sums grad = weight_adj + {layer.weight} + i * {layer.before}; "
            f"for (int j = 0; j < {layer.before}; ++j) "
            f"{{ grad[j] += d * {layer.values}[j]; passed[j] += d * row[j]; }} }}\n"
            f"for (int j = 0; j < {layer.before}; ++j) delta[j] = passed[j];"
        )
    lines.append(f"for (int j = 0; j < {widths[0]}; ++j) adj[j] += delta[j];")
    return "\n".join(lines)


def _tangent_forward(layer: _Layer, value: str, slope: str) -> str:
    keep = "out[i] = s; (void)z;"
    if layer.hidden:
        keep = (
            f"const real y = {value}; {layer.kept_value(0)} = z; {layer.kept_value(1)} = y; {layer.kept_value(2)} = s; "
            f"{layer.kept_value(3)} = ({slope}) * s;"
        )
    return (
        f"for (int i = 0; i < {layer.after}; ++i) {{ real z = (real)weight[{layer.bias} + i]; real s = (real)0; "
        f"const number* row = weight + {layer.weight} + i * {layer.before}; "
        f"for (int j = 0; j < {layer.before}; ++j) "
        f"{{ z += row[j] * {layer.values}[j]; s += row[j] * {layer.slopes}[j]; }} {keep} }}"
    )


def _tangent_adjoint(layers: list[_Layer], widths: tuple[int, ...], slope: str, curvature: str) -> str:
    widest = max(widths)
    lines = [
        f"real of_z[{widest}]; real of_s[{widest}]; real to_a[{widest}]; real to_t[{widest}];",
        f"for (int i = 0; i < {widths[-1]}; ++i) {{ of_z[i] = (real)0; of_s[i] = seed[i]; }}",
    ]
    for layer in reversed(layers):
        if layer.hidden:
            lines.append(
                f"for (int i = 0; i < {layer.after}; ++i) {{ const real z = {layer.kept_value(0)}; "
                f"const real y = {layer.kept_value(1)}; const real s = {layer.kept_value(2)}; (void)z; (void)y; "
                f"const real slope = {slope}; const real of_t = of_s[i]; "
                f"of_z[i] = slope * of_z[i] + ({curvature}) * s * of_t; of_s[i] = slope * of_t; }}"
            )
        lines.append(
            f"for (int j = 0; j < {layer.before}; ++j) {{ to_a[j] = (real)0; to_t[j] = (real)0; }}\n"
            f"for (int i = 0; i < {layer.after}; ++i) {{ const real dz = of_z[i]; const real ds = of_s[i]; "
            f"weight_adj[{layer.bias} + i] += dz; const number* row = weight + {layer.weight} + i * {layer.before}; "
            f"const Sums grad = weight_adj + {layer.weight} + i * {layer.before}; "
            f"for (int j = 0; j < {layer.before}; ++j) {{ "
            f"grad[j] += dz * {layer.values}[j] + ds * {layer.slopes}[j]; "
            "to_a[j] += dz * row[j]; to_t[j] += ds * row[j]; } }\n"
            f"for (int j = 0; j < {layer.before}; ++j) {{ of_z[j] = to_a[j]; of_s[j] = to_t[j]; }}"
        )
    first = widths[0]
    lines.append(f"for (int j = 0; j < {first}; ++j) {{ adj[j] += of_z[j]; adj[{first} + j] += of_s[j]; }}")
    return "\n".join(lines)
