# SPDX-License-Identifier: Apache-2.0
"""Network inputs from state, torque and environment, and the next state from network outputs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from neurodyn.core.config import Config
from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.scene import Vector3
from neurodyn.core.description.shape_contacts import ShapeContact, TouchingShape
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Environment, State
from neurodyn.dynamics.conditions import Condition, ConditionInputs
from neurodyn.dynamics.coordinates import Coordinates
from neurodyn.dynamics.neural.base_prediction import Base, BasePrediction, build_base, down, ground_of, predict_base
from neurodyn.geometry import rotation

if TYPE_CHECKING:
    from neurodyn.dynamics.neural.impulses import Impulses
    from neurodyn.geometry.contact_features import ContactFeatures
    from neurodyn.geometry.object_contacts import ObjectContacts, TreeContacts


class ContactConfig(Config, frozen=True):
    """Constants of the contact inputs.

    Attributes:
        margins: Distance between each contact point's surface and the ground below which the network sees it [m].
        objects: Shapes of free bodies other than the robot, to which its contact points are measured too.
        candidates: Index of the contact point, and of the shape in `objects`, of each such pair.
    """

    margins: tuple[float, ...]
    objects: tuple[TouchingShape, ...] = ()
    candidates: tuple[tuple[int, int], ...] = ()


def default_margins(layout: ContactPointLayout, margin: float | None = None) -> tuple[float, ...]:
    """Return the sensing distance of each contact point [m]: `margin`, or four radii and at least 0.12 m."""
    return tuple(
        max(4.0 * contact_point.radius, 0.12) if margin is None else margin for contact_point in layout.contact_points
    )


_TURN = 0.99 * 2.0 * math.pi
"""Range above which a joint with limits counts as able to turn all the way round [rad]."""


class Limit(Config, frozen=True):
    """One side of a joint's range, as the network sees it.

    Attributes:
        coordinate: Index of the position coordinate.
        bound: Position of the limit [rad or m].
        side: +1 for an upper limit, -1 for a lower one.
        margin: Distance from the limit below which the network sees it [rad or m].
    """

    coordinate: int
    bound: float
    side: int
    margin: float


class EncodingConfig(Config, frozen=True):
    """Constants of an encoding, fitted once on training data and stored with the model.

    Attributes:
        invariant: Position coordinates that are left out of the inputs, because only limits depend on them.
        limits: Joint limits in the inputs.
        kappa: Share of the velocity change that acts within the frame, shape [nv].
        velocity_products: Whether products of velocities are inputs.
        base_com: Centre of mass of a floating base in the base frame [m].
        contact: Constants of the contact inputs; None without a ground in the inputs.
        base: Known motion that predictions start from; None to start from the present state.
        periodic: Position coordinates of joints with limits that enter by sine and cosine, as continuous ones do.
        conditions: Quantities of the robot in the inputs.
    """

    invariant: tuple[int, ...]
    limits: tuple[Limit, ...]
    kappa: tuple[float, ...]
    velocity_products: bool
    base_com: Vector3 = (0.0, 0.0, 0.0)
    contact: ContactConfig | None = None
    base: Base | None = None
    periodic: tuple[int, ...] = ()
    conditions: tuple[Condition, ...] = ()


def _require_fit(spec: StateSpec, config: EncodingConfig) -> None:
    """Refuse constants of another robot, which occur only in edited files."""
    if len(config.kappa) != spec.nv:
        raise InputError(f"encoding: kappa has {len(config.kappa)} numbers; valid: {spec.nv}")
    scalars = [place.q.start for place, joint in zip(spec.places, spec.joints, strict=True) if joint.scalar]
    named = {"limits": [limit.coordinate for limit in config.limits]}
    for name, rows in (named | {"invariant": config.invariant, "periodic": config.periodic}).items():
        if wrong := [row for row in rows if row not in scalars]:
            raise InputError(f"encoding: {name} names coordinate {wrong[0]}; valid: {', '.join(map(str, scalars))}")


def _impulses(spec: StateSpec, layout: ContactPointLayout | None, mechanism: Mechanism | None) -> "Impulses":
    from neurodyn.dynamics.neural.impulses import Impulses  # loads Warp

    return Impulses(spec, layout, mechanism)


class Encoding(nn.Module):
    """Inputs and predictions of one robot.

    Attributes:
        spec: Names, order, units and dt of state and control.
        config: Fitted constants.
        layout: The contact points; None without a ground in the inputs.
        coordinates: Conversion to and from the frame of the base.
        contact: Inputs from the contact points; None without a ground in the inputs.
        object_contact: Inputs from contact points and objects; None without such pairs.
        mechanism: The robot's tree of links, for a base motion; None without one.
        motion: The base motion that predictions start from; None to start from the present state.
        conditions: Inputs from quantities of the robot.
        angles: Position coordinates that enter the inputs by sine and cosine.
        plain: Position coordinates that enter the inputs as they are.
        limit_rows: Position coordinate of each limit in the inputs.
        limit_dofs: Velocity coordinate of each limit in the inputs.
    """

    contact: "ContactFeatures | TreeContacts | None"
    object_contact: "ObjectContacts | None"
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
        """Prepare an encoding; arguments: see the attributes.

        Raises:
            InputError: A base motion has no mechanism, or constants do not fit the spec.
        """
        super().__init__()
        _require_fit(spec, config)
        self.spec = spec
        self.config = config
        self.layout = layout
        coms = layout.coms if layout is not None and isinstance(layout.coms, dict) else {}
        self.coordinates = Coordinates(spec, config.base_com, coms)
        self.mechanism = mechanism if config.base else None
        self.motion = build_base(spec, mechanism, config.base)
        self.conditions = ConditionInputs(config.conditions)
        self.contact, self.object_contact = None, None
        if config.contact is not None and layout is not None:
            self._sense(config.contact, layout)
        pushed = self.motion is not None and self.motion.pushed
        self.impulses: Impulses | None = _impulses(spec, layout, mechanism) if pushed else None
        continuous = spec.continuous
        seen = [i for i in self.coordinates.scalars if i not in config.invariant]
        self.angles = [i for i in seen if continuous[i] or i in config.periodic]
        self.plain = [i for i in seen if i not in self.angles]
        self.register_buffer("dt", torch.tensor(spec.dt), persistent=False)
        self.register_buffer("kappa", torch.tensor(config.kappa), persistent=False)
        self.limit_rows = [limit.coordinate for limit in config.limits]
        dof_of = dict(zip(self.coordinates.scalars, self.coordinates.scalar_dofs, strict=True))
        self.limit_dofs = [dof_of[row] for row in self.limit_rows]
        for name in ("angles", "plain", "limit_rows", "limit_dofs"):  # index tensors: lists are converted at each use
            index = torch.tensor(getattr(self, name), dtype=torch.long)
            self.register_buffer(f"_{name}_index", index, persistent=False)
        pairs = torch.triu_indices(spec.nv, spec.nv) if config.velocity_products else torch.zeros(2, 0).long()
        self.register_buffer("_pairs", pairs, persistent=False)
        for name in ("bound", "side", "margin"):
            values = torch.tensor([float(getattr(limit, name)) for limit in config.limits])
            self.register_buffer(f"_{name}", values, persistent=False)
        self.register_buffer("_side_dt", self._side * self.dt, persistent=False)

    def _sense(self, config: ContactConfig, layout: ContactPointLayout) -> None:
        from neurodyn.geometry.contact_features import ContactFeatures  # loads Warp, which only contacts need
        from neurodyn.geometry.object_contacts import ObjectContacts, ObjectPoint, TreeContacts

        several = self.coordinates.free and bool(self.coordinates.objects)
        self.contact = (TreeContacts if several else ContactFeatures)(layout, config.margins, self.spec.dt)
        if config.candidates:
            pairs = [ObjectPoint(*pair) for pair in config.candidates]
            self.object_contact = ObjectContacts(layout, config.objects, pairs, config.margins, self.spec.dt)

    @property
    def compiles(self) -> bool:
        """Whether there are kernels for a whole frame; objects and impulses are computed by torch alone."""
        return not self.coordinates.objects and self.impulses is None

    @property
    def pairs(self) -> list[list[int]]:
        """First and second velocity coordinates of the products in the inputs."""
        return self._pairs.tolist()

    @property
    def limit_constants(self) -> tuple[Tensor, Tensor, Tensor]:
        """Bounds, sides and margins of the joint limits in the inputs, shape [limits] each."""
        return self._bound, self._side, self._margin

    @property
    def starts_ahead(self) -> bool:
        """Whether predictions start from a base motion instead of the present state."""
        return self.motion is not None

    @property
    def base_is_whole(self) -> bool:
        """Whether predictions start from a base motion that is complete."""
        return self.motion is not None and self.motion.whole

    @property
    def inputs(self) -> int:
        """Number of network inputs."""
        rotations = 3 * self.coordinates.free + 6 * len(self.coordinates.balls) + 9 * len(self.coordinates.objects)
        positions = 2 * len(self.angles) + len(self.plain) + 3 * len(self.limit_rows)
        velocities = self.spec.nv * (1 + self.starts_ahead)
        plain = rotations + positions + velocities + self._pairs.shape[1] + self.spec.nu
        return plain + len(self.conditions) + self._contact_width

    @property
    def condition_columns(self) -> slice:
        """Network inputs that are conditions."""
        end = self.inputs - self._contact_width
        return slice(end - len(self.conditions), end)

    @property
    def _contact_width(self) -> int:
        return sum(part.width for part in (self.contact, self.object_contact) if part is not None)

    @property
    def outputs(self) -> int:
        """Number of network outputs: dqd and r, or impulses and r."""
        return 2 * self.spec.nv if self.impulses is None else self.impulses.width

    def predict_base(
        self, q: Tensor, qd: Tensor, torque: Tensor, environment: Environment | None = None
    ) -> BasePrediction:
        """Return the base prediction of a frame, with its view; arguments: see `BaseMotion.__call__`."""
        return self.with_view(predict_base(self.motion, q, qd, torque, environment), environment)

    def with_view(self, prediction: BasePrediction, environment: Environment | None = None) -> BasePrediction:
        """Return a base prediction with the view of a floating base."""
        if not self.coordinates.free:
            return prediction
        seen = self.coordinates.view(prediction.q, prediction.qd, down(prediction.q, environment))
        return replace(prediction, view=seen)

    def encode(
        self,
        base_prediction: BasePrediction,
        torque: Tensor,
        environment: Environment | None = None,
        contacts: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Return network inputs, shape [..., inputs].

        Args:
            base_prediction: The result of `predict_base`.
            torque: Torques during the frame [N m or N], shape [..., nu].
            environment: Gravity, ground and parameters; with several batch axes, its worlds run along the first. None
                for gravity along -z and free space.
            contacts: Function from positions and velocities to contact features, in place of the kernels.
        """
        q, qd = base_prediction.q, base_prediction.qd
        velocity, seen = self._velocity(base_prediction), base_prediction.view
        parts = []
        if seen is not None and seen.down is not None:
            parts.append(seen.down)
        parts += [rotation.matrix(q[..., row : row + 4])[..., :2].flatten(-2) for row, _ in self.coordinates.balls]
        parts += self.coordinates.object_poses(q, _rotation(base_prediction))
        if self.angles:
            angle = q.index_select(-1, self._angles_index)
            parts += [torch.sin(angle), torch.cos(angle)]
        if self.plain:
            parts.append(q.index_select(-1, self._plain_index))
        if self.limit_rows:
            parts += self._limit_features(
                q.index_select(-1, self._limit_rows_index), qd.index_select(-1, self._limit_dofs_index)
            )
        parts.append(velocity)
        if self._pairs.shape[1]:
            parts.append(velocity.index_select(-1, self._pairs[0]) * velocity.index_select(-1, self._pairs[1]))
        parts.append(torque)
        if base_prediction.velocity_change is not None:
            parts.append(self.coordinates.to_base(_rotation(base_prediction), base_prediction.velocity_change))
        if len(self.conditions):
            parts.append(self.conditions(environment, q.shape[:-1]))
        if self.contact is None:
            return torch.cat(parts, dim=-1)
        if contacts is not None:
            return torch.cat([*parts, contacts(q, qd)], dim=-1)
        if self.coordinates.objects or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return torch.cat([*parts, self._contacts(q, qd, environment), *self._object_contacts(q, qd)], dim=-1)
        inputs = q.new_empty(*q.shape[:-1], self.inputs)
        torch.cat(parts, dim=-1, out=inputs[..., : -self.contact.width])
        self._contacts(q, qd, environment, inputs[..., -self.contact.width :])
        return inputs

    def changes(self, base_prediction: BasePrediction, output: Tensor, environment: Environment | None) -> Tensor:
        """Return dqd and r, shape [..., 2 nv], from network outputs, shape [..., outputs]."""
        return output if self.impulses is None else self.impulses(base_prediction, output, environment)

    def decode(self, base_prediction: BasePrediction, output: Tensor) -> State:
        """Return the state one frame later from dqd and r, shape [..., 2 nv]; see `changes`."""
        nv = self.spec.nv
        dqd, residual = output[..., :nv], output[..., nv:]
        base = _rotation(base_prediction)
        if base_prediction.velocity_change is None:
            velocity = torch.addcmul(self._velocity(base_prediction), self.kappa, dqd)
        else:
            velocity = self.kappa * dqd
        dq = torch.addcmul(residual, self.dt, velocity)
        q, qd = self.coordinates.advance(base, base_prediction.q, base_prediction.qd, dq, dqd)
        return State.make_unchecked(q=q, qd=qd)

    def target(self, base_prediction: BasePrediction, q_next: Tensor, qd_next: Tensor) -> Tensor:
        """Return the dqd and r that `decode` turns into the given next state, shape [..., 2 nv]."""
        dq, dqd = self.coordinates.change(base_prediction.q, base_prediction.qd, q_next, qd_next)
        velocity = self.kappa * dqd
        if base_prediction.velocity_change is None:
            velocity = velocity + self._velocity(base_prediction)
        return torch.cat([dqd, dq - self.dt * velocity], dim=-1)

    def _limit_features(self, q: Tensor, qd: Tensor) -> list[Tensor]:
        # Distances beyond the limit are positive; each ReLU is linear where the spring of a limit is.
        beyond = self._side * (q - self._bound)
        ahead = torch.addcmul(beyond, self._side_dt, qd)
        return [torch.relu(beyond + self._margin), torch.relu(beyond), torch.relu(ahead)]

    def _contacts(self, q: Tensor, qd: Tensor, environment: Environment | None, out: Tensor | None = None) -> Tensor:
        """Return the contact features of all states, zero in free space; written into `out` if given."""
        assert self.contact is not None
        batch, width = q.shape[:-1], self.contact.width
        ground = None if environment is None else ground_of(environment, batch)
        if ground is None:
            return q.new_zeros(*batch, width) if out is None else out.zero_()
        rows = () if out is None else (out.flatten(0, -2),)
        return self.contact(ground, q.flatten(0, -2), qd.flatten(0, -2), *rows).unflatten(0, batch)

    def _object_contacts(self, q: Tensor, qd: Tensor) -> list[Tensor]:
        if self.object_contact is None:
            return []
        return [self.object_contact(q.flatten(0, -2), qd.flatten(0, -2)).unflatten(0, q.shape[:-1])]

    def _velocity(self, prediction: BasePrediction) -> Tensor:
        """Return the velocities in the frame of the base, shape [..., nv]."""
        seen = prediction.view
        if seen is None:
            return prediction.qd
        whole = torch.cat([seen.linear, seen.angular, prediction.qd[..., 6:]], dim=-1)
        return self.coordinates.turn_objects(whole, seen.rotation)


