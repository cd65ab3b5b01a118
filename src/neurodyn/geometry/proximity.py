# SPDX-License-Identifier: Apache-2.0
"""Distance, normal and velocity of a batch of robots' contact points relative to the ground, differentiable."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import warp as wp
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.errors import InputError
from neurodyn.geometry.device_arrays import PRECISIONS, Precision, ShapeArrays, layout_arrays
from neurodyn.geometry.ground import NOTHING, Ground
from neurodyn.geometry.kernels import proximity_adjoint_kernel, proximity_kernel
from neurodyn.geometry.launching import (
    Launch,
    Launches,
    OperatorHandle,
    object_of_handle,
    operator,
    start_warp,
    warp_device,
)


class Readings(NamedTuple):
    """Readings of contact points, in the world or in base axes (positions relative to the base's origin)."""

    distance: Tensor
    """Signed distance of each contact point to the nearest ground, negative inside [m]. The point's radius is not
    subtracted. Shape [worlds, contact points]."""
    normal: Tensor
    """Unit gradient of the distance, shape [worlds, contact points, 3]."""
    point: Tensor
    """Nearest point of the ground [m], shape [worlds, contact points, 3]."""
    position: Tensor
    """Contact point [m], shape [worlds, contact points, 3]."""
    velocity: Tensor
    """Velocity of the contact point relative to the world [m/s], shape [worlds, contact points, 3]."""
    valid: Tensor
    """Whether there is any ground, shape [worlds, contact points]. Without ground the distance is 1000 m, and normal
    and ground point are zero."""


class Sight(OperatorHandle):
    """Radius, margin and frame length of each contact point, for the contact features."""

    def __init__(self, own: Sequence[tuple[float, float, float]]) -> None:
        """Store radius [m], margin [m] and frame length [s] of each contact point."""
        super().__init__()
        self._own = own
        self._arrays: dict[tuple[torch.device, torch.dtype], Any] = {}

    def array(self, like: Tensor) -> Any:
        """Return a Warp array of vectors on the device and in the precision of a tensor."""
        key = (like.device, like.dtype)
        if key not in self._arrays:
            vec3 = PRECISIONS[like.dtype].vec3
            self._arrays[key] = wp.array(list(self._own), dtype=vec3, device=warp_device(like.device))
        return self._arrays[key]


class ProximityQuery(OperatorHandle):
    r"""Measures all contact points of a layout in one kernel over (world, contact point).

    Works in float32 and float64 on any device. Autograd propagates gradients to positions and velocities. The normal n
    and the ground point p are held fixed in the world, so that $d = n \cdot (x - p)$ and the gradient of the distance
    with respect to the contact point x is n.
    """

    def __init__(self, layout: ContactPointLayout) -> None:
        start_warp()
        super().__init__()
        self.layout = layout
        self.nq = sum(joint.nq for joint in layout.joints)
        self.nv = sum(joint.nv for joint in layout.joints)
        self.free_base = layout.floating
        self._layouts: dict[tuple[torch.device, torch.dtype, bool], list[Any]] = {}
        self._launches = Launches()
        self._check()

    def _check(self) -> None:
        for j, joint in enumerate(self.layout.joints):
            if not -1 <= joint.parent < j:
                raise InputError(f"joint {joint.name!r} has parent {joint.parent}; valid: -1 or an earlier joint")
        for contact_point in self.layout.contact_points:
            if not 0 <= contact_point.joint < len(self.layout.joints):
                raise InputError(
                    f"contact point {contact_point.name!r} is on joint {contact_point.joint}; "
                    f"valid: 0 to {len(self.layout.joints) - 1}"
                )

    def __call__(
        self, ground: Ground | None, q: Float[Tensor, "worlds nq"], qd: Float[Tensor, "worlds nv"], *,
        base_frame: bool = False,
    ) -> Readings:  # fmt: skip
        """Measure all contact points, in base axes if the base floats and `base_frame` is set; None is free space.

        Raises:
            InputError: The ground has another number of worlds, or the state has a wrong width or precision.
        """
        self.check_state(q, qd)
        ground = NOTHING if ground is None else ground
        base_frame = base_frame and self.free_base
        q, qd = q.contiguous(), qd.contiguous()
        if torch.is_grad_enabled() and (q.requires_grad or qd.requires_grad):
            return Readings(*_Measure.apply(self, ground, base_frame, q, qd))
        readings = self.allocate(q)
        self.run(ground, base_frame, q, qd, readings=readings)
        return readings

    def check_state(self, q: Tensor, qd: Tensor) -> None:
        """Raise InputError for states of another robot; see `__call__`."""
        worlds = q.shape[0]
        if q.shape != (worlds, self.nq) or qd.shape != (worlds, self.nv):
            raise InputError(
                f"state has shapes {list(q.shape)} and {list(qd.shape)}; valid for these contact points: "
                f"[worlds, {self.nq}] and [worlds, {self.nv}]"
            )
        if q.dtype not in PRECISIONS or q.dtype != qd.dtype or q.device != qd.device:
            raise InputError(f"state is {q.dtype} and {qd.dtype}; valid: float32 or float64, both on one device")

    def allocate(self, q: Tensor) -> Readings:
        """Return uninitialised readings for these states."""
        shape = q.shape[0], len(self.layout.contact_points)
        a, b, c, d = (q.new_empty(*shape, 3) for _ in range(4))
        return Readings(q.new_empty(shape), a, b, c, d, q.new_empty(shape, dtype=torch.bool))

    def run(
        self, ground: Ground, base_frame: bool, q: Tensor, qd: Tensor, *,
        readings: Readings | None = None, sight: "Sight | None" = None, features: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Write readings, features or both, without recording gradients; positions and velocities are contiguous.

        Contact features (`contact_features`) have the shape [worlds, 6 contact points, 3] and need `sight`.
        """
        pose = ground.poses(q.shape[0], q.device, q.dtype)
        seen = [] if features is None else [features]
        number = -1 if sight is None else sight.handle
        _MEASURE(q, qd, pose, self.handle, ground.compiled.handle, base_frame, list(readings or ()), number, seen)

    def bind(
        self, ground: Ground, base_frame: bool, q: Tensor, qd: Tensor, pose: Tensor, *, sight: Any, features: Tensor
    ) -> tuple[Any, Any]:
        """Record a launch that recomputes contact features in place; return it and the objects that must outlive it.

        Arguments: see `run`; `pose` is the pose of the ground, shape [worlds or 1, 7].
        """
        kinds, device = PRECISIONS[q.dtype], warp_device(q.device)
        shapes, group = ground.compiled.arrays(device, q.dtype), self._group(q)
        shapes.require_worlds(len(q))
        none = _no_readings(kinds, device)
        given = [wp.from_torch(*x, requires_grad=False) for x in ((q, None), (qd, None), (pose, kinds.transform))]
        command = wp.launch(
            proximity_kernel, (q.shape[0], len(self.layout.contact_points) // group), device=device, record_cmd=True,
            inputs=[
                *given, int(base_frame), group, *self._layout(q, group == 1), *shapes.arrays, *none, sight,
                wp.from_torch(features, kinds.vec3, requires_grad=False),
            ],
        )  # fmt: skip
        return command, (shapes, sight)

    def pull_back(
        self, base_frame: bool, q: Tensor, qd: Tensor, readings: Readings, gradients: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients with respect to positions and velocities from those of all readings except `valid`."""
        grad_q, grad_qd = torch.zeros_like(q), torch.zeros_like(qd)
        _PULL_BACK(q, qd, self.handle, base_frame, list(readings), list(gradients), [grad_q, grad_qd])
        return grad_q, grad_qd

    def launch(
        self, q: Tensor, qd: Tensor, pose: Tensor, shapes: ShapeArrays, base_frame: bool, readings: list[Tensor],
        sight: "Sight | None", features: list[Tensor],
    ) -> None:  # fmt: skip
        """Launch the kernel; arguments: see `run`."""
        worlds, contact_points = q.shape[0], len(self.layout.contact_points)
        shapes.require_worlds(len(q))
        if worlds * contact_points == 0:
            return
        kinds, device = PRECISIONS[q.dtype], warp_device(q.device)
        changing: list[Any] = [(q, None), (qd, None), (pose, kinds.transform)]
        read = list(zip(readings, _types(kinds), strict=True)) if readings else []
        seen = [(rows, kinds.vec3) for rows in features]

        def record() -> Launch:
            group, none = self._group(q), _no_readings(kinds, device)
            own = wp.empty(0, dtype=kinds.vec3, device=device) if sight is None else sight.array(q)
            return Launch(proximity_kernel, (worlds, contact_points // group), q.device, [
                *changing, int(base_frame), group, *self._layout(q, group == 1), *shapes.arrays,
                *(read or none), own, *(seen or none[1:2]),
            ], keep=(shapes, own))  # fmt: skip

        wanted = bool(read), bool(seen)
        key = ("forward", worlds, base_frame, q.dtype, device, pose.shape[0], id(shapes), id(sight), wanted)
        self._launches.get(key, record)([*changing, *read, *seen])

    def launch_adjoint(
        self, q: Tensor, qd: Tensor, base_frame: bool, readings: list[Tensor], gradients: list[Tensor],
        results: list[Tensor],
    ) -> None:  # fmt: skip
        """Launch the adjoint, which adds to `results`; arguments: see `pull_back`."""
        vec3 = PRECISIONS[q.dtype].vec3
        worlds, contact_points = q.shape[0], len(self.layout.contact_points)
        if worlds * contact_points == 0:
            return
        _, *vectors, valid = readings
        changing: list[Any] = [(q, None), (qd, None)]
        saved = [*((x, vec3) for x in vectors), (valid, None)]
        given = [(gradients[0], None), *((x, vec3) for x in gradients[1:])]
        by = [(x, None) for x in results]
        key = ("backward", worlds, base_frame, q.dtype, str(q.device))
        group = self._group(q)
        launch = self._launches.get(key, lambda: Launch(
            proximity_adjoint_kernel, (worlds, contact_points // group), q.device,
            [*changing, int(base_frame), group, *self._layout(q, True)[1:], *saved, *given, *by],
        ))  # fmt: skip
        launch([*changing, *saved, *given, *by])

    def _group(self, like: Tensor) -> int:
        """Return the number of contact points per thread: on a CPU all of a world, so that a body is visited once."""
        return len(self.layout.contact_points) if like.device.type == "cpu" else 1

    def _layout(self, like: Tensor, one_by_one: bool) -> list[Any]:
        key = (like.device, like.dtype, one_by_one)
        if key not in self._layouts:
            self._layouts[key] = layout_arrays(
                self.layout, warp_device(like.device), PRECISIONS[like.dtype], one_by_one=one_by_one
            )
        return self._layouts[key]


def _types(kinds: Precision) -> tuple[Any, ...]:
    return (kinds.scalar, *(kinds.vec3,) * 4, wp.bool)


def _no_readings(kinds: Precision, device: str) -> list[Any]:
    return [wp.empty((0, 0), dtype=kind, device=device) for kind in _types(kinds)]


def _measure(
    q: Tensor, qd: Tensor, pose: Tensor, query: int, ground: int, base_frame: bool, readings: list[Tensor], sight: int,
    features: list[Tensor],
) -> None:  # fmt: skip
    shapes = object_of_handle(ground).arrays(warp_device(q.device), q.dtype)
    object_of_handle(query).launch(
        q, qd, pose, shapes, base_frame, readings, None if sight < 0 else object_of_handle(sight), features
    )


def _pull_back(
    q: Tensor, qd: Tensor, query: int, base_frame: bool, readings: list[Tensor], gradients: list[Tensor],
    results: list[Tensor],
) -> None:  # fmt: skip
    object_of_handle(query).launch_adjoint(q, qd, base_frame, readings, gradients, results)


_MEASURE = operator(
    "proximity",
    "(Tensor q, Tensor qd, Tensor pose, int query, int ground, bool base_frame, Tensor(a!)[] readings, int sight, "
    "Tensor(b!)[] features) -> ()",
    _measure,
)
_PULL_BACK = operator(
    "proximity_adjoint",
    "(Tensor q, Tensor qd, int query, bool base_frame, Tensor[] readings, Tensor[] gradients, Tensor(a!)[] results) "
    "-> ()",
    _pull_back,
)


class _Measure(torch.autograd.Function):
    """Autograd function of the kernel and its adjoint."""

    @staticmethod
    def forward(
        ctx: Any, proximity: ProximityQuery, ground: Ground, base_frame: bool, q: Tensor, qd: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the readings; see `ProximityQuery.__call__`."""
        readings = proximity.allocate(q)
        proximity.run(ground, base_frame, q.detach(), qd.detach(), readings=readings)
        ctx.proximity, ctx.base_frame = proximity, base_frame
        ctx.save_for_backward(q, qd, *readings)
        ctx.mark_non_differentiable(readings.valid)
        if not base_frame:
            ctx.mark_non_differentiable(readings.normal, readings.point, readings.valid)
        return tuple(readings)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Any, ...]:
        """Return the gradients with respect to q and qd."""
        q, qd, *readings = ctx.saved_tensors
        given = [
            (torch.zeros_like(reading) if gradient is None else gradient).contiguous()
            for gradient, reading in zip(gradients[:-1], readings[:-1], strict=True)
        ]
        return None, None, None, *ctx.proximity.pull_back(ctx.base_frame, q, qd, Readings(*readings), given)
