# SPDX-License-Identifier: Apache-2.0
"""Base predictions: known physics that a network corrects, instead of predicting the change of the state.

A *base* computes the state after a frame from the mechanism (`multibody.motion`). "free" is the motion without contacts
and joint limits; with "impulses" the network pushes at contact points (`dynamics.neural.impulses`). "contact" is the
full step of the hybrid engine with MuJoCo's soft contacts, limits and friction, so that the network only learns the
difference to the simulator.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor

from neurodyn.core.config import Config
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, require
from neurodyn.core.registry import Registry
from neurodyn.dynamics.batch import Environment
from neurodyn.geometry.base_frame import BaseView
from neurodyn.geometry.tensors import Positions, Torques, Velocities, constant

if TYPE_CHECKING:
    from neurodyn.geometry.ground import Ground
    from neurodyn.multibody.trace.recurrence import ConstantFrame

GRAVITY = 9.81
"""Standard gravity [m/s^2], in units of which gravity enters the inputs."""

_STRENGTH = "gravity.z"


@dataclass(frozen=True)
class BoundMotion:
    """A base motion with fixed buffers.

    Attributes:
        after: Positions and velocities one frame later, shape [worlds, nq + nv]; rows need not be adjacent in memory.
        launch: The recorded launch that computes them.
        place: Updates the buffers to another environment with the same shapes; None if there is nothing to update.
    """

    after: Tensor
    launch: Any
    update: Callable[[Environment], None] | None = None


class BaseMotion(ABC):
    """Known part of the motion of a robot over one frame.

    Attributes:
        whole: Whether the network starts from a correction of zero.
        pushed: Whether the network outputs impulses (`dynamics.neural.impulses`) in place of changes of the base's
            velocity.
        title: Description for readers of results.
    """

    whole = False
    pushed = False
    title = "a base"

    def __deepcopy__(self, memo: Any) -> "BaseMotion":
        """Return itself: the motion is constant, so copies of a model share it."""
        return self

    @abstractmethod
    def __call__(
        self, q: Positions, qd: Velocities, torque: Torques, environment: Environment | None
    ) -> tuple[Positions, Velocities]:
        """Return positions and velocities one frame later; differentiable, any number of batch axes.

        Args:
            q: Positions in Newton's convention [rad or m], shape [..., nq].
            qd: Velocities [rad/s or m/s], shape [..., nv].
            torque: Torques during the frame [N m or N], shape [..., nu].
            environment: Gravity and ground; with several batch axes, its worlds run along the first. None for gravity
                along -z and free space.
        """

    def bind(self, state: Tensor, torque: Tensor, gravity: Tensor, environment: Environment) -> "BoundMotion | None":
        """Return the motion as a recorded launch with fixed buffers; None if it cannot be recorded.

        Args:
            state: Positions and velocities, shape [worlds, nq + nv], contiguous.
            torque: Torques during the frame [N m or N], shape [worlds, nu], contiguous.
            gravity: Gravity in world axes [m/s^2], shape [worlds, 3], contiguous.
            environment: The ground; its gravity is not read.
        """
        return None

    def constant(self, environment: Environment) -> "ConstantFrame":
        """Return the motion in an environment, for ONNX and C, or an `InputError`; its state is [q, qd]."""
        raise InputError(f"base {type(self).__name__} has no form in ONNX or C; valid: base free or contact, or none")


class FreeBase(BaseMotion):
    """Motion without contacts, joint limits and joint friction."""

    title = "compiled motion without contacts"

    def __init__(self, spec: StateSpec, mechanism: Mechanism, base: "Base") -> None:
        """Trace the motion of a mechanism; an `InputError` for identified values."""
        from neurodyn.multibody.motion import FreeMotion  # loads Warp

        if base.values:
            raise InputError("base 'free' takes no identified values; valid: base 'contact'")
        self._motion = FreeMotion(mechanism, spec.control_dofs, spec.dt, base.substeps)

    def __call__(
        self, q: Positions, qd: Velocities, torque: Torques, environment: Environment | None
    ) -> tuple[Positions, Velocities]:
        """Return positions and velocities one frame later."""
        return self._motion(q, qd, torque, GRAVITY * down(q, environment))

    def bind(self, state: Tensor, torque: Tensor, gravity: Tensor, environment: Environment) -> "BoundMotion | None":
        """Return the motion as a recorded launch."""
        return BoundMotion(*self._motion.bind(state, torque, gravity))

    def constant(self, environment: Environment) -> "ConstantFrame":
        """Return the motion in an environment."""
        return self._motion.constant(_one_gravity(environment))


class PushedBase(FreeBase):
    """Motion without contacts, plus the impulses that a network applies at contact points."""

    pushed = True
    title = "compiled motion, moved by momentum"


class ContactBase(BaseMotion):
    """Motion with soft contacts, joint limits and joint friction."""

    whole = True
    title = "compiled contacts"

    def __init__(self, spec: StateSpec, mechanism: Mechanism, base: "Base") -> None:
        """Trace the motion of a mechanism."""
        from neurodyn.multibody.motion import ContactMotion  # loads Warp

        self._gravity = abs(base.values.get(_STRENGTH, -GRAVITY))
        values = {name: value for name, value in base.values.items() if name != _STRENGTH}
        self._motion = ContactMotion(mechanism, spec, base.substeps, values=values, limits=base.limits)

    def __call__(
        self, q: Positions, qd: Velocities, torque: Torques, environment: Environment | None
    ) -> tuple[Positions, Velocities]:
        """Return positions and velocities one frame later."""
        ground = None if environment is None else ground_of(environment, q.shape[:-1])
        return self._motion(q, qd, torque, self._gravity * down(q, environment), ground)

    def bind(self, state: Tensor, torque: Tensor, gravity: Tensor, environment: Environment) -> "BoundMotion | None":
        """Return the motion as a recorded launch; None on grounds that have to be measured in every frame."""
        if self._gravity != GRAVITY:
            return None
        bound = self._motion.bind(state, torque, gravity, environment.ground)
        if bound is None:
            return None
        after, launch, write = bound
        return BoundMotion(after, launch, lambda environment: write(environment.ground))

    def constant(self, environment: Environment) -> "ConstantFrame":
        """Return the motion in an environment on one plane, or without a ground."""
        return self._motion.constant(_one_gravity(environment, self._gravity), environment.ground)


BASES: Registry[Callable[[StateSpec, Mechanism, "Base"], BaseMotion]] = Registry(
    "base", free=FreeBase, impulses=PushedBase, contact=ContactBase
)
"""Base motions by name: made from the spec, the mechanism and the settings of the base."""


class Base(Config, frozen=True):
    """Settings of a base motion.

    Attributes:
        kind: Name of the base: "free", "impulses" or "contact".
        substeps: Steps in a frame, as many as the simulator takes.
        values: Identified quantities that replace values of the mechanism, by name; "gravity.z" is the magnitude of
            gravity [m/s^2] in any direction.
        limits: Whether limits and friction of joints are soft constraints even if the robot has no contact points.
    """

    kind: str
    substeps: int
    values: dict[str, float] = msgspec.field(default_factory=dict)
    limits: bool = False

    def __post_init__(self) -> None:
        BASES.require(self.kind)
        require(self.substeps >= 1, "substeps", self.substeps, "at least 1")


@dataclass(frozen=True)
class BasePrediction:
    """State that the network corrects: the result of the base motion, or the present state without a base.

    Attributes:
        q: Positions [rad or m], shape [..., nq].
        qd: Velocities [rad/s or m/s], shape [..., nv].
        velocity_change: That of the base motion, world axes, shape [..., nv]; None without a base.
        view: The state in the frame of a floating base; None for a fixed base.
        start: Positions at the start of the frame, shape [..., nq]; None without a base.
    """

    q: Tensor
    qd: Tensor
    velocity_change: Tensor | None = None
    view: BaseView | None = None
    start: Tensor | None = None

    def repeat(self, count: int) -> "BasePrediction":
        """Return the prediction expanded along a new first axis of length `count`, without copies."""

        def more(x: Tensor | None) -> Any:
            return None if x is None else x.expand(count, *x.shape)

        view = self.view
        seen = None if view is None else BaseView(*(more(x) for x in view))
        return BasePrediction(more(self.q), more(self.qd), more(self.velocity_change), seen, more(self.start))


def build_base(spec: StateSpec, mechanism: Mechanism | None, base: Base | None) -> BaseMotion | None:
    """Return the base motion of a robot; None without a base; an `InputError` without a mechanism."""
    if base is None:
        return None
    if mechanism is None:
        raise InputError(
            f"robot {spec.robot!r}: base {base.kind!r} needs the mechanism, which these data do not hold; generate "
            "them anew, or leave `base` out"
        )
    return BASES[base.kind](spec, mechanism, base)


def predict_base(
    motion: BaseMotion | None, q: Tensor, qd: Tensor, torque: Tensor, environment: Environment | None = None
) -> BasePrediction:
    """Return the base prediction of a frame. Arguments: see `BaseMotion.__call__`."""
    if motion is None:
        return BasePrediction(q, qd)
    after_q, after_qd = motion(q, qd, torque, environment)
    return BasePrediction(after_q, after_qd, after_qd - qd, start=q)


def _one_gravity(environment: Environment, strength: float = GRAVITY) -> tuple[float, ...]:
    """Return the common gravity of all worlds [m/s^2], shape [3]; `strength` is that of standard gravity."""
    like = torch.zeros(1, dtype=torch.float64)
    return tuple((strength * down(like, environment)).flatten()[:3].tolist())


def down(q: Tensor, environment: Environment | None) -> Tensor:
    """Return gravity in units of standard gravity for every row of q, shape [..., 3]."""
    if environment is None or environment.gravity is None:
        return constant((0.0, 0.0, -1.0), q).expand(*q.shape[:-1], 3)
    gravity = environment.gravity.to(q) / GRAVITY
    return gravity.expand(*q.shape[:-1], 3) if gravity.ndim == 1 else repeat_rows(gravity, q.shape[:-1])


def repeat_rows(rows: Tensor, batch: torch.Size) -> Tensor:
    """Expand one row per world over the later batch axes, shape [*batch, n]."""
    return rows.view(rows.shape[0], *(1,) * (len(batch) - 1), -1).expand(*batch, -1)


def ground_of(environment: Environment, batch: torch.Size) -> "Ground | None":
    """Return the ground of an environment with a pose for every row of the flattened batch; None without a ground."""
    ground = environment.ground
    if ground is None or ground.empty:
        return None
    if len(batch) > 1 and ground.pose is not None:
        return ground.at_pose(repeat_rows(ground.pose, batch).flatten(0, -2))
    return ground