def _rotation(prediction: BasePrediction) -> Tensor | None:
    """Return the rotation of a floating base, shape [..., 3, 3]; None for a fixed base."""
    return None if prediction.view is None else prediction.view.rotation


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
    touching: Sequence[ShapeContact] = (),
    conditions: Sequence[Condition] = (),
) -> Encoding:
    """Fit the constants of an encoding on training data.

    Args:
        spec: Names, order, units and dt of state and control.
        qd: Velocities at the starts of frames in the frame of the base [rad/s or m/s], shape [frames, nv].
        dq: Position changes from the base predictions to the ends of the frames, see `Coordinates.change`, shape
            [frames, nv].
        dqd: Velocity changes from the base predictions, see `Coordinates.change`, shape [frames, nv].
        invariant: See `EncodingConfig`.
        velocity_products: See `EncodingConfig`.
        base_com: See `EncodingConfig`.
        layout: Contact points whose distance to the ground is an input; None for none.
        margin: Sensing distance of contact points [m]; None to derive it from their radii.
        base: See `EncodingConfig`.
        mechanism: The robot's tree of links; needed only for a base motion.
        touching: Pairs of shapes that can touch; those with objects become inputs.
        conditions: Quantities of the robot in the inputs.
    """
    excess = dq.double() / spec.dt - (0.0 if base else qd.double())
    kappa = (excess * dqd.double()).sum(0) / dqd.double().square().sum(0).clamp_min(1e-12)
    contact = None if layout is None else _contact_config(spec, layout, margin, touching)
    config = EncodingConfig(
        invariant=invariant,
        limits=_limits(spec, qd),
        periodic=periodic_columns(spec),
        kappa=tuple(kappa.tolist()),
        velocity_products=velocity_products,
        base_com=base_com,
        contact=contact,
        base=base,
        conditions=tuple(conditions),
    )
    return Encoding(spec, config, layout, mechanism)


