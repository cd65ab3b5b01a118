# SPDX-License-Identifier: Apache-2.0
"""The command line: one verb, one file."""

from typing import TYPE_CHECKING

from neurodyn.core.lazy import lazy

if TYPE_CHECKING:
    from neurodyn.cli.main import VERBS, Verb

__all__ = ["VERBS", "Verb"]

lazy(__name__)
