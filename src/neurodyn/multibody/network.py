# SPDX-License-Identifier: Apache-2.0
"""A small network as a native loop with its own adjoint, for quantities that a blueprint augments."""

from itertools import pairwise

from neurodyn.core.description.blueprint import Activation, Augmentation
from neurodyn.multibody.trace import Loop

ACTIVATIONS: dict[Activation, tuple[str, str]] = {
    "tanh": ("::wp::tanh(z)", "(real)1 - y * y"),
    "elu": ("SELECT(z > (real)0, z, ::wp::exp(z) - (real)1)", "SELECT(z > (real)0, (real)1, y + (real)1)"),
    "relu": ("SELECT(z > (real)0, z, (real)0)", "SELECT(z > (real)0, (real)1, (real)0)"),
    "softplus": (
        "SELECT(z > (real)0, z, (real)0) + ::wp::log((real)1 + ::wp::exp(SELECT(z > (real)0, -z, z)))",
        "(real)1 / ((real)1 + ::wp::exp(-z))",
    ),
    "softsign": (
        "z / ((real)1 + SELECT(z > (real)0, z, -z))",
        "((real)1 - SELECT(y > (real)0, y, -y)) * ((real)1 - SELECT(y > (real)0, y, -y))",
    ),
    "silu": (
        "z / ((real)1 + ::wp::exp(-z))",
        "y + ((real)1 - y) / ((real)1 + ::wp::exp(-z))",
    ),
}
"""The value of an activation at z, and its slope, in terms of z and the value y."""


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
    value, slope = ACTIVATIONS[augmentation.activation]
    return Loop(
        name=name,
        inputs=widths[0],
        outputs=widths[-1],
        saved=2 * sum(widths[1:-1]),
        forward=_forward(widths, value),
        adjoint=_adjoint(widths, slope),
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
