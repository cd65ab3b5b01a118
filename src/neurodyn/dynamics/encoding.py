# SPDX-License-Identifier: Apache-2.0
"""From state and torque to network inputs, and from network outputs to the next state.

The encoding holds the physics that a network need not learn: angles enter as sine and cosine, positions on
which nothing depends stay out, joint limits enter as distances, and positions follow from velocities.

Inputs, in this order: for each position coordinate its sine and cosine (continuous), nothing (invariant) or
itself; for each limit (nearness, penetration, penetration one frame ahead); the velocities; where asked for,
their products qd_i qd_j, i <= j, in which Coriolis and centrifugal forces are linear; the torques.

Prediction of one frame (NeRD's relative prediction, section 3.2, with the position increment split into an
integral of the velocity and a residual):

    qd' = qd + dqd
    q'  = q + dt (qd + kappa dqd) + r

The network predicts dqd and r. kappa is fitted per coordinate by least squares; for a semi-implicit Euler
integrator of n substeps it is (n + 1) / (2 n).
"""

import torch
from torch import Tensor, nn

from neurodyn.core.config import Config
from neurodyn.core.errors import InputError
from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.interface import State
from neurodyn.dynamics.tangent import position_difference


class Limit(Config, frozen=True):
    """One side of a joint's range, as the network sees it.

    Attributes:
        coordinate: Index of the position coordinate.
        bound: Position of the limit [rad or m].
        side: +1 for an upper limit, -1 for a lower one.
        margin: Distance from the limit at which the network begins to see it [rad or m].
    """

    coordinate: int
    bound: float
    side: int
    margin: float


class EncodingConfig(Config, frozen=True):
    """Constants of an encoding, fitted once on training data and stored with the model.

    Attributes:
        invariant: Position coordinates that stay out of the inputs, because nothing but limits depends on them.
        limits: Joint limits that enter the inputs.
        kappa: Share of the velocity change that acts within the frame, shape [nv].
        velocity_products: Whether products of velocities enter the inputs.
    """

    invariant: tuple[int, ...]
    limits: tuple[Limit, ...]
    kappa: tuple[float, ...]
    velocity_products: bool


