# SPDX-License-Identifier: Apache-2.0
r"""Networks of a Lagrangian: mass matrix, potential energy and damping are learned, the equations of motion are kept.

With $M(q) = L L^T$ and $V(q)$ of one network and $D(q, \dot q) = G G^T$ of another,

$$M \ddot q = B \tau - D \dot q - \frac{\partial V}{\partial q}
+ \frac12 \frac{\partial (\dot q^T M \dot q)}{\partial q} - \dot M \dot q$$

(Lutter, Ritter and Peters, ICLR 2019, arXiv 1907.04490). So the energy $\frac12 \dot q^T M \dot q + V$ changes by
$\dot q^T B \tau - |G^T \dot q|^2$ alone, whatever the weights are: without torques it never grows, and without damping
it stays. A frame is integrated by the classical Runge-Kutta method, which keeps that up to its error of fifth order.
"""

import itertools
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from neurodyn.core.errors import InputError, choices
from neurodyn.nets.columns import Columns
from neurodyn.nets.normaliser import Normaliser
from neurodyn.nets.sequence import Memoryless

if TYPE_CHECKING:
    from neurodyn.nets.build import NetConfig

_LEAST = 0.3
"""Least diagonal of L, in its unit: the mass matrix is definite, and its inverse bounded."""
_FIRST = 0.0137
"""Makes the diagonal of L 1 where the network says 0: softplus(.0137) is .7."""


def _silu(z: Tensor) -> tuple[Tensor, Tensor]:
    share = torch.sigmoid(z)
    h = z * share
    return h, share + h * (1.0 - share)


def _tanh(z: Tensor) -> tuple[Tensor, Tensor]:
    h = torch.tanh(z)
    return h, 1.0 - h * h


_SMOOTH = {"silu": _silu, "tanh": _tanh}
"""Activations whose slope is smooth, and the slope: forces are slopes of energies."""


