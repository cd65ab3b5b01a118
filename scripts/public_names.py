# SPDX-License-Identifier: Apache-2.0
"""API reference: the names of a package are those that its `__init__.pyi` re-exports ("from .x import y as y")."""

from typing import Any

import griffe


class PublicNames(griffe.Extension):
    """Export what a stub imports under its own name, as type checkers do; Griffe alone reads `__all__` only."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Set the exports of a package and of those within it."""
        if pkg.is_init_module and pkg.exports is None:
            pkg.exports = [name for name, target in pkg.imports.items() if target.startswith(f"{pkg.path}.")]
        for module in pkg.modules.values():
            if not module.is_alias:
                self.on_package(pkg=module)
