# SPDX-License-Identifier: Apache-2.0
"""From state, torque and environment to network inputs, and from network outputs to the next state."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from neurodyn.core.config import Config
from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.scene import Vector3
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Environment, State
from neurodyn.dynamics.coordinates import Coordinates
from neurodyn.dynamics.neural.base_prediction import (
    Base,
    BasePrediction,
    BoundMotion,
    build_base,
    down,
    ground_of,
    predict_base,
)
from neurodyn.geometry import rotation

if TYPE_CHECKING:
    from neurodyn.geometry.contact_features import ContactFeatures


class ContactConfig(Config, frozen=True):
    """Constants of the contact inputs.

    Attributes:
        margins: Distance of each contact point's surface from the ground at which it begins to be seen [m].
    """

    margins: tuple[float, ...]


def default_margins(layout: ContactPointLayout, margin: float | None = None) -> tuple[float, ...]:
    """Return how far each contact point sees [m]: four radii, at least 0.12 m, unless declared otherwise."""
    return tuple(
        max(4.0 * contact_point.radius, 0.12) if margin is None else margin for contact_point in layout.contact_points
    )


_TURN = 0.99 * 2.0 * math.pi
"""Range from which on a joint with limits is taken to turn all the way round [rad]."""


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
        base_com: Centre of mass of a floating base in its own frame [m].
        contact: Constants of the contact inputs; None where no ground enters them.
        base: Known motion from the end of which predictions start; None where they start from the state itself.
        periodic: Position coordinates of joints with limits that enter by sine and cosine, as those without do.
    """

    invariant: tuple[int, ...]
    limits: tuple[Limit, ...]
    kappa: tuple[float, ...]
    velocity_products: bool
    base_com: Vector3 = (0.0, 0.0, 0.0)
    contact: ContactConfig | None = None
    base: Base | None = None
    periodic: tuple[int, ...] = ()


def _require_fit(spec: StateSpec, config: EncodingConfig) -> None:
    """Refuse constants of another robot, which only files that were edited have."""
    if len(config.kappa) != spec.nv:
        raise InputError(f"encoding: kappa has {len(config.kappa)} numbers; valid: {spec.nv}")
    scalars = [place.q.start for place, joint in zip(spec.places, spec.joints, strict=True) if joint.scalar]
    named = {"limits": [limit.coordinate for limit in config.limits]}
    for name, rows in (named | {"invariant": config.invariant, "periodic": config.periodic}).items():
        if wrong := [row for row in rows if row not in scalars]:
            raise InputError(f"encoding: {name} names coordinate {wrong[0]}; valid: {', '.join(map(str, scalars))}")


