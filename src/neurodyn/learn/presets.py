# SPDX-License-Identifier: Apache-2.0
"""Where settings come from: a file of one's own, else the robot's, else the general ones of a room."""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from neurodyn.core.config import Config, read_config

S = TypeVar("S", bound=Config)

_SUFFIXES = {".yaml", ".yml", ".toml", ".json"}


def settings_file(given: str) -> Path | None:
    """Return the path that is given for a size; None where it is a name."""
    path = Path(given)
    return path if path.suffix in _SUFFIXES else None


def load_preset(kind: type[S], path: str | Path | None, presets: Iterable[Path]) -> S | None:
    """Read settings.

    Args:
        kind: What they are.
        path: A file of one's own; None for a preset.
        presets: Files that may be there, the robot's own before the general ones.

    Returns:
        The settings; None where no preset is there.

    Raises:
        InputError: The file is missing or malformed.
    """
    if path is not None:
        return read_config(Path(path), kind)
    return next((read_config(preset, kind) for preset in presets if preset.is_file()), None)
