# SPDX-License-Identifier: Apache-2.0
"""The environment of training windows: the ground of each window's episode."""

import torch

from neurodyn.data.store import Store
from neurodyn.data.windows import Batch
from neurodyn.dynamics.batch import Environment
from neurodyn.geometry.ground import Ground


class RecordedEnvironments:
    """Gravity and ground of the episodes in a store."""

    def __init__(self, store: Store, device: torch.device | str = "cpu") -> None:
        scene, own = store.header.scene, store.header.fingerprint
        self._ground = None if scene is None else Ground(scene)
        self._gravity = None if own is None else torch.tensor(own.gravity, device=device)
        self._device = device

    @classmethod
    def like(cls, environment: Environment) -> "RecordedEnvironments":
        """Return environments with gravity and scene of another environment, and other poses."""
        found = cls.__new__(cls)
        found._ground, found._gravity, found._device = environment.ground, environment.gravity, "cpu"
        return found

    def of(self, batch: Batch) -> Environment:
        """Return the environment of a batch of windows, one world each."""
        return self.at(batch.ground)

    def at(self, pose: torch.Tensor | None) -> Environment:
        """Return the environment of worlds with the scene at `pose`, shape [worlds, 7]."""
        ground = self._ground
        if ground is not None and pose is not None:
            ground = ground.posed(pose.to(self._device))
        return Environment(gravity=self._gravity, ground=ground)
