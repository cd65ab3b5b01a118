# SPDX-License-Identifier: Apache-2.0
"""The shapes around a batch of worlds, ready to be measured against."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neurodyn.core.description.scene import Scene
from neurodyn.core.errors import InputError
from neurodyn.geometry.solids import Solid

if TYPE_CHECKING:
    from neurodyn.geometry.device_arrays import CompiledShapes


_FREE_SPACE = Scene()


@dataclass(frozen=True, eq=False)
class Ground:
    """Shapes around a batch of worlds.

    Attributes:
        scene: The shapes, shared by all worlds.
        pose: Pose of the scene in each world [x y z, qx qy qz qw], shape [worlds, 7] or [1, 7] for the same in
            all; None for the identity.
        shared: Shapes that all worlds see besides those of the scene, as a simulator's model has them.
        own: Shapes of each world, likewise; empty where there are none.
    """

    scene: Scene = _FREE_SPACE
    pose: Tensor | None = None
    shared: tuple[Solid, ...] = ()
    own: tuple[tuple[Solid, ...], ...] = ()
    _compiled: "list[CompiledShapes]" = field(default_factory=list, repr=False)

    def __repr__(self) -> str:
        own = f" and those of {len(self.own)} worlds" if self.own else ""
        return f"Ground({len(self.scene.shapes) + len(self.shared)} shapes{own})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_compiled": []}  # made anew where it is unpickled

    def posed(self, pose: Tensor | None) -> "Ground":
        """Return the same shapes at other poses, shape [worlds, 7]; what was compiled is shared."""
        return replace(self, pose=pose)

    def rows(self, index: Tensor | slice) -> "Ground":
        """Return the ground of some of the worlds, as `neurodyn.State.rows` does; itself where all see the same."""
        several = self.pose is not None and len(self.pose) > 1
        if not (several or self.own):
            return self
        host = index if isinstance(index, slice) else index.cpu()
        own = tuple(self.own[i] for i in torch.arange(len(self.own))[host]) if self.own else ()
        # What was compiled holds the shapes of all worlds in their order, so it is shared only where there are none.
        compiled = [] if self.own else self._compiled
        return replace(self, pose=self.pose[index] if several else self.pose, own=own, _compiled=compiled)  # type: ignore[index]

    @property
    def empty(self) -> bool:
        """Whether there is no shape at all."""
        return len(self.scene.shapes) + len(self.shared) + sum(map(len, self.own)) == 0

    @property
    def compiled(self) -> "CompiledShapes":
        """The shapes as kernels take them; grounds that differ by their pose alone share them."""
        if not self._compiled:
            from neurodyn.geometry.device_arrays import CompiledShapes  # loads Warp

            self._compiled.append(CompiledShapes(self.scene, self.shared, self.own))
        return self._compiled[0]

    def poses(self, worlds: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return the poses of the scene, shape [worlds or 1, 7].

        Raises:
            InputError: There are poses for another number of worlds.
        """
        if self.pose is None:
            return identity_pose(device, dtype)
        if self.pose.shape not in ((worlds, 7), (1, 7)):
            raise InputError(
                f"the ground has poses of shape {list(self.pose.shape)}; valid: [{worlds}, 7] "
                f"for {worlds} worlds, or [1, 7]"
            )
        return self.pose.detach().to(device=device, dtype=dtype).contiguous()


def identity_pose(device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the pose of a scene that stands where it was declared, shape [1, 7]."""
    key = (device, dtype)
    if key not in _IDENTITY:
        _IDENTITY[key] = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]], device=device, dtype=dtype)
    return _IDENTITY[key]


_IDENTITY: dict[tuple[torch.device, torch.dtype], Tensor] = {}
NOTHING = Ground()
"""Free space."""
