# SPDX-License-Identifier: Apache-2.0
"""Work says how far it is, and work within it fills its share."""

import pytest

from neurodyn.core.progress import counted, showing, stage, tell, tracked


class Seen:
    def __init__(self) -> None:
        self.shares: list[float] = []
        self.texts: list[str] = []

    def update(self, done: float, text: str) -> None:
        self.shares.append(round(done, 6))
        self.texts.append(text)


@pytest.fixture
def seen() -> Seen:
    return Seen()


def test_items_take_equal_shares(seen: Seen):
    with showing(seen):
        assert list(tracked("abcd", text="letters")) == list("abcd")
    assert sorted(set(seen.shares)) == [0, 0.25, 0.5, 0.75, 1]
    assert set(seen.texts) == {"letters"}


def test_work_within_work_fills_its_share(seen: Seen):
    with showing(seen):
        for _ in tracked((0, 1), text="outer"):
            with stage(0.5, 1.0):
                list(tracked((0, 1)))
    assert sorted(set(seen.shares)) == [0, 0.25, 0.375, 0.5, 0.75, 0.875, 1]
    assert seen.shares == sorted(seen.shares)
    assert set(seen.texts) == {"outer"}


def test_what_takes_longer_than_expected_stays_below_the_end(seen: Seen):
    with showing(seen), stage(0.0, 0.5):
        list(counted(iter(range(5)), 2))
    assert max(seen.shares) == 0.5


def test_nothing_is_shown_without_a_listener(seen: Seen):
    tell(0.5)
    with showing(seen), showing(None):
        assert list(tracked([1, 2])) == [1, 2]
        tell(0.9)
    assert seen.shares == []


def test_work_that_stops_early_leaves_the_outer_share(seen: Seen):
    with showing(seen):
        for _ in tracked((0, 1)):
            break
        tell(1.0, "done")
    assert seen.shares[-1] == 1.0
    with showing(seen), pytest.raises(ZeroDivisionError), stage(0.2, 0.4):
        raise ZeroDivisionError
    tell(0.7)
    assert 0.7 not in seen.shares
