# SPDX-License-Identifier: Apache-2.0
"""Writers of trajectories in formats of other tools, by name."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from neurodyn.core.registry import Registry

if TYPE_CHECKING:
    from neurodyn.data.store import Store

WRITERS: "Registry[Callable[[Store, Path], None]]" = Registry(
    "format of trajectories",
    lerobot="neurodyn.data.writers.lerobot:write_lerobot",
    mcap="neurodyn.data.writers.mcap:write_mcap",
)
"""Writers by format: (store, path), which must not exist."""
