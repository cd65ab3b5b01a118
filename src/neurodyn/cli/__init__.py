# SPDX-License-Identifier: Apache-2.0
"""The command line: each verb is a function."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.cli.main import VERBS, Verb

__all__ = ["VERBS", "Verb"]
