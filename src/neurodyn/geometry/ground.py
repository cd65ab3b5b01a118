# SPDX-License-Identifier: Apache-2.0
"""The shapes around a batch of worlds to which contact points are measured."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neurodyn.core.description.scene import Scene
from neurodyn.core.errors import InputError
from neurodyn.geometry.solids import Solid
from neurodyn.geometry.tensors import shared_tensor

if TYPE_CHECKING:
    from neurodyn.geometry.device_arrays import CompiledShapes


_FREE_SPACE = Scene()
_IDENTITY = ((0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0),)


@dataclass(frozen=True, eq=False)
class Ground:
    """Shapes around a batch of worlds."""

    scene: Scene = _FREE_SPACE
    """Shapes that all worlds share."""
    pose: Tensor | None = None
    """Pose of the scene in each world [x y z, qx qy qz qw], shape [worlds, 7], or [1, 7] for one pose in all worlds;
    None for the identity."""
    shared: tuple[Solid, ...] = ()
    """Further shapes that all worlds share, e.g. from a simulator's model."""
    own: tuple[tuple[Solid, ...], ...] = ()
    """Further shapes of each world; empty if there are none."""
    _compiled: "list[CompiledShapes]" = field(default_factory=list, repr=False)

    def __repr__(self) -> str:
        own = f" and those of {len(self.own)} worlds" if self.own else ""
        return f"Ground({len(self.scene.shapes) + len(self.shared)} shapes{own})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_compiled": []}  # compiled again after unpickling

    def at_pose(self, pose: Tensor | None) -> "Ground":
        """Return the same shapes at other poses, shape [worlds, 7]; compiled shapes are shared."""
        return replace(self, pose=pose)

    def rows(self, index: Tensor | slice) -> "Ground":
        """Return the ground of some of the worlds (see `neurodyn.State.rows`); itself if all worlds are alike."""
        several = self.pose is not None and len(self.pose) > 1
        if not (several or self.own):
            return self
        host = index if isinstance(index, slice) else index.cpu()
        own = tuple(self.own[i] for i in torch.arange(len(self.own))[host]) if self.own else ()
        # Compiled arrays hold the shapes of all worlds in order, so they are shared only without individual shapes.
        compiled = [] if self.own else self._compiled
        return replace(self, pose=self.pose[index] if several else self.pose, own=own, _compiled=compiled)  # type: ignore[index]

    @property
    def empty(self) -> bool:
        """Whether there are no shapes."""
        return len(self.scene.shapes) + len(self.shared) + sum(map(len, self.own)) == 0

    @property
    def compiled(self) -> "CompiledShapes":
        """The shapes as kernel arguments; shared by grounds that differ only in pose."""
        if not self._compiled:
            from neurodyn.geometry.device_arrays import CompiledShapes  # loads Warp

            self._compiled.append(CompiledShapes(self.scene, self.shared, self.own))
        return self._compiled[0]

    def poses(self, worlds: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return the poses of the scene, shape [worlds or 1, 7]; an InputError if they are for other worlds."""
        if self.pose is None:
            return shared_tensor(_IDENTITY, device, dtype)
        if self.pose.shape not in ((worlds, 7), (1, 7)):
            raise InputError(
                f"the ground has poses of shape {list(self.pose.shape)}; valid: [{worlds}, 7] "
                f"for {worlds} worlds, or [1, 7]"
            )
        return self.pose.detach().to(device=device, dtype=dtype).contiguous()


NOTHING = Ground()
"""Free space."""
