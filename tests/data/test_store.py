# SPDX-License-Identifier: Apache-2.0
"""The store: round trips, interruption, lack of space, and damage."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import h5py
import numpy as np
import pytest

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split, Status
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter

from .conftest import counting_batch, header

PREAMBLE = """
import sys
from pathlib import Path
from tests.data.conftest import counting_batch, header
from neurodyn.core.errors import InputError
from neurodyn.data.store import StoreWriter
path = Path(sys.argv[1])
"""


def run_python(code, *arguments, **options):
    command = [sys.executable, "-c", PREAMBLE + textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


FULL_DISK = """
import resource
size, episodes, frames = map(int, sys.argv[2:5])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
try:
    with StoreWriter(path, header(), keep=len(sys.argv) > 5, resume="resume" in sys.argv) as writer:
        for index in range(writer.batches, 400):
            writer.append(*counting_batch(episodes, frames, first=episodes * index), world=range(episodes))
except InputError as error:
    print(error)
"""


def write(path, batches=3, **options):
    with StoreWriter(path, header(), **options) as writer:
        for index in range(writer.batches, batches):
            writer.append(*counting_batch(5, 20, first=5 * index), world=np.arange(5))


def write_then_raise(path, error):
    with StoreWriter(path, header()) as writer:
        writer.append(*counting_batch(5, 20))
        raise error


def test_round_trip(store):
    q, qd, control = counting_batch(4, 10)
    assert store.header == header()
    assert store.transitions == 34
    assert store.lengths.tolist() == [10, 10, 4, 10]
    assert store.offsets.tolist() == [0, 11, 22, 27, 38]
    assert store.status.tolist() == [Status.COMPLETE, Status.COMPLETE, Status.OUT_OF_RANGE, Status.COMPLETE]
    assert store.episodes(Split.VALIDATION).tolist() == [3]
    for episode, length in enumerate(store.lengths):
        found = store.episode(episode)
        assert np.array_equal(found[0], q[episode, : length + 1])
        assert np.array_equal(found[1], qd[episode, : length + 1])
        assert np.array_equal(found[2], control[episode, :length])


def test_selected_episodes_have_their_own_rows_alone(store):
    chosen = store.select([3, 1])
    chosen.check("chosen")
    assert chosen.lengths.tolist() == [10, 10]
    assert chosen.split.tolist() == store.split[[3, 1]].tolist()
    for place, episode in enumerate((3, 1)):
        for found, wanted in zip(chosen.episode(place), store.episode(episode), strict=True):
            assert np.array_equal(found, wanted)
    assert store.table["start"].tolist() == [0, 11, 22, 27]


def test_unused_controls_are_zero(store):
    assert np.all(store.control[store.offsets[1:] - 1] == 0.0)


def test_attributes_are_readable_by_any_viewer(store, tmp_path):
    with h5py.File(tmp_path / "store.h5") as file:
        assert file.attrs["robot"] == b"cartpole"
        assert list(file.attrs["joint_names"]) == [b"slide", b"pole"]
        assert list(file.attrs["q_units"]) == [b"m", b"rad"]
        assert file.attrs["dt_s"] == 0.02
        assert file.attrs["seed"] == 7
        assert b"featherstone" in bytes(file["header"][()])
        assert b"numpy" in file.attrs["versions"]
        assert file.attrs["schema_version"] == 1
        types = [h5py.check_string_dtype(file.attrs.get_id(name).dtype) for name in file.attrs]
        assert all(kind is None or kind.length for kind in types)  # no text is of variable length


def test_writing_in_memory_data_round_trips(store, tmp_path):
    store.write(tmp_path / "again.h5")
    again = Store.open(tmp_path / "again.h5")
    assert np.array_equal(again.frames, store.frames)
    assert np.array_equal(again.table, store.table)


def test_robot_without_controls(tmp_path):
    spec = header().spec
    bare = header(spec=type(spec)(robot="free", joints=spec.joints, controls=(), dt=spec.dt))
    with StoreWriter(tmp_path / "free.h5", bare) as writer:
        writer.append(np.ones((2, 4, 2)), np.ones((2, 4, 2)), np.empty((2, 3, 0)))
    assert Store.open(tmp_path / "free.h5").frames.shape == (8, 4)


def test_a_million_transitions_take_at_most_40_megabytes(tmp_path):
    q, qd, control = (x.astype(np.float32) for x in counting_batch(500, 100))
    with StoreWriter(tmp_path / "big.h5", header()) as writer:
        for _ in range(4):
            writer.append(q, qd, control)
    assert os.path.getsize(tmp_path / "big.h5") / 200_000 <= 40


@pytest.mark.parametrize(("spoil", "message"), [(np.nan, "q has a value that is not finite"), (None, "shapes")])
def test_values_that_do_not_fit_are_refused_and_nothing_is_left(tmp_path, spoil, message):
    q, qd, control = counting_batch(2, 3)
    q[1, 2, 0] = 0.0 if spoil is None else spoil
    with pytest.raises(InputError, match=message), StoreWriter(tmp_path / "x.h5", header()) as writer:
        writer.append(q[:, :-1] if spoil is None else q, qd, control)
    assert list(tmp_path.iterdir()) == []


def test_values_beyond_an_early_end_may_be_anything(tmp_path):
    q, qd, control = counting_batch(2, 3)
    q[1, 2:] = np.nan
    with StoreWriter(tmp_path / "x.h5", header()) as writer:
        writer.append(q, qd, control, lengths=[3, 1], status=[0, 1])
    assert Store.open(tmp_path / "x.h5").lengths.tolist() == [3, 1]


def test_existing_file_stays_until_the_writer_finishes(tmp_path):
    path = tmp_path / "x.h5"
    write(path, batches=1)
    before = path.read_bytes()
    writer = StoreWriter(path, header())
    writer.append(*counting_batch(5, 20))
    assert path.read_bytes() == before
    writer.append(*counting_batch(5, 20))
    writer.close()
    assert len(Store.open(path).table) == 10


def test_an_error_leaves_neither_file_nor_part(tmp_path):
    with pytest.raises(RuntimeError):
        write_then_raise(tmp_path / "x.h5", RuntimeError("simulator broke"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("interruptions", [1, 2])
def test_a_killed_writer_resumes_to_the_same_file(tmp_path, interruptions):
    path = tmp_path / "x.h5"
    for _ in range(interruptions):
        process = run_python(
            """
            writer = StoreWriter(path, header(), resume=True)
            for index in range(writer.batches, 10**6):
                writer.append(*counting_batch(5, 20, first=5 * index))
                print(writer.batches, flush=True)
            """,
            path,
        )
        assert process.stdout is not None
        seen = 0
        for line in process.stdout:
            seen = int(line)
            if seen % 4 == 3:
                break
        process.send_signal(signal.SIGKILL)
        process.communicate()
        partial = Store.open(tmp_path / "x.h5.part")
        assert len(partial.table) >= 5 * seen
        assert not path.exists()
    committed = len(partial.table) // 5
    expected = committed + 2
    write(path, batches=expected, resume=True)
    write(tmp_path / "straight.h5", batches=expected)
    resumed, straight = Store.open(path), Store.open(tmp_path / "straight.h5")
    assert np.array_equal(resumed.frames, straight.frames)
    assert not (tmp_path / "x.h5.part").exists()


def test_an_interrupted_writer_keeps_its_part_for_the_same_header(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write_then_raise(tmp_path / "x.h5", KeyboardInterrupt())
    with pytest.raises(InputError, match="seed is 8 instead of 7"):
        StoreWriter(tmp_path / "x.h5", header(seed=8), resume=True)
    assert len(Store.open(tmp_path / "x.h5.part").table) == 5
    assert StoreWriter(tmp_path / "x.h5", header(), resume=True).batches == 1


def test_resume_of_nothing_starts_over(tmp_path):
    write(tmp_path / "x.h5", batches=2, resume=True)
    assert len(Store.open(tmp_path / "x.h5").table) == 10


@pytest.mark.parametrize("limit", [100, 20_000, 300_000, 1_000_000])
def test_no_space_left_is_one_line_and_keeps_the_old_file(tmp_path, limit):
    path = tmp_path / "x.h5"
    write(path, batches=1)
    before = path.read_bytes()
    process = run_python(FULL_DISK, path, limit, 50, 100)
    out, error = process.communicate(timeout=600)
    assert process.returncode == 0, error
    assert re.fullmatch(r".*x\.h5: cannot be written \(File too large\); give a path .*\n", out)
    assert error == ""
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.h5"]


def test_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        StoreWriter(tmp_path / "file" / "x.h5", header())


def _foreign(path):
    with h5py.File(path, "w") as file:
        file["data"] = np.zeros(3)


def _of_another_schema(path):
    with h5py.File(path, "r+") as file:
        file.attrs["schema_version"] = 99


def _not_finite(path):
    with h5py.File(path, "r+") as file:
        file["qd"][13, 1] = np.nan
        del file["checksums"]  # as a program of somebody else's writes it


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (os.unlink, "no such file"),
        (_foreign, "no trajectory store"),
        (_of_another_schema, "schema version 99; this version of neurodyn reads 1"),
        (_not_finite, "not finite in episode 1, row 13"),
    ],
)
def test_what_is_no_whole_store_is_refused(store, tmp_path, damage, message):
    damage(tmp_path / "store.h5")
    with pytest.raises(InputError, match=message):
        Store.open(tmp_path / "store.h5")


@pytest.mark.parametrize("name", ["q", "episodes", "committed"])
def test_missing_dataset(store, tmp_path, name):
    with h5py.File(tmp_path / "store.h5", "r+") as file:
        del file[name]
    with pytest.raises(InputError, match=f"no dataset '{name}'"):
        Store.open(tmp_path / "store.h5")


def test_truncation_anywhere_is_an_input_error(tmp_path):
    path = tmp_path / "x.h5"
    write(path)
    whole = path.read_bytes()
    cut = tmp_path / "cut.h5"
    for length in [*range(0, 200, 7), *np.linspace(200, len(whole) - 1, 60).astype(int)]:
        cut.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"cut\.h5"):
            Store.open(cut)


def test_writing_is_cheap(tmp_path):
    q, qd, control = (x.astype(np.float32) for x in counting_batch(512, 100))
    begin = time.process_time()
    with StoreWriter(tmp_path / "x.h5", header()) as writer:
        for _ in range(5):
            writer.append(q, qd, control)
    # A simulator makes about 0.15 transitions a microsecond; writing must stay far below its 6.7 microseconds.
    assert (time.process_time() - begin) / (5 * 51_200) < 1.5e-6


def test_a_full_disk_keeps_what_was_committed_and_says_how_to_continue(tmp_path):
    path = tmp_path / "x.h5"
    out, error = run_python(FULL_DISK, path, 1_300_000, 5, 20, "keep").communicate(timeout=60)
    batches = int(re.search(r"; (\d+) batches are kept in .*x\.h5\.part: free space, and go on with --resume", out)[1])
    assert batches > 1
    assert error == ""
    for _ in range(2):  # resuming while the disk is still full loses nothing either
        run_python(FULL_DISK, path, 30_000, 5, 20, "resume").communicate(timeout=60)
        assert len(Store.open(tmp_path / "x.h5.part").table) == 5 * batches
    write(path, batches=batches + 2, resume=True)
    write(tmp_path / "straight.h5", batches=batches + 2)
    assert np.array_equal(Store.open(path).frames, Store.open(tmp_path / "straight.h5").frames)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["straight.h5", "x.h5"]


def test_a_second_writer_is_refused_by_name_of_the_first(tmp_path):
    path = tmp_path / "x.h5"
    first = StoreWriter(path, header())
    first.append(*counting_batch(5, 20))
    code = "try:\n    StoreWriter(path, header())\nexcept InputError as error:\n    print(error)\n"
    out, error = run_python(code, path).communicate(timeout=60)
    assert f"is being written by process {os.getpid()} on " in out, error
    first.close()
    assert len(Store.open(path).table) == 5
    assert [p.name for p in tmp_path.iterdir()] == ["x.h5"]


@pytest.mark.parametrize("memory", [1 << 30, 0])
def test_flipped_bits_are_found(tmp_path, memory):
    """Of 60 stores with three flipped bits none is read as something else than was written."""
    path, draw, found = tmp_path / "x.h5", np.random.default_rng(3), 0
    with StoreWriter(path, header()) as writer:
        for index in range(4):
            writer.append(*counting_batch(50, 100, first=50 * index), world=np.arange(50))
    whole, clean = path.read_bytes(), Store.open(path)
    for _ in range(60):
        damaged = bytearray(whole)
        for place in draw.integers(0, 8 * len(whole), 3):
            damaged[place // 8] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        try:
            read = Store.open(path, memory=memory)
            rows = read.frames[:]
        except InputError:
            found += 1
            continue
        assert np.array_equal(rows, clean.frames)  # the bits lay in unused space
        assert (read.header, read.table.tobytes()) == (clean.header, clean.table.tobytes())
    assert found > 40


def test_a_destroyed_page_is_named(tmp_path):
    path = tmp_path / "x.h5"
    write(path, batches=2)
    with h5py.File(path, "r+") as file:
        file["qd"][130:140] = 0.0
    for memory in (1 << 30, 0):
        with pytest.raises(InputError, match="qd of rows 105 to 209 changed"):
            Store.open(path, memory=memory)


def test_stores_without_checksums_are_read_but_not_continued(tmp_path):
    path = tmp_path / "x.h5"
    write(path, batches=2)
    new = Store.open(path)
    with h5py.File(path, "r+") as file:
        del file["checksums"]
        del file["header"].attrs["crc32"]
    assert np.array_equal(Store.open(path).frames, new.frames)
    path.rename(tmp_path / "x.h5.part")
    with pytest.raises(InputError, match=r"x\.h5\.part: cannot be continued: it has no checksums"):
        write(path, batches=3, resume=True)
    assert np.array_equal(Store.open(tmp_path / "x.h5.part").frames, new.frames)


def test_rows_in_other_files_are_not_read(tmp_path):
    path, other = tmp_path / "x.h5", tmp_path / "other.bin"
    for kind in ("external", "virtual", "link", "soft"):
        write(path)
        with h5py.File(path, "r+") as file:
            rows = file["qd"][()]
            other.write_bytes(rows.tobytes())
            del file["qd"]
            if kind == "external":
                file.create_dataset("qd", rows.shape, "<f4", external=[(str(other), 0, rows.nbytes)])
            elif kind == "virtual":
                with h5py.File(tmp_path / "rows.h5", "w") as source:
                    source["qd"] = rows
                layout = h5py.VirtualLayout(rows.shape, "<f4")
                layout[:] = h5py.VirtualSource(str(tmp_path / "rows.h5"), "qd", rows.shape)
                file.create_virtual_dataset("qd", layout)
            else:
                file["qd"] = h5py.ExternalLink(str(other), "qd") if kind == "link" else h5py.SoftLink("/q")
        with pytest.raises(InputError, match=r"'qd' (lies in another file|is a link to elsewhere)"):
            Store.open(path)
