# SPDX-License-Identifier: Apache-2.0
"""What of a compiled asset the hybrid engine does not model."""

from collections.abc import Callable
from typing import Any

_COUNTS: tuple[tuple[str, Callable[[Any], int]], ...] = (
    ("flexible bodies", lambda model: int(model.nflex)),
    ("plugins", lambda model: int(model.nplugin)),
)


def unmodelled(model: Any) -> tuple[str, ...]:
    """Return what of a `mujoco.MjModel` is simulated but not modelled by the hybrid engine, one line each."""
    found = ((what, count(model)) for what, count in _COUNTS)
    return tuple(f"{number} {what}: simulated, not modelled by `hybrid`" for what, number in found if number)
