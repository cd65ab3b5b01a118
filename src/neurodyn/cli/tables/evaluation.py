# SPDX-License-Identifier: Apache-2.0
"""Evaluations as tables on the terminal."""

from functools import singledispatch

from rich.console import Console

from neurodyn.cli.console import terminal
from neurodyn.cli.tables.cells import WIDTH
from neurodyn.cli.tables.forecast import print_forecast
from neurodyn.cli.tables.logged import print_logged, print_tossed
from neurodyn.cli.tables.simulated import print_simulated
from neurodyn.evaluate.records import Evaluation, Forecast, Logged, Simulated, Tossed


def print_evaluation(result: Evaluation) -> None:
    """Print what `evaluate.evaluate` returns."""
    _print(result, terminal(WIDTH))


@singledispatch
def _print(result: Evaluation, console: Console) -> None:
    raise TypeError(type(result).__name__)


_print.register(Simulated, lambda result, console: print_simulated(console, result))
_print.register(Logged, lambda result, console: print_logged(console, result))
_print.register(Tossed, lambda result, console: print_tossed(console, result))
_print.register(Forecast, lambda result, console: print_forecast(console, result))
