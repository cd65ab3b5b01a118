# SPDX-License-Identifier: Apache-2.0
"""Imports MuJoCo, with a clear error if it is not installed."""

import sys
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
