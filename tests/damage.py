# SPDX-License-Identifier: Apache-2.0
"""Files of a model that are missing or cut off."""

from collections.abc import Callable
from pathlib import Path

import pytest

from neurodyn.core.errors import InputError

KEPT = [None, 0, 0.5]
"""Shares of a file that are left; None for no file."""
FILES = ["config.json", "model.safetensors", "spec.json"]


def check_damage_is_refused(run: Path, name: str, keep: float | None, load: Callable[[Path], object]) -> None:
    """Leave a share of a model's file, and expect one line that names it."""
    path = run / "model" / name
    content = path.read_bytes()
    path.unlink()
    if keep is not None:
        path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(InputError, match=name.replace(".", r"\.")) as caught:
        load(run)
    assert "\n" not in str(caught.value)
