# SPDX-License-Identifier: Apache-2.0
"""Optional dependencies of policies, named in one line where they are missing."""

from importlib.util import find_spec

from neurodyn.core.errors import InputError


def require_learner() -> None:
    """Refuse to continue without rsl_rl, with an InputError that names the extra `policy`."""
    missing = [name for name in ("rsl_rl", "tensordict") if find_spec(name) is None]
    if missing:
        raise InputError(
            f"policies need a package that is not installed ({', '.join(missing)}); install it with: "
            "pip install 'neurodyn[policy]'"
        )
