# SPDX-License-Identifier: Apache-2.0
"""Model checking of the store: random writes, kills in and between them, and reopenings lose no committed batch."""

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from neurodyn.data.header import dataset
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter, open_store_file
from tests.data.conftest import counting_batch, header


class KilledWriting(StoreWriter):
    """A writer whose process dies when rows are written, but not yet committed."""

    def _commit(self, batches: int) -> None:
        raise KeyboardInterrupt


class StoreMachine(RuleBasedStateMachine):
    """A store beside the list of what was committed to it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path, self.part = self.folder / "x.h5", self.folder / "x.h5.part"
        self.writer: StoreWriter | None = None
        self.committed: list[tuple[int, int]] = []  # first number and episodes of each batch
        self.finished: list[tuple[int, int]] | None = None  # what stands under the name itself
        self.drawn = 0

    def teardown(self) -> None:
        if self.writer is not None:
            self.writer.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        shutil.rmtree(self.folder)

    @initialize()
    def begin(self) -> None:
        self.writer = StoreWriter(self.path, header())

    @precondition(lambda self: self.writer is not None)
    @rule(episodes=st.integers(1, 4))
    def append(self, episodes: int) -> None:
        assert self.writer is not None
        self.writer.append(*counting_batch(episodes, 6, first=self.drawn))
        self.committed.append((self.drawn, episodes))
        self.drawn += episodes
        assert self.writer.batches == len(self.committed)

    @precondition(lambda self: self.writer is not None)
    @rule()
    def die_between_writes(self) -> None:
        """What a killed process leaves: the file as it is on the disk, without a word to HDF5."""
        assert self.writer is not None
        left = self.folder / "left"
        shutil.copyfile(self.part, left)
        self.writer._close()
        self.writer._lock.close()  # which the system gives back with the process
        left.replace(self.part)
        self.writer = None

    @precondition(lambda self: self.writer is not None)
    @rule(episodes=st.integers(1, 4))
    def die_in_a_write(self, episodes: int) -> None:
        assert self.writer is not None
        self.writer.__class__ = KilledWriting
        try:
            self.writer.append(*counting_batch(episodes, 6, first=1000))
        except KeyboardInterrupt:
            self.die_between_writes()
        else:
            raise AssertionError("the write was not interrupted")

    @precondition(lambda self: self.writer is not None)
    @rule()
    def interrupt(self) -> None:
        """Ctrl-C in the context of the writer."""
        assert self.writer is not None
        self.writer.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        self.writer = None

    @precondition(lambda self: self.writer is None)
    @rule()
    def resume(self) -> None:
        self.writer = StoreWriter(self.path, header(), resume=True)
        assert self.writer.batches == len(self.committed)

    @precondition(lambda self: self.writer is not None and self.committed)  # without episodes nothing could be opened
    @rule()
    def finish(self) -> None:
        assert self.writer is not None
        self.writer.close()
        self.writer, self.finished = None, list(self.committed)
        assert not self.part.exists()

    @invariant()
    def what_stands_under_the_name_is_whole(self) -> None:
        if self.finished is None:
            assert not self.path.exists()
            return
        store = Store.open(self.path)
        wanted = [counting_batch(episodes, 6, first=first) for first, episodes in self.finished]
        assert len(store.lengths) == sum(episodes for _, episodes in self.finished)
        if wanted:
            q = np.concatenate([batch[0].reshape(-1, batch[0].shape[-1]) for batch in wanted]).astype(np.float32)
            assert np.array_equal(store.columns("q", store.frames[:]), q)

    @invariant()
    def the_file_beside_it_counts_what_was_committed(self) -> None:
        if self.writer is None and self.part.exists():
            with open_store_file(self.part) as file:
                assert int(dataset(file, "committed")[0]) == len(self.committed)


StoreMachine.TestCase.settings = settings(max_examples=6, stateful_step_count=10, derandomize=True, deadline=None)
TestStoreMachine = StoreMachine.TestCase
