# SPDX-License-Identifier: Apache-2.0
"""What formats of other tools have no place for."""

from pathlib import Path

from neurodyn.core.notices import notice
from neurodyn.data.store import Store


def note_left_out(store: Store, path: Path) -> None:
    """Give a notice where a store holds readings of sensors, which are not written."""
    if store.header.streams:
        names = ", ".join(stream.name for stream in store.header.streams)
        notice(f"{path}: holds joints and controls alone; left out: readings of {names}")