class Encoding(nn.Module):
    """Inputs and predictions of a robot whose joints have one degree of freedom each."""

    dt: Tensor
    kappa: Tensor
    _bound: Tensor
    _side: Tensor
    _margin: Tensor

    def __init__(self, spec: StateSpec, config: EncodingConfig) -> None:
        super().__init__()
        require_scalar_joints(spec)
        self.spec = spec
        self.config = config
        continuous = spec.continuous
        self._angles = [i for i in range(spec.nq) if continuous[i] and i not in config.invariant]
        self._plain = [i for i in range(spec.nq) if not continuous[i] and i not in config.invariant]
        self.register_buffer("dt", torch.tensor(spec.dt), persistent=False)
        self.register_buffer("kappa", torch.tensor(config.kappa), persistent=False)
        self._limit_rows = [limit.coordinate for limit in config.limits]
        pairs = (
            torch.triu_indices(spec.nv, spec.nv) if config.velocity_products else torch.zeros(2, 0, dtype=torch.long)
        )
        self._pairs = (pairs[0].tolist(), pairs[1].tolist())
        for name in ("bound", "side", "margin"):
            values = torch.tensor([float(getattr(limit, name)) for limit in config.limits])
            self.register_buffer(f"_{name}", values, persistent=False)

    @property
    def inputs(self) -> int:
        """Number of network inputs."""
        positions = 2 * len(self._angles) + len(self._plain) + 3 * len(self._limit_rows)
        return positions + self.spec.nv + len(self._pairs[0]) + self.spec.nu

    @property
    def outputs(self) -> int:
        """Number of network outputs: dqd and r."""
        return self.spec.nv + self.spec.nq

    def encode(self, q: Tensor, qd: Tensor, torque: Tensor) -> Tensor:
        """Return network inputs, shape [..., inputs].

        Args:
            q: Positions [rad or m], shape [..., nq].
            qd: Velocities [rad/s or m/s], shape [..., nv].
            torque: Torques during the frame [N m or N], shape [..., nu].
        """
        parts = []
        if self._angles:
            angle = q[..., self._angles]
            parts += [torch.sin(angle), torch.cos(angle)]
        if self._plain:
            parts.append(q[..., self._plain])
        if self._limit_rows:
            parts += self._limit_features(q[..., self._limit_rows], qd[..., self._limit_rows])
        parts.append(qd)
        if self._pairs[0]:
            parts.append(qd[..., self._pairs[0]] * qd[..., self._pairs[1]])
        return torch.cat([*parts, torque], dim=-1)

    def decode(self, q: Tensor, qd: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return positions and velocities one frame later from network outputs, shape [..., outputs]."""
        nv = self.spec.nv
        dqd, residual = output[..., :nv], output[..., nv:]
        return q + self.dt * (qd + self.kappa * dqd) + residual, qd + dqd

    def target(self, q: Tensor, qd: Tensor, q_next: Tensor, qd_next: Tensor) -> Tensor:
        """Return the network outputs that `decode` turns into the given next state, shape [..., outputs]."""
        dqd = qd_next - qd
        dq = position_difference(self.spec, q_next, q)
        return torch.cat([dqd, dq - self.dt * (qd + self.kappa * dqd)], dim=-1)

    def next_state(self, state: State, output: Tensor) -> State:
        """Return the state one frame later from network outputs."""
        return State(*self.decode(state.q, state.qd, output))

    def _limit_features(self, q: Tensor, qd: Tensor) -> list[Tensor]:
        # Distances beyond the limit are positive; each ReLU is linear where the spring of a limit is.
        beyond = self._side * (q - self._bound)
        ahead = beyond + self._side * self.dt * qd
        return [torch.relu(beyond + self._margin), torch.relu(beyond), torch.relu(ahead)]


def fit_encoding(
    spec: StateSpec,
    qd: Tensor,
    dq: Tensor,
    dqd: Tensor,
    *,
    invariant: tuple[int, ...] = (),
    velocity_products: bool = True,
) -> Encoding:
    """Fit the constants of an encoding on training data.

    Args:
        spec: What the data are.
        qd: Velocities at the starts of frames [rad/s or m/s], shape [frames, nv].
        dq: Position changes over the frames, wrapped where continuous, shape [frames, nq].
        dqd: Velocity changes over the frames, shape [frames, nv].
        invariant: Position coordinates on which nothing but limits depends.
        velocity_products: Whether products of velocities enter the inputs.
    """
    require_scalar_joints(spec)
    excess = dq.double() / spec.dt - qd.double()
    kappa = (excess * dqd.double()).sum(0) / dqd.double().square().sum(0).clamp_min(1e-12)
    # A limit matters once the joint could reach it within a frame or two at the speeds seen.
    reach = 2.0 * spec.dt * _quantile(qd.abs())
    limits = []
    for i, joint in enumerate(spec.joints):
        margin = max(float(reach[i]), 1e-3)
        if joint.upper is not None:
            limits.append(Limit(coordinate=i, bound=joint.upper, side=1, margin=margin))
        if joint.lower is not None:
            limits.append(Limit(coordinate=i, bound=joint.lower, side=-1, margin=margin))
    config = EncodingConfig(
        invariant=invariant, limits=tuple(limits), kappa=tuple(kappa.tolist()), velocity_products=velocity_products
    )
    return Encoding(spec, config)


def require_scalar_joints(spec: StateSpec) -> None:
    """Refuse robots with floating bases or ball joints.

    Raises:
        InputError: A joint has more than one degree of freedom.
    """
    for joint in spec.joints:
        if joint.kind not in ("revolute", "prismatic"):
            raise InputError(
                f"robot {spec.robot!r}: joint {joint.name!r} is {joint.kind}; "
                "neural dynamics take revolute and prismatic joints"
            )


def _quantile(values: Tensor, share: float = 0.999, most: int = 100_000) -> Tensor:
    step = max(1, values.shape[0] // most)
    return torch.quantile(values[::step].float(), share, dim=0)
