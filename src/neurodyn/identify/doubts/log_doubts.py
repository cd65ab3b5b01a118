# SPDX-License-Identifier: Apache-2.0
"""Doubts about the log of an adaptation: those of its import, and those of the checks that need no model."""

from collections.abc import Iterator
from contextlib import contextmanager

from neurodyn.core.errors import InputError
from neurodyn.core.verdict import Finding, doubts
from neurodyn.data.log_checks import check_log
from neurodyn.data.store import Store
from neurodyn.robots import Robot
from neurodyn.robots.data import declared_commands


def doubts_of(store: Store, robot: Robot) -> list[Finding]:
    """Return what is doubtful of a robot's log, worst first, and one of each name (`data.log_checks`)."""
    found = doubts([*store.header.findings, *check_log(store, declared_commands(robot))])
    return list({one.name: one for one in reversed(found)}.values())[::-1]


@contextmanager
def explaining(store: Store, robot: Robot) -> Iterator[None]:
    """Add the worst doubt about a log to an InputError of the enclosed work."""
    try:
        yield
    except InputError as error:
        found = doubts_of(store, robot)
        if not found:
            raise
        raise InputError(f"{error}; what is doubtful: {found[0].what}; {found[0].advice}") from None
