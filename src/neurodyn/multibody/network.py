# SPDX-License-Identifier: Apache-2.0
"""A small network as a native loop with its own adjoint, and its derivative along a direction in its inputs."""

from dataclasses import dataclass
from itertools import pairwise

from neurodyn.core.activations import ACTIVATIONS
from neurodyn.core.description.blueprint import Augmentation
from neurodyn.multibody.trace import Loop


def network_loop(augmentation: Augmentation, first_weight: int, name: str) -> Loop:
    """Return the network of an augmentation as a loop from scaled inputs to unscaled outputs.

    Weights are laid out as `Augmentation.weights` says. `saved` holds, for each hidden layer, the sums z and then the
    values y.

    Args:
        augmentation: The network.
        first_weight: Where its weights begin in the program's.
        name: What it is called in messages.
    """
    widths = augmentation.widths
    activation = ACTIVATIONS[augmentation.activation]
    return Loop(
        name=name,
        inputs=widths[0],
        outputs=widths[-1],
        saved=2 * sum(widths[1:-1]),
        forward=_forward(widths, activation.value),
        adjoint=_adjoint(widths, activation.slope),
        weights=augmentation.weights,
        first_weight=first_weight,
    )


def _layers(widths: tuple[int, ...]) -> list[tuple[int, int, int, str, int]]:
    """Return for each layer its width before and after, its first weight, what it reads, and its place in `saved`."""
    layers, weight, place, source = [], 0, 0, "in"
    for before, after in pairwise(widths):
        layers.append((before, after, weight, source, place))
        source = f"(saved + {place + after})"
        place += 2 * after
        weight += after * (before + 1)
    return layers


def _forward(widths: tuple[int, ...], value: str) -> str:
    lines = []
    layers = _layers(widths)
    for number, (before, after, weight, source, place) in enumerate(layers):
        bias = weight + before * after
        hidden = number < len(layers) - 1
        keep = f"saved[{place} + i] = z; saved[{place + after} + i] = {value};" if hidden else "out[i] = z;"
        lines.append(
            f"for (int i = 0; i < {after}; ++i) {{ real z = (real)weight[{bias} + i]; "
            f"const number* row = weight + {weight} + i * {before}; "
            f"for (int j = 0; j < {before}; ++j) z += row[j] * {source}[j]; {keep} }}"
        )
    return "\n".join(lines)


def _adjoint(widths: tuple[int, ...], slope: str) -> str:
    lines = []
    layers = _layers(widths)
    widest = max(widths)
    lines.append(f"real delta[{widest}]; real passed[{widest}];")
    lines.append(f"for (int i = 0; i < {widths[-1]}; ++i) delta[i] = seed[i];")
    for number in range(len(layers) - 1, -1, -1):
        before, after, weight, source, place = layers[number]
        if number < len(layers) - 1:
            lines.append(
                f"for (int i = 0; i < {after}; ++i) {{ const real z = saved[{place} + i]; const real y = "
                f"saved[{place + after} + i]; (void)z; (void)y; delta[i] *= ({slope}); }}"
            )
        bias = weight + before * after
        lines.append(
            f"for (int j = 0; j < {before}; ++j) passed[j] = 0;\n"
            f"for (int i = 0; i < {after}; ++i) {{ const real d = delta[i]; weight_adj[{bias} + i] += d; "
            f"const number* row = weight + {weight} + i * {before}; "
            f"const Sums grad = weight_adj + {weight} + i * {before}; "
            f"for (int j = 0; j < {before}; ++j) {{ grad[j] += d * {source}[j]; passed[j] += d * row[j]; }} }}\n"
            f"for (int j = 0; j < {before}; ++j) delta[j] = passed[j];"
        )
    lines.append(f"for (int j = 0; j < {widths[0]}; ++j) adj[j] += delta[j];")
    return "\n".join(lines)


@dataclass(frozen=True)
class _Layer:
    """A layer: widths, where its weights begin, what it reads, and where it saves z, y, s and t."""

    before: int
    after: int
    weight: int
    values: str
    slopes: str
    place: int
    hidden: bool

    @property
    def bias(self) -> int:
        return self.weight + self.before * self.after

    def saved(self, number: int) -> str:
        """Return the text of z (0), y (1), s (2) or t (3) of unit i."""
        return f"saved[{self.place + number * self.after} + i]"


def tangent_loop(augmentation: Augmentation, first_weight: int, name: str) -> Loop:
    """Return the loop from scaled inputs, and a direction in them, to the derivatives of the unscaled outputs.

    Args:
        augmentation: The network; its weights are laid out as `Augmentation.weights` says.
        first_weight: Where they begin in the program's.
        name: What it is called in messages.
    """
    layers = _tangent_layers(augmentation.widths)
    activation = ACTIVATIONS[augmentation.activation]
    return Loop(
        name=name,
        inputs=2 * augmentation.widths[0],
        outputs=augmentation.widths[-1],
        saved=4 * sum(augmentation.widths[1:-1]),
        forward="\n".join(_tangent_forward(layer, activation.value, activation.slope) for layer in layers),
        adjoint=_tangent_adjoint(layers, augmentation.widths, activation.slope, activation.curvature),
        weights=augmentation.weights,
        first_weight=first_weight,
    )


def _tangent_layers(widths: tuple[int, ...]) -> list[_Layer]:
    layers, weight, place = [], 0, 0
    values, slopes = "in", f"(in + {widths[0]})"
    for number, (before, after) in enumerate(pairwise(widths)):
        layers.append(_Layer(before, after, weight, values, slopes, place, number < len(widths) - 2))
        values, slopes = f"(saved + {place + after})", f"(saved + {place + 3 * after})"
        place += 4 * after
        weight += after * (before + 1)
    return layers


def _tangent_forward(layer: _Layer, value: str, slope: str) -> str:
    keep = "out[i] = s; (void)z;"
    if layer.hidden:
        keep = (
            f"const real y = {value}; {layer.saved(0)} = z; {layer.saved(1)} = y; {layer.saved(2)} = s; "
            f"{layer.saved(3)} = ({slope}) * s;"
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
                f"for (int i = 0; i < {layer.after}; ++i) {{ const real z = {layer.saved(0)}; "
                f"const real y = {layer.saved(1)}; const real s = {layer.saved(2)}; (void)z; (void)y; "
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
