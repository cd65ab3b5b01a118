# SPDX-License-Identifier: Apache-2.0
"""Imports MuJoCo, with a clear error if it is not installed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from neurodyn.core.errors import InputError


def import_mujoco() -> Any:
    """Import MuJoCo, which has no types; refuse if it is not installed."""
    if sys.modules.get("mujoco") is not None:
        return sys.modules["mujoco"]
    try:
        return import_module("mujoco")
    except ImportError as error:
        raise InputError(f"MuJoCo cannot be imported ({error}); install it with: pip install 'neurodyn[sim]'") from None


@contextmanager
def heard(said: list[str] | None = None) -> Iterator[None]:
    """Collect MuJoCo's warnings, which otherwise go to the terminal and to a log file in the working directory."""
    mujoco = import_mujoco()
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(([] if said is None else said).append)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)
