# SPDX-License-Identifier: Apache-2.0
"""Callbacks with which tests stop trainings."""

import os
import signal

from neurodyn.learn.loop import Callback, TrainingLoop


class Stopped(Exception):  # noqa: N818 - a signal, no error
    """Ends a training from the inside."""


class StopAt(Callback):
    """Stops a training after a step, saved or not."""

    def __init__(self, step: int, *, save: bool = True) -> None:
        self.step, self.save = step, save

    def on_step(self, loop: TrainingLoop) -> None:
        if loop.state.step == self.step:
            if self.save:
                loop.save()
            raise Stopped


class SignalAt(Callback):
    """Sends this process a signal after a step."""

    def __init__(self, step: int, number: signal.Signals) -> None:
        self.step, self.number = step, number

    def on_step(self, loop: TrainingLoop) -> None:
        if loop.state.step == self.step:
            os.kill(os.getpid(), self.number)
