# SPDX-License-Identifier: Apache-2.0
"""Probes of a batch of robots measured against the ground, differentiable by the robots' states."""

from typing import Any, NamedTuple

import torch
import warp as wp
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.core.probes import ProbeLayout
from neurodyn.rigid.device_arrays import PRECISIONS, layout_arrays
from neurodyn.rigid.ground import NOTHING, Ground
from neurodyn.rigid.kernels import probe_adjoint_kernel, probe_kernel
from neurodyn.rigid.start import start_warp

_MOST_LAUNCHES = 16


class Readings(NamedTuple):
    """What probes read, in the world or in the axes of the base (points relative to its origin).

    Attributes:
        distance: Signed height of each probe point over the nearest ground, negative inside [m]; the radius of
            the shape around the point is not subtracted. Shape [worlds, probes].
        normal: Direction in which the distance grows, unit, shape [worlds, probes, 3].
        point: Nearest point of the ground [m], shape [worlds, probes, 3].
        position: The probe point [m], shape [worlds, probes, 3].
        velocity: Velocity of the probe point relative to the world [m/s], shape [worlds, probes, 3].
        valid: Whether there is any ground, shape [worlds, probes]. Where there is none, the distance is 1000 m,
            and normal and ground point are zero.
    """

    distance: Tensor
    normal: Tensor
    point: Tensor
    position: Tensor
    velocity: Tensor
    valid: Tensor


