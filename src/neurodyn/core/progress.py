# SPDX-License-Identifier: Apache-2.0
"""Progress of long work: the work reports it, and a caller may display it.

    with showing(bar):                          # the command line
        evaluate(run)

    for batch in tracked(batches, text="simulator"):    # the work, at any depth
        ...

Nested work fills its share: work inside the third of ten batches goes from 20 to 30 %. Trainings, which can be nested,
take an explicit `Progress`, for example `present_work()`.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """Interface of a progress display."""

    def update(self, done: float, text: str) -> None:
        """Show the fraction of the work that is done, and a status line."""
        ...


@dataclass(frozen=True)
class _Stage:
    """The share of the whole that the current work fills."""

    shown: Progress
    begin: float
    end: float
    text: str

    def update(self, done: float, text: str) -> None:
        self.shown.update(self.begin + done * (self.end - self.begin), text or self.text)


_stage: ContextVar[_Stage | None] = ContextVar("stage", default=None)


@contextmanager
def showing(progress: Progress | None) -> Iterator[None]:
    """Show the enclosed work on `progress`; None hides it."""
    with _at(None if progress is None else _Stage(progress, 0.0, 1.0, "")):
        yield


@contextmanager
def stage(begin: float, end: float, text: str = "") -> Iterator[None]:
    """Let the enclosed work fill the current work from fraction `begin` to `end`, by default under its text."""
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
    """Report the fraction of the current work that is done."""
    present = _stage.get()
    if present is not None:
        present.update(done, text)


def present_work() -> Progress | None:
    """Return the current work as a `Progress` to pass on; None if nothing is shown."""
    return _stage.get()


def tracked(items: Collection[T], text: str = "") -> Iterator[T]:
    """Yield items, each counting as an equal share of the current work."""
    yield from counted(iter(items), len(items), text)


def counted(items: Iterator[T], count: int, text: str = "") -> Iterator[T]:
    """Yield an expected number of items with progress, like `tracked`."""
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