def _contact_config(
    spec: StateSpec, layout: ContactPointLayout, margin: float | None, touching: Sequence[ShapeContact]
) -> ContactConfig:
    """Return the constants of contact inputs; arguments: see `fit_encoding`."""
    margins = default_margins(layout, margin)
    if not spec.objects or not touching:
        return ContactConfig(margins=margins)
    from neurodyn.geometry.object_contacts import candidates, object_shapes  # loads Warp

    shapes = object_shapes(touching, tuple(spec.objects))
    pairs = tuple((one.point, one.shape) for one in candidates(layout, touching, shapes))
    return ContactConfig(margins=margins, objects=shapes if pairs else (), candidates=pairs)


def periodic_columns(spec: StateSpec) -> tuple[int, ...]:
    """Return the coordinates of joints that can turn at least once between their limits.

    Everything that depends on such an angle repeats with every turn, which a network would have to learn for each turn.
    The distance to the limits is a separate input.
    """
    return tuple(
        spec.q_names.index(joint.name)
        for joint in spec.joints
        if joint.kind == "revolute" and joint.lower is not None and joint.upper is not None
        if joint.upper - joint.lower >= _TURN
    )


def _limits(spec: StateSpec, qd: Tensor) -> tuple[Limit, ...]:
    # A limit matters once the joint could reach it within a frame or two at the speeds seen.
    step = max(1, len(qd) // 100_000)
    reach = 2.0 * spec.dt * torch.quantile(qd[::step].abs().float(), 0.999, dim=0)
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


def count_inputs(
    spec: StateSpec,
    layout: ContactPointLayout | None = None,
    *,
    invariant: tuple[int, ...] = (),
    velocity_products: bool = True,
    base: bool = False,
) -> int:
    """Return the number of inputs of `fit_encoding`, which needs no data; `base`: whether there is a base motion."""
    still = torch.zeros(1, spec.nv)
    made = fit_encoding(
        spec, still, still, still, invariant=invariant, velocity_products=velocity_products, layout=layout
    )
    return made.inputs + (spec.nv if base else 0)


class Outputs(NamedTuple):
    """Network outputs of a frame.

    Attributes:
        followed: Outputs that lead to the next state, shape [worlds, outputs].
        members: Outputs of all members if all of them predict all worlds, shape [members, worlds, outputs].
    """

    followed: Tensor
    members: Tensor | None = None


Predict = Callable[[Tensor, Any], tuple[Outputs, Any]]
"""One frame of a model's networks in torch, from inputs and memory."""