class Prober:
    """Measures all probes of a layout in one kernel over (world, probe).

    Works in float32 and float64 on any device. Gradients reach positions and velocities through torch's
    autograd; the normal and the ground point are held fixed in the world, so the gradient of the distance by
    the place of a probe is the normal.

    Attributes:
        layout: The probes and the joints that move them.
    """

    def __init__(self, layout: ProbeLayout) -> None:
        start_warp()
        self.layout = layout
        self.nq = sum({"ball": 4, "free": 7}.get(joint.kind, 1) for joint in layout.joints)
        self.nv = sum({"ball": 3, "free": 6}.get(joint.kind, 1) for joint in layout.joints)
        self._free_base = bool(layout.joints) and layout.joints[0].kind == "free"
        self._layouts: dict[tuple[torch.device, torch.dtype, bool], list[Any]] = {}
        self._launches: dict[Any, _Launch] = {}
        self._check()

    def _check(self) -> None:
        for j, joint in enumerate(self.layout.joints):
            if not -1 <= joint.parent < j:
                raise InputError(f"joint {joint.name!r} has parent {joint.parent}; valid: -1 or an earlier joint")
            if self._free_base and j and joint.parent < 0:
                raise InputError(f"joint {joint.name!r} begins a second tree; valid: one floating robot in a layout")
        for probe in self.layout.probes:
            if not 0 <= probe.joint < len(self.layout.joints):
                raise InputError(
                    f"probe {probe.name!r} is on joint {probe.joint}; valid: 0 to {len(self.layout.joints) - 1}"
                )

    def __call__(self, ground: Ground | None, q: Tensor, qd: Tensor, *, base_frame: bool = False) -> Readings:
        """Measure all probes.

        Args:
            ground: The shapes around the robots; None for free space.
            q: Positions, shape [worlds, nq].
            qd: Velocities, shape [worlds, nv].
            base_frame: Whether readings are in the axes of the base, where it floats: vectors rotated, points
                relative to the origin of its body.

        Raises:
            InputError: The ground is for another number of worlds, or a state has another width or precision.
        """
        self._check_state(q, qd)
        ground = NOTHING if ground is None else ground
        base_frame = base_frame and self._free_base
        q, qd = q.contiguous(), qd.contiguous()
        if torch.is_grad_enabled() and (q.requires_grad or qd.requires_grad):
            return Readings(*_Probe.apply(self, ground, base_frame, q, qd))
        return Readings(*self.measure(ground, base_frame, q, qd))

    def _check_state(self, q: Tensor, qd: Tensor) -> None:
        worlds = q.shape[0]
        if q.shape != (worlds, self.nq) or qd.shape != (worlds, self.nv):
            raise InputError(
                f"state has shapes {list(q.shape)} and {list(qd.shape)}; valid for these probes: "
                f"[worlds, {self.nq}] and [worlds, {self.nv}]"
            )
        if q.dtype not in PRECISIONS or q.dtype != qd.dtype or q.device != qd.device:
            raise InputError(f"state is {q.dtype} and {qd.dtype}; valid: float32 or float64, both on one device")

    def measure(self, ground: Ground, base_frame: bool, q: Tensor, qd: Tensor) -> tuple[Tensor, ...]:
        """Run the kernel; arguments as checked by `__call__`, none of them recorded for gradients."""
        q, qd = q.detach(), qd.detach()
        worlds, probes, device = q.shape[0], len(self.layout.probes), str(q.device)
        shapes = ground.arrays(_warp_device(q.device), q.dtype)
        if shapes.worlds not in (0, worlds):
            raise InputError(f"the ground is that of {shapes.worlds} worlds; valid: a ground of {worlds} worlds")
        kinds = PRECISIONS[q.dtype]
        pose = ground.poses(worlds, q.device, q.dtype)
        distance = q.new_empty(worlds, probes)
        vectors = [q.new_empty(worlds, probes, 3) for _ in range(4)]
        valid = torch.empty(worlds, probes, dtype=torch.bool, device=q.device)
        outputs = (distance, *vectors, valid)
        if valid.numel() == 0:
            return outputs
        changing = [(q, None), (qd, None), (pose, kinds.transform)]
        results = [(distance, None), *((vector, kinds.vec3) for vector in vectors), (valid, None)]
        key = ("forward", worlds, base_frame, q.dtype, device, pose.shape[0], id(shapes))
        group = self._group(q)
        launch = self._launch(key, lambda: _Launch(
            probe_kernel, (worlds, probes // group), q.device, shapes,
            [*changing, int(base_frame), group, *self._layout(q, group == 1), *shapes.arrays, *results],
        ))  # fmt: skip
        launch([*changing, *results])
        return outputs

    def pull_back(
        self, base_frame: bool, q: Tensor, qd: Tensor, readings: tuple[Tensor, ...], gradients: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients by positions and velocities from those by all readings but `valid`."""
        grad_q, grad_qd = torch.zeros_like(q), torch.zeros_like(qd)
        vec3 = PRECISIONS[q.dtype].vec3
        worlds, probes = q.shape[0], len(self.layout.probes)
        if worlds * probes == 0:
            return grad_q, grad_qd
        _, normal, point, position, velocity, valid = readings
        changing: list[Any] = [(q, None), (qd, None)]
        saved = [*((x, vec3) for x in (normal, point, position, velocity)), (valid, None)]
        given = [(gradients[0], None), *((x, vec3) for x in gradients[1:])]
        results = [(grad_q, None), (grad_qd, None)]
        key = ("backward", worlds, base_frame, q.dtype, str(q.device))
        group = self._group(q)
        launch = self._launch(key, lambda: _Launch(
            probe_adjoint_kernel, (worlds, probes // group), q.device, None,
            [*changing, int(base_frame), group, *self._layout(q, True)[1:], *saved, *given, *results],
        ))  # fmt: skip
        launch([*changing, *saved, *given, *results])
        return grad_q, grad_qd

    def _group(self, like: Tensor) -> int:
        """Return how many probes one thread measures: on a CPU all of a world, to walk to each body once."""
        return len(self.layout.probes) if like.device.type == "cpu" else 1

    def _layout(self, like: Tensor, one_by_one: bool) -> list[Any]:
        key = (like.device, like.dtype, one_by_one)
        if key not in self._layouts:
            self._layouts[key] = layout_arrays(
                self.layout, _warp_device(like.device), PRECISIONS[like.dtype], one_by_one=one_by_one
            )
        return self._layouts[key]

    def _launch(self, key: Any, make: Any) -> "_Launch":
        launch = self._launches.get(key)
        if launch is None:
            if len(self._launches) >= _MOST_LAUNCHES:
                self._launches.pop(next(iter(self._launches)))
            launch = self._launches[key] = make()
        return launch


def _warp_device(device: torch.device) -> str:
    return str(wp.device_from_torch(device))


class _Launch:
    """A recorded launch of a kernel whose tensors are exchanged on every call; packing all arguments is slow."""

    def __init__(
        self, kernel: Any, dim: tuple[int, int], device: torch.device, keep: Any, arguments: list[Any]
    ) -> None:
        self._keep = keep  # the kernel knows meshes by their numbers only
        self._device = device
        self._changing = [i for i, argument in enumerate(arguments) if isinstance(argument, tuple)]
        whole = [wp.from_torch(*x, requires_grad=False) if isinstance(x, tuple) else x for x in arguments]
        self._command: Any = wp.launch(kernel, dim, inputs=whole, device=_warp_device(device), record_cmd=True)

    def __call__(self, tensors: list[tuple[Tensor, Any]]) -> None:
        """Launch with these tensors (and their Warp types) in place of those it was recorded with."""
        for index, (tensor, kind) in zip(self._changing, tensors, strict=True):
            self._command.set_param_at_index_from_ctype(index, wp.from_torch(tensor, kind, False, None, True))
        stream = wp.stream_from_torch(torch.cuda.current_stream(self._device)) if self._device.type == "cuda" else None
        self._command.launch(stream)


class _Probe(torch.autograd.Function):
    """The kernel and its adjoint in torch's autograd."""

    @staticmethod
    def forward(
        ctx: Any, prober: Prober, ground: Ground, base_frame: bool, q: Tensor, qd: Tensor
    ) -> tuple[Tensor, ...]:
        """Measure; see `Prober.__call__`."""
        readings = prober.measure(ground, base_frame, q, qd)
        ctx.prober, ctx.base_frame = prober, base_frame
        ctx.save_for_backward(q, qd, *readings)
        ctx.mark_non_differentiable(readings[-1])
        if not base_frame:
            ctx.mark_non_differentiable(readings[1], readings[2], readings[-1])
        return readings

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        """Return the gradients by q and qd."""
        q, qd, *readings = ctx.saved_tensors
        given = [
            (torch.zeros_like(reading) if gradient is None else gradient).contiguous()
            for gradient, reading in zip(gradients[:-1], readings[:-1], strict=True)
        ]
        return (
            None,
            None,
            None,
            *ctx.prober.pull_back(ctx.base_frame, q.detach(), qd.detach(), tuple(readings), given),
        )