class Encoding(nn.Module):
    """Inputs and predictions of one robot.

    Attributes:
        spec: Names, order, units and dt of state and control.
        config: Fitted constants.
        layout: The contact points; None where no ground enters the inputs.
        coordinates: Conversion to and from the frame of the base.
        contact: What contact points read of the ground as inputs; None where no ground enters them.
        mechanism: The robot's tree of links, for a base; None without one.
    """

    dt: Tensor
    kappa: Tensor
    _bound: Tensor
    _side: Tensor
    _side_dt: Tensor
    _margin: Tensor
    _pairs: Tensor
    _angles_index: Tensor
    _plain_index: Tensor
    _limit_rows_index: Tensor
    _limit_dofs_index: Tensor

    def __init__(
        self,
        spec: StateSpec,
        config: EncodingConfig,
        layout: ContactPointLayout | None = None,
        mechanism: Mechanism | None = None,
    ) -> None:
        """Prepare an encoding.

        Args:
            spec: Names, order, units and dt of state and control.
            config: Fitted constants.
            layout: The contact points; None where no ground enters the inputs.
            mechanism: The robot's tree of links; needed for a base only.

        Raises:
            InputError: A base is asked for without a mechanism, or constants do not fit the spec.
        """
        super().__init__()
        _require_fit(spec, config)
        self.spec = spec
        self.config = config
        self.layout = layout
        self.coordinates = Coordinates(spec, config.base_com)
        self.mechanism = mechanism if config.base else None
        self._base = build_base(spec, mechanism, config.base)
        self.contact: ContactFeatures | None = None
        if config.contact is not None and layout is not None:
            self.contact = _contacts(layout, config.contact, spec.dt)
        continuous = spec.continuous
        seen = [i for i in self.coordinates.scalars if i not in config.invariant]
        self._angles = [i for i in seen if continuous[i] or i in config.periodic]
        self._plain = [i for i in seen if i not in self._angles]
        self.register_buffer("dt", torch.tensor(spec.dt), persistent=False)
        self.register_buffer("kappa", torch.tensor(config.kappa), persistent=False)
        self._limit_rows = [limit.coordinate for limit in config.limits]
        dof_of = dict(zip(self.coordinates.scalars, self.coordinates.scalar_dofs, strict=True))
        self._limit_dofs = [dof_of[row] for row in self._limit_rows]
        for name in ("angles", "plain", "limit_rows", "limit_dofs"):  # index tensors: lists are converted at each use
            index = torch.tensor(getattr(self, f"_{name}"), dtype=torch.long)
            self.register_buffer(f"_{name}_index", index, persistent=False)
        pairs = torch.triu_indices(spec.nv, spec.nv) if config.velocity_products else torch.zeros(2, 0).long()
        self.register_buffer("_pairs", pairs, persistent=False)
        for name in ("bound", "side", "margin"):
            values = torch.tensor([float(getattr(limit, name)) for limit in config.limits])
            self.register_buffer(f"_{name}", values, persistent=False)
        self.register_buffer("_side_dt", self._side * self.dt, persistent=False)

    @property
    def angles(self) -> list[int]:
        """Position coordinates that enter the inputs by sine and cosine."""
        return self._angles

    @property
    def plain(self) -> list[int]:
        """Position coordinates that enter the inputs as they are."""
        return self._plain

    @property
    def pairs(self) -> list[list[int]]:
        """First and second velocity coordinates of the products in the inputs."""
        return self._pairs.tolist()

    @property
    def limit_constants(self) -> tuple[Tensor, Tensor, Tensor]:
        """Bounds, sides and margins of the joint limits that enter the inputs, shape [limits] each."""
        return self._bound, self._side, self._margin

    @property
    def starts_ahead(self) -> bool:
        """Whether predictions start from another state than the present one."""
        return self._base is not None

    @property
    def base_is_whole(self) -> bool:
        """Whether predictions start from a motion that leaves nothing out."""
        return self._base is not None and self._base.whole

    @property
    def inputs(self) -> int:
        """Number of network inputs."""
        rotations = 3 * self.coordinates.free + 6 * len(self.coordinates.balls)
        positions = 2 * len(self._angles) + len(self._plain) + 3 * len(self._limit_rows)
        contacts = 0 if self.contact is None else self.contact.width
        velocities = self.spec.nv * (1 if self._base is None else 2)
        return rotations + positions + velocities + self._pairs.shape[1] + self.spec.nu + contacts

    @property
    def outputs(self) -> int:
        """Number of network outputs: dqd and r."""
        return 2 * self.spec.nv

    def predict_base(
        self, q: Tensor, qd: Tensor, torque: Tensor, environment: Environment | None = None
    ) -> BasePrediction:
        """Return where the prediction of a frame starts from; arguments as of `BaseMotion`."""
        return self.viewed(predict_base(self._base, q, qd, torque, environment), environment)

    def viewed(self, prediction: BasePrediction, environment: Environment | None = None) -> BasePrediction:
        """Return where a prediction starts from with what a floating base sees of itself there."""
        if not self.coordinates.free:
            return prediction
        seen = self.coordinates.view(prediction.q, prediction.qd, down(prediction.q, environment))
        return BasePrediction(prediction.q, prediction.qd, prediction.gained, seen)

    def base_onnx(self, environment: Environment) -> Any:
        """Return what leads to where predictions start from as an ONNX graph, as of `BaseMotion.onnx`; None of none."""
        return None if self._base is None else self._base.onnx(environment)

    def bound_base(
        self, state: Tensor, torque: Tensor, gravity: Tensor, environment: Environment
    ) -> BoundMotion | None:
        """Return what leads to where predictions start from, between fixed buffers; arguments as of `BaseMotion`."""
        return None if self._base is None else self._base.bound(state, torque, gravity, environment)

    def encode(
        self,
        base_prediction: BasePrediction,
        torque: Tensor,
        environment: Environment | None = None,
        contacts: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Return network inputs, shape [..., inputs].

        Args:
            base_prediction: What `predict_base` returned.
            torque: Torques during the frame [N m or N], shape [..., nu].
            environment: Gravity and ground; with a batch of several axes its rows belong to the first. None for
                gravity along -z and free space.
            contacts: What measures the contact points in place of the kernels: from positions and velocities to
                features.
        """
        q, qd = base_prediction.q, base_prediction.qd
        velocity, seen = _velocity(base_prediction), base_prediction.view
        parts = []
        if seen is not None and seen.down is not None:
            parts.append(seen.down)
        parts += [rotation.matrix(q[..., row : row + 4])[..., :2].flatten(-2) for row, _ in self.coordinates.balls]
        if self._angles:
            angle = q.index_select(-1, self._angles_index)
            parts += [torch.sin(angle), torch.cos(angle)]
        if self._plain:
            parts.append(q.index_select(-1, self._plain_index))
        if self._limit_rows:
            parts += self._limit_features(
                q.index_select(-1, self._limit_rows_index), qd.index_select(-1, self._limit_dofs_index)
            )
        parts.append(velocity)
        if self._pairs.shape[1]:
            parts.append(velocity.index_select(-1, self._pairs[0]) * velocity.index_select(-1, self._pairs[1]))
        parts.append(torque)
        if base_prediction.gained is not None:
            parts.append(self.coordinates.to_base(_rotation(base_prediction), base_prediction.gained))
        if self.contact is None:
            return torch.cat(parts, dim=-1)
        if contacts is not None:
            return torch.cat([*parts, contacts(q, qd)], dim=-1)
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return torch.cat([*parts, self._contacts(q, qd, environment)], dim=-1)
        inputs = q.new_empty(*q.shape[:-1], self.inputs)
        torch.cat(parts, dim=-1, out=inputs[..., : -self.contact.width])
        self._contacts(q, qd, environment, inputs[..., -self.contact.width :])
        return inputs

    def decode(self, base_prediction: BasePrediction, output: Tensor) -> State:
        """Return the state one frame later from network outputs, shape [..., outputs]."""
        nv = self.spec.nv
        dqd, residual = output[..., :nv], output[..., nv:]
        base = _rotation(base_prediction)
        if base_prediction.gained is None:
            velocity = torch.addcmul(_velocity(base_prediction), self.kappa, dqd)
        else:
            velocity = self.kappa * dqd
        dq = torch.addcmul(residual, self.dt, velocity)
        q, qd = self.coordinates.advance(base, base_prediction.q, base_prediction.qd, dq, dqd)
        return State.unchecked(q=q, qd=qd)

    def target(self, base_prediction: BasePrediction, q_next: Tensor, qd_next: Tensor) -> Tensor:
        """Return the network outputs that `decode` turns into the given next state, shape [..., outputs]."""
        dq, dqd = self.coordinates.change(base_prediction.q, base_prediction.qd, q_next, qd_next)
        velocity = self.kappa * dqd
        if base_prediction.gained is None:
            velocity = velocity + _velocity(base_prediction)
        return torch.cat([dqd, dq - self.dt * velocity], dim=-1)

    def _limit_features(self, q: Tensor, qd: Tensor) -> list[Tensor]:
        # Distances beyond the limit are positive; each ReLU is linear where the spring of a limit is.
        beyond = self._side * (q - self._bound)
        ahead = torch.addcmul(beyond, self._side_dt, qd)
        return [torch.relu(beyond + self._margin), torch.relu(beyond), torch.relu(ahead)]

    def _contacts(self, q: Tensor, qd: Tensor, environment: Environment | None, out: Tensor | None = None) -> Tensor:
        """Return what the contact points read in all states, zero in free space; written into `out` if given."""
        assert self.contact is not None
        batch, width = q.shape[:-1], self.contact.width
        ground = None if environment is None else ground_of(environment, batch)
        if ground is None:
            return q.new_zeros(*batch, width) if out is None else out.zero_()
        rows = None if out is None else out.flatten(0, -2)
        return self.contact(ground, q.flatten(0, -2), qd.flatten(0, -2), rows).unflatten(0, batch)


def _rotation(prediction: BasePrediction) -> Tensor | None:
    """Return the rotation of a floating base, shape [..., 3, 3]; None of a fixed one."""
    return None if prediction.view is None else prediction.view.rotation


def _velocity(prediction: BasePrediction) -> Tensor:
    """Return the velocities in the frame of the base, shape [..., nv]."""
    seen = prediction.view
    if seen is None:
        return prediction.qd
    return torch.cat([seen.linear, seen.angular, prediction.qd[..., 6:]], dim=-1)


def _contacts(layout: ContactPointLayout, config: ContactConfig, dt: float) -> "ContactFeatures":
    from neurodyn.geometry.contact_features import (
        ContactFeatures,  # loads Warp, which a robot without contact points does not need
    )

    return ContactFeatures(layout, config.margins, dt)


def fit_encoding(
    spec: StateSpec,
    qd: Tensor,
    dq: Tensor,
    dqd: Tensor,
    *,
    invariant: tuple[int, ...] = (),
    velocity_products: bool = True,
    base_com: Vector3 = (0.0, 0.0, 0.0),
    layout: ContactPointLayout | None = None,
    margin: float | None = None,
    base: Base | None = None,
    mechanism: Mechanism | None = None,
) -> Encoding:
    """Fit the constants of an encoding on training data.

    Args:
        spec: What the data are.
        qd: Velocities at the starts of frames in the frame of the base [rad/s or m/s], shape [frames, nv].
        dq: Position changes from the anchors to the ends of the frames, as of `Coordinates.change`, shape
            [frames, nv].
        dqd: Velocity changes, likewise.
        invariant: Position coordinates on which nothing but limits depends.
        velocity_products: Whether products of velocities enter the inputs.
        base_com: Centre of mass of a floating base in its own frame [m].
        layout: Contact points that are measured against the ground; None for none.
        margin: Distance from the ground at which contact points begin to see it [m]; None for that of the shapes.
        base: Known motion from the end of which predictions start; None for the state itself.
        mechanism: The robot's tree of links; needed for a base only.
    """
    excess = dq.double() / spec.dt - (0.0 if base else qd.double())
    kappa = (excess * dqd.double()).sum(0) / dqd.double().square().sum(0).clamp_min(1e-12)
    contact = None if layout is None else ContactConfig(margins=default_margins(layout, margin))
    config = EncodingConfig(
        invariant=invariant,
        limits=_limits(spec, qd),
        periodic=periodic_columns(spec),
        kappa=tuple(kappa.tolist()),
        velocity_products=velocity_products,
        base_com=base_com,
        contact=contact,
        base=base,
    )
    return Encoding(spec, config, layout, mechanism)


def periodic_columns(spec: StateSpec) -> tuple[int, ...]:
    """Return the coordinates of joints that turn all the way round between their limits.

    What depends on the angle repeats with every turn, which a network would have to learn of each; how far the limits
    are is an input of its own.
    """
    found = []
    for joint in spec.joints:
        if joint.kind != "revolute" or joint.lower is None or joint.upper is None:
            continue
        if joint.upper - joint.lower >= _TURN:
            found.append(spec.q_names.index(joint.name))
    return tuple(found)


def _limits(spec: StateSpec, qd: Tensor) -> tuple[Limit, ...]:
    # A limit matters once the joint could reach it within a frame or two at the speeds seen.
    reach = 2.0 * spec.dt * _quantile(qd.abs())
    limits = []
    for joint in spec.joints:
        if not joint.scalar:
            continue
        row, dof = spec.q_names.index(joint.name), spec.qd_names.index(joint.name)
        margin = max(float(reach[dof]), 1e-3)
        if joint.upper is not None:
            limits.append(Limit(coordinate=row, bound=joint.upper, side=1, margin=margin))
        if joint.lower is not None:
            limits.append(Limit(coordinate=row, bound=joint.lower, side=-1, margin=margin))
    return tuple(limits)


def _quantile(values: Tensor, share: float = 0.999, most: int = 100_000) -> Tensor:
    step = max(1, values.shape[0] // most)
    return torch.quantile(values[::step].float(), share, dim=0)


def count_inputs(
    spec: StateSpec,
    layout: ContactPointLayout | None = None,
    *,
    invariant: tuple[int, ...] = (),
    velocity_products: bool = True,
    base: bool = False,
) -> int:
    """Return how many network inputs an encoding has, which takes no data to know.

    Arguments are those of `fit_encoding`, but for `base`: whether there is one.
    """
    config = EncodingConfig(
        invariant=invariant,
        limits=_limits(spec, torch.zeros(1, spec.nv)),
        periodic=periodic_columns(spec),
        kappa=(0.0,) * spec.nv,
        velocity_products=velocity_products,
        contact=None if layout is None else ContactConfig(margins=default_margins(layout, None)),
    )
    return Encoding(spec, config, layout).inputs + (spec.nv if base else 0)


class Outputs(NamedTuple):
    """Outputs of a frame.

    Attributes:
        followed: Those that lead to the next state, shape [worlds, outputs].
        members: Those of all members, where they have all seen the worlds, shape [members, worlds, outputs].
    """

    followed: Tensor
    members: Tensor | None = None


Predict = Callable[[Tensor, Any], tuple[Outputs, Any]]
"""One frame of a model's networks in torch, from inputs and memory."""
