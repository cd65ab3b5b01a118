# SPDX-License-Identifier: Apache-2.0
"""How far a long piece of work is: whoever does it says so, whoever wants to see it looks on.

    with showing(bar):                          # the command line
        evaluate(run)

    for batch in tracked(batches, text="simulator"):    # the work, at any depth
        ...

Work within work fills its share: what is tracked within the third of ten batches goes from 20 to 30 %. Trainings, which
run within one another, are given their `Progress` instead: `present_work()` for the present work.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """Shows how far a piece of work is."""

    def update(self, done: float, text: str) -> None:
        """Show the share of the work that is done, and a line on how it goes."""
        ...


@dataclass(frozen=True)
class _Stage:
    """The share of the whole that the work at hand fills."""

    shown: Progress
    begin: float
    end: float
    text: str

    def update(self, done: float, text: str) -> None:
        """Show which share of it is done."""
        self.shown.update(self.begin + done * (self.end - self.begin), text or self.text)


_stage: ContextVar[_Stage | None] = ContextVar("stage", default=None)


@contextmanager
def showing(progress: Progress | None) -> Iterator[None]:
    """Show the work within on `progress`; None shows nothing of it."""
    with _at(None if progress is None else _Stage(progress, 0.0, 1.0, "")):
        yield


@contextmanager
def stage(begin: float, end: float, text: str = "") -> Iterator[None]:
    """Let the work within fill a share of the present work.

    Args:
        begin: Share of the present work that was done before.
        end: Share that is done after it.
        text: What is being done; empty for what the present work says.
    """
    outer = _stage.get()
    if outer is None:
        yield
        return
    span = outer.end - outer.begin
    inner = _Stage(outer.shown, outer.begin + begin * span, outer.begin + end * span, text or outer.text)
    with _at(inner):
        inner.shown.update(inner.begin, inner.text)
        yield
    outer.shown.update(inner.end, inner.text)


def tell(done: float, text: str = "") -> None:
    """Say which share of the present work is done."""
    present = _stage.get()
    if present is not None:
        present.update(done, text)


def present_work() -> Progress | None:
    """Return the present work, for trainings and others that are given their progress; None if nobody looks on."""
    return _stage.get()


def tracked(items: Collection[T], text: str = "") -> Iterator[T]:
    """Yield items, each of which takes the same share of the present work."""
    yield from counted(iter(items), len(items), text)


def counted(items: Iterator[T], count: int, text: str = "") -> Iterator[T]:
    """Yield what is expected to be `count` items, as `tracked` does."""
    outer = _stage.get()
    if outer is None:
        yield from items
        return
    span = (outer.end - outer.begin) / max(count, 1)
    try:
        for number, item in enumerate(items):
            begin = min(outer.begin + number * span, outer.end)
            here = _Stage(outer.shown, begin, min(begin + span, outer.end), text or outer.text)
            here.shown.update(here.begin, here.text)
            _stage.set(here)
            yield item
            _stage.set(outer)
            outer.shown.update(here.end, here.text)
    finally:
        _stage.set(outer)


@contextmanager
def _at(here: _Stage | None) -> Iterator[None]:
    before = _stage.get()
    _stage.set(here)
    try:
        yield
    finally:
        _stage.set(before)
