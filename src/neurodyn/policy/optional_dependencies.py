# SPDX-License-Identifier: Apache-2.0
"""What this room needs from other packages, said in one line where it is missing."""

from importlib.util import find_spec

from neurodyn.core.errors import InputError


def require_learner() -> None:
    """Refuse to go on without rsl_rl.

    Raises:
        InputError: The extra `policy` is not installed.
    """
    missing = [name for name in ("rsl_rl", "tensordict") if find_spec(name) is None]
    if missing:
        raise InputError(
            f"policies need a package that is not installed ({', '.join(missing)}); install it with: "
            "pip install 'neurodyn[policy]'"
        )
