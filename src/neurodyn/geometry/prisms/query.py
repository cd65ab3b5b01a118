# SPDX-License-Identifier: Apache-2.0
"""Contacts of a batch of robots with heightfields, as pairs of features of robot and ground."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
import warp as wp
from torch import Tensor

from neurodyn.core.description.contacts import ChainJoint, ContactPoint, ContactPointLayout, RoundedBox
from neurodyn.core.description.scene import Vector3
from neurodyn.geometry.device_arrays import PRECISIONS, layout_arrays
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.launching import (
    Launch,
    Launches,
    OperatorHandle,
    object_of_handle,
    operator,
    start_warp,
    warp_device,
)
from neurodyn.geometry.prisms import CONTACT_NUMBERS, contact_slots
from neurodyn.geometry.tensors import Positions, Velocities


class PrismContacts(OperatorHandle):
    """Finds the contacts of a robot's shapes with a heightfield in one kernel over (world, link)."""

    def __init__(self, joints: tuple[ChainJoint, ...], shapes: Sequence[RoundedBox], base_com: Vector3) -> None:
        """Prepare the query; `base_com` is the centre of mass of the first joint's child body in its frame [m]."""
        start_warp()
        super().__init__()
        self._slots = contact_slots(shapes)
        self._shapes = sorted(shapes, key=lambda shape: shape.joint)
        points = tuple(ContactPoint(str(joint), joint, (0.0, 0.0, 0.0), 0.0) for joint in self._slots)
        self._layout = ContactPointLayout(joints=joints, contact_points=points, base_com=base_com)
        self._arrays: dict[torch.device, list[Any]] = {}
        self._launches = Launches()

    def __call__(self, ground: Ground, q: Positions, qd: Velocities) -> Tensor:
        """Return the contacts, shape [worlds, slots, CONTACT_NUMBERS]; zeros in unused slots. Not differentiable.

        The ground is one heightfield, shared or per world, and nothing else.
        """
        state = [x.detach().double().contiguous() for x in (q, qd)]
        pose = ground.poses(len(q), q.device, torch.float64)
        out = state[0].new_empty(len(q), sum(self._slots.values()), CONTACT_NUMBERS)
        _FIND(*state, pose, self.handle, ground.compiled.handle, out)
        return out.to(q.dtype)

    def launch(self, q: Tensor, qd: Tensor, pose: Tensor, ground: int, out: Tensor) -> None:
        """Launch the kernel."""
        if not len(q) * len(self._slots):
            return
        shapes = object_of_handle(ground).arrays(warp_device(q.device), torch.float64)
        shapes.require_worlds(len(q))
        changing: list[Any] = [(q, None), (qd, None), (pose, wp.transformd)]

        def record() -> Launch:
            start, solids, _, heights, ranges = shapes.arrays
            arguments = [*changing, *self._robot(q.device), start, solids, heights, ranges, (out, None)]
            from neurodyn.geometry.prisms.contacts import prism_contacts_kernel  # few robots touch heightfields

            return Launch(prism_contacts_kernel, (len(q), len(self._slots)), q.device, arguments, keep=shapes)

        self._launches.get((len(q), q.device, len(pose), id(shapes)), record)([*changing, (out, None)])

    def _robot(self, device: torch.device) -> list[Any]:
        if device not in self._arrays:
            where, kinds = warp_device(device), PRECISIONS[torch.float64]
            _start, chain_start, chain, _, joints = layout_arrays(self._layout, where, kinds, one_by_one=True)
            of = [shape.joint for shape in self._shapes]
            counts = [of.count(joint) for joint in self._slots]

            def array(values: Any, dtype: Any) -> Any:
                return wp.array(np.array(values), dtype=dtype, device=where)

            self._arrays[device] = [
                chain_start, chain, joints,
                array(list(self._slots), wp.int32),
                array([0, *accumulate(counts)], wp.int32),
                array([0, *accumulate(self._slots.values())], wp.int32),
                array([shape.place for shape in self._shapes], wp.transformd),
                array([shape.half for shape in self._shapes], wp.vec3d),
                array([shape.radius for shape in self._shapes], wp.float64),
                array([shape.contacts for shape in self._shapes], wp.int32),
            ]  # fmt: skip
        return self._arrays[device]


def _find(q: Tensor, qd: Tensor, pose: Tensor, query: int, ground: int, out: Tensor) -> None:
    object_of_handle(query).launch(q, qd, pose, ground, out)


_FIND = operator(
    "prism_contacts", "(Tensor q, Tensor qd, Tensor pose, int query, int ground, Tensor(a!) out) -> ()", _find
)
