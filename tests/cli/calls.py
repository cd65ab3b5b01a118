# SPDX-License-Identifier: Apache-2.0
"""Commands as they are typed."""

from neurodyn.cli.main import run


def call(*arguments: object) -> None:
    """Run a command that succeeds."""
    assert run([str(argument) for argument in arguments]) == 0
