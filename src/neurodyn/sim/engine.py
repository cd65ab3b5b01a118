# SPDX-License-Identifier: Apache-2.0
"""The one place that imports Newton: quietly, and with a clear error where it is not installed."""

import os
from types import ModuleType

from neurodyn.core.errors import InputError


def import_newton() -> ModuleType:
    """Import Newton without Warp's banner (set NEURODYN_VERBOSE to see it).

    Raises:
        InputError: Newton is not installed.
    """
    try:
        import warp

        if not os.environ.get("NEURODYN_VERBOSE"):
            # A machine without a GPU is no reason for a warning, so initialisation is quieter than the rest.
            warp.config.log_level = max(warp.config.log_level, warp.LOG_ERROR)
            warp.init()
            warp.config.log_level = warp.LOG_WARNING
        import newton
    except ImportError as error:
        raise InputError(f"Newton cannot be imported ({error}); install it with: pip install 'neurodyn[sim]'") from None
    return newton


def short_label(label: str) -> str:
    """Return the name of a joint or body without the prefixes of world and articulation."""
    return label.rsplit("/", 1)[-1]
