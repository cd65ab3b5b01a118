# SPDX-License-Identifier: Apache-2.0
"""Packages that only some work needs, in extras (`pip install 'neurodyn[EXTRA]'`), and the refusal without them."""

import importlib
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

from neurodyn.core.errors import InputError


def missing_extra(what: str, package: str, extra: str, *, why: object = "", instead: str = "") -> InputError:
    """Return the error for work that needs a package which is not there.

    Args:
        what: What needs it ("a cluster", "policies").
        package: The package.
        extra: The extra of neurodyn that installs it.
        why: What its import raised, where it was tried.
        instead: What works without it ("ask for --format html").
    """
    reason = f"cannot be imported ({why})" if why else "is not installed"
    more = f", or {instead}" if instead else ""
    return InputError(f"{what} needs {package}, which {reason}; install it with: pip install 'neurodyn[{extra}]'{more}")


def import_extra(module: str, what: str, extra: str, *, package: str = "", instead: str = "") -> Any:
    """Return an optional module, which has no types; arguments and error: see `missing_extra`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing_extra(what, package or module, extra, why=error, instead=instead) from None


def require_extra(modules: Iterable[str], what: str, extra: str) -> None:
    """Raise the error of `missing_extra` unless modules are installed; they are not imported."""
    missing = [name for name in modules if not has_module(name)]
    if missing:
        raise missing_extra(what, " and ".join(missing), extra)


def has_module(module: str) -> bool:
    """Return whether a module can be found; it is not imported."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a hidden or a broken installation
        return False