class LagrangianNet(Memoryless):
    """Changes of a frame from learned energies and damping; energy never grows without torques.

    Attributes:
        unit: Unit of energies [J where torques are in N m], shape [].
        root: Unit of the rows of L and G, shape [nv].
    """

    short_cut: ClassVar[bool] = False
    damped: ClassVar[bool] = True
    """Whether there is damping."""

    unit: Tensor
    root: Tensor
    energies: nn.ModuleList
    damping: nn.ModuleList | None
    _positions: Tensor
    _dofs: Tensor
    _driven: Tensor
    _entries: Tensor
    _diagonal: Tensor
    _rows: Tensor
    _kappa: Tensor

    def __init__(self, inputs: int, outputs: int, width: int, depth: int, activation: str = "silu") -> None:
        """Prepare; `place` builds the layers.

        Args:
            inputs: Size of an input vector.
            outputs: Size of an output vector.
            width: Width of hidden layers.
            depth: Their number.
            activation: "silu" or "tanh".
        """
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        self._widths = (width,) * depth
        self._activation = _SMOOTH[activation]

    @classmethod
    def build(cls, config: "NetConfig", inputs: int, outputs: int) -> Self:
        """Build the network that a configuration describes."""
        return cls(inputs, outputs, config.width, config.depth, config.activation)

    @classmethod
    def check(cls, config: "NetConfig") -> None:
        """Refuse what makes no energy."""
        if config.activation not in _SMOOTH:
            raise InputError(
                f"net.activation is {config.activation!r}, but forces are slopes of a {config.kind} network; "
                f"valid: {choices(_SMOOTH)}"
            )
        if config.clip is not None:
            raise InputError(f"net.clip is {config.clip}, but a {config.kind} network needs whole inputs; valid: none")

    def place(self, columns: Columns | None, inputs: Normaliser, outputs: Normaliser) -> None:
        """Build the layers.

        Raises:
            InputError: The inputs are not those of hinges and slides alone.
        """
        if columns is None:
            raise InputError(
                "a network of energies is for robots of hinges and slides under torques that feel no ground, without a "
                "base; valid: mlp, gru or transformer"
            )
        self._columns, self._given, self._wanted = columns, (inputs,), (outputs,)  # tuples: they are the predictor's
        count = len(columns.kappa)
        entries, features = count * (count + 1) // 2, 2 * len(columns.angles) + len(columns.plain)
        self.energies = _layers(features, self._widths, 1 + entries)
        self.damping = _layers(features + count, self._widths, entries) if self.damped else None
        positions = [*(sine for _, sine, _ in columns.angles), *(cosine for _, _, cosine in columns.angles)]
        positions += [column for _, column in columns.plain]
        dofs = [*(dof for dof, *_ in columns.angles), *(dof for dof, _ in columns.plain)]
        rows, places = torch.tril_indices(count, count)
        for name, value in {
            "_positions": torch.tensor(positions, dtype=torch.long),
            "_dofs": torch.tensor(dofs, dtype=torch.long),
            "_driven": torch.tensor(columns.driven, dtype=torch.long),
            "_entries": rows * count + places,
            "_diagonal": rows == places,
            "_rows": rows,
            "_kappa": torch.tensor(columns.kappa),
        }.items():
            self.register_buffer(name, value, persistent=False)
        self.register_buffer("unit", torch.tensor(1.0))
        self.register_buffer("root", torch.ones(count))

    @torch.no_grad()
    def prepare(self, slopes: Tensor) -> None:
        r"""Take the units from torques and velocities.

        Of driven coordinates $M_{ii} \approx \tau_i / \ddot q_i$ of the best linear model of a frame; of others what
        gives them as much kinetic energy.
        """
        columns, given, wanted = self._columns, self._given[0], self._wanted[0]
        count, driven = len(columns.kappa), self._driven
        speed = given.std[columns.velocities : columns.velocities + count]
        torques = torch.arange(len(driven), device=driven.device) + columns.torques
        pushed = slopes[driven, torques].to(speed) * wanted.std[driven] * given.gain[torques] / columns.dt
        known = pushed > 0
        energies = speed[driven].square()[known] / pushed[known]
        if len(energies):
            self.unit.copy_(energies.mean())
        root = self.unit.sqrt() / speed
        root[driven[known]] = pushed[known].rsqrt()
        self.root.copy_(root)

    @property
    def output_layer(self) -> Any:
        """The last layer of the energies."""
        return self.energies[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Map every frame by itself, shape [..., inputs] -> [..., outputs]."""
        columns, raw = self._columns, self._given[0].inverse(x)
        dt = columns.dt
        v = self._velocity(raw)
        seen = self._seen(x, raw, v)
        torque = raw[..., columns.torques : columns.torques + len(columns.driven)]
        pushed = torch.zeros_like(v).index_add(-1, self._driven, torque)

        def at(way: Tensor, speed: Tensor) -> Tensor:
            return self._acceleration(self._moved(seen, way), speed, pushed)

        a1 = self._acceleration(seen, v, pushed)
        v2 = v + 0.5 * dt * a1
        a2 = at(0.5 * dt * v, v2)
        v3 = v + 0.5 * dt * a2
        a3 = at(0.5 * dt * v2, v3)
        v4 = v + dt * a3
        a4 = at(dt * v3, v4)
        change = dt / 6.0 * (a1 + 2.0 * (a2 + a3) + a4)
        # The way less dt v is (a1 + a2 + a3) dt^2 / 6; of kappa, all but a half is in the shift, there and back.
        further = dt * dt / 6.0 * (a1 + a2 + a3) - 0.5 * dt * change
        return self._wanted[0](torch.cat([change, further], -1))

    def energy(self, x: Tensor) -> Tensor:
        """Return the learned energy, up to a constant [J where torques were given], shape [...].

        Args:
            x: Inputs, normalised, shape [..., inputs].
        """
        raw = self._given[0].inverse(x)
        v = self._velocity(raw)
        potential, _, factor, _ = self._energies(self._seen(x, raw, v))
        return potential + 0.5 * _through(factor.mT, v).square().sum(-1)

    def _velocity(self, raw: Tensor) -> Tensor:
        first = self._columns.velocities
        return raw[..., first : first + len(self._columns.kappa)]

    def _seen(self, x: Tensor, raw: Tensor, v: Tensor) -> Tensor:
        r"""Return sines and cosines, and other positions normalised, shape [..., features].

        They are those of $q - \Delta t\,(\kappa - 1/2)\,v$: a simulator that steps semi-implicitly has velocities that
        are ahead of its positions by that time, and conserves its energy there.
        """
        turned = 2 * len(self._columns.angles)
        here = torch.cat([
            raw.index_select(-1, self._positions[:turned]), x.index_select(-1, self._positions[turned:])
        ], -1)  # fmt: skip
        return self._moved(here, self._columns.dt * (0.5 - self._kappa) * v)

    def _moved(self, seen: Tensor, way: Tensor) -> Tensor:
        """Return what is seen after a way, shape [..., nv]."""
        n, moved = len(self._columns.angles), way.index_select(-1, self._dofs)
        sine, cosine, plain = seen[..., :n], seen[..., n : 2 * n], seen[..., 2 * n :]
        s, c = moved[..., :n].sin(), moved[..., :n].cos()
        gain = self._given[0].gain[self._positions[2 * n :]]
        return torch.cat([sine * c + cosine * s, cosine * c - sine * s, plain + gain * moved[..., n:]], -1)

    def _tangents(self, seen: Tensor) -> Tensor:
        """Return how what is seen changes along each position that is, shape [..., positions, features]."""
        n, total = len(self._columns.angles), len(self._dofs)
        sine, cosine = seen[..., :n], seen[..., n : 2 * n]
        eye = torch.eye(total, dtype=seen.dtype, device=seen.device)
        gain = self._given[0].gain[self._positions[2 * n :]].expand(*seen.shape[:-1], -1)
        return torch.cat([
            eye[:, :n] * cosine[..., None, :], -eye[:, :n] * sine[..., None, :], eye[:, n:] * gain[..., None, :]
        ], -1)  # fmt: skip

    def _energies(self, seen: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return V [...], dV/dq [..., positions], L [..., nv, nv] and dL/dq [..., positions, nv, nv]."""
        h, slopes = seen, self._tangents(seen)
        *hidden, last = _linear(self.energies)
        for layer in hidden:
            h, slope = self._activation(layer(h))
            slopes = slope[..., None, :] * (slopes @ layer.weight.mT)
        out, slopes = last(h), slopes @ last.weight.mT
        entries, entry_slopes = out[..., 1:], slopes[..., 1:]
        diagonal, unit = self._diagonal, self.root[self._rows]
        positive = functional.softplus(entries + _FIRST) + _LEAST
        rising = torch.sigmoid(entries + _FIRST)
        entries = unit * torch.where(diagonal, positive, entries)
        entry_slopes = (unit * torch.where(diagonal, rising, 1.0))[..., None, :] * entry_slopes
        return (
            self.unit * out[..., 0], self.unit * slopes[..., 0], self._lower(entries), self._lower(entry_slopes)
        )  # fmt: skip

    def _lower(self, entries: Tensor) -> Tensor:
        """Return lower triangular matrices, shape [..., nv, nv]."""
        count = len(self._columns.kappa)
        whole = entries.new_zeros(*entries.shape[:-1], count * count).index_copy(-1, self._entries, entries)
        return whole.unflatten(-1, (count, count))

    def _acceleration(self, seen: Tensor, v: Tensor, pushed: Tensor) -> Tensor:
        """Return accelerations, shape [..., nv]."""
        _, slope, factor, factor_slopes = self._energies(seen)
        y = _through(factor.mT, v)
        along = v.index_select(-1, self._dofs)
        turning = (along[..., None, None] * factor_slopes).sum(-3)  # dL/dt
        kinetic = (factor_slopes * (v[..., :, None] * y[..., None, :])[..., None, :, :]).sum((-1, -2))
        inertial = _through(turning, y) + _through(factor, _through(turning.mT, v))  # dM/dt v
        force = pushed - inertial
        force = force.index_add(-1, self._dofs, kinetic - slope)
        if self.damping is not None:
            force = force - self._damped(seen, v)
        return _solved(factor, force)

    @property
    def _speed_gain(self) -> Tensor:
        first = self._columns.velocities
        return self._given[0].gain[first : first + len(self._columns.kappa)]

    def _damped(self, seen: Tensor, v: Tensor) -> Tensor:
        """Return the damping forces D v, shape [..., nv]."""
        assert self.damping is not None
        h = torch.cat([seen, v * self._speed_gain], -1)
        *hidden, last = _linear(self.damping)
        for layer in hidden:
            h, _ = self._activation(layer(h))
        g = self._lower(self.root[self._rows] * last(h))
        return _through(g, _through(g.mT, v))


class ConservativeNet(LagrangianNet):
    """The same without damping: energy changes by the work of the torques alone."""

    damped = False


def _layers(inputs: int, widths: tuple[int, ...], outputs: int) -> nn.ModuleList:
    sizes = (inputs, *widths, outputs)
    layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
    last = _linear(layers)[-1]
    with torch.no_grad():
        last.weight.mul_(0.1)  # small energies at first, but not none: damping is quadratic in its outputs
        last.bias.zero_()
    return layers


def _linear(layers: nn.ModuleList) -> list[nn.Linear]:
    return [layer for layer in layers if isinstance(layer, nn.Linear)]


def _through(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix * vector[..., None, :]).sum(-1)


def _solved(factor: Tensor, right: Tensor) -> Tensor:
    """Solve L L^T x = b by substitution: L [..., n, n] lower triangular, b [..., n]."""
    n = right.shape[-1]
    inverse = factor.diagonal(dim1=-2, dim2=-1).reciprocal().unbind(-1)
    rows = [row.unbind(-1) for row in factor.unbind(-2)]
    x = list(right.unbind(-1))
    for i in range(n):
        for j in range(i):
            x[i] = x[i] - rows[i][j] * x[j]
        x[i] = x[i] * inverse[i]
    for i in reversed(range(n)):
        for j in range(i + 1, n):
            x[i] = x[i] - rows[j][i] * x[j]
        x[i] = x[i] * inverse[i]
    return torch.stack(x, -1)
