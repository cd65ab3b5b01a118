# SPDX-License-Identifier: Apache-2.0
"""Quantities that differ between the episodes of a store, from writing to windows."""

import h5py
import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.data.mixture import first_frames, joined
from neurodyn.data.store import Store
from neurodyn.data.windows import WindowSampler, all_windows, windows_at
from neurodyn.data.writer import StoreWriter

from .conftest import counting_batch, header

DECLARED = {"pole.mass": 1.0, "slide.damping": 0.5}


def numbers(episodes, first=0):
    """Values that say which episode they are of."""
    own = np.arange(first, first + episodes, dtype=np.float32)
    return np.stack([own, 0.25 * own], 1)


def write(path, batches=2, **options):
    with StoreWriter(path, header(parameters=DECLARED), **options) as writer:
        for index in range(writer.batches, batches):
            writer.append(*counting_batch(3, 10, first=3 * index), lengths=[10, 4, 8], parameters=numbers(3, 3 * index))


def write_then_interrupt(path):
    with StoreWriter(path, header(parameters=DECLARED)) as writer:
        writer.append(*counting_batch(3, 10), lengths=[10, 4, 8], parameters=numbers(3))
        raise KeyboardInterrupt


@pytest.fixture
def differing(tmp_path):
    write(tmp_path / "store.h5")
    return Store.open(tmp_path / "store.h5")


def test_values_round_trip(differing, tmp_path):
    assert differing.header.parameters == DECLARED
    assert np.array_equal(differing.parameters, numbers(6))
    differing.write(tmp_path / "again.h5")
    again = Store.open(tmp_path / "again.h5")
    assert again.header == differing.header
    assert np.array_equal(again.parameters, numbers(6))
    with h5py.File(tmp_path / "again.h5") as file:
        assert list(file.attrs["parameter_names"]) == [b"pole.mass", b"slide.damping"]
        assert file["parameters"].shape == (6, 2)


def test_an_interrupted_store_goes_on(tmp_path):
    path = tmp_path / "store.h5"
    with pytest.raises(KeyboardInterrupt):
        write_then_interrupt(path)
    assert np.array_equal(Store.open(f"{path}.part").parameters, numbers(3))
    write(path, resume=True)
    assert np.array_equal(Store.open(path).parameters, numbers(6))


def test_without_values_they_are_the_declared_ones(tmp_path):
    with StoreWriter(tmp_path / "store.h5", header(parameters=DECLARED)) as writer:
        writer.append(*counting_batch(3, 10))
    assert Store.open(tmp_path / "store.h5").parameters.tolist() == [[1.0, 0.5]] * 3


def test_windows_have_those_of_their_episode(differing):
    for windows in all_windows(differing, 4):
        assert np.array_equal(windows.parameters.numpy(), numbers(6)[windows.episode])
    batch = WindowSampler(differing, 4, batch=64, seed=0, episodes=np.array([1, 5])).draw()
    assert set(batch.parameters[:, 0].tolist()) == {1.0, 5.0}
    assert torch.equal(batch.parameters[:, 1], 0.25 * batch.parameters[:, 0])
    assert windows_at(differing, np.array([4]), np.array([0]), 4).parameters.tolist() == [[4.0, 1.0]]


def test_episodes_keep_them_in_other_stores(differing):
    assert np.array_equal(differing.select([3, 1]).parameters, numbers(6)[[3, 1]])
    assert np.array_equal(joined([differing, differing]).parameters, np.concatenate([numbers(6)] * 2))
    assert np.array_equal(first_frames(differing, 9).parameters, numbers(6)[[0, 3]])
    one = differing.differing_in(["slide.damping"])
    one.check("one")
    assert one.header.parameters == {"slide.damping": 0.5}
    assert np.array_equal(one.parameters, numbers(6)[:, 1:])
    assert differing.differing_in([]).parameters is None
    with pytest.raises(InputError, match=r"no parameter 'mass'; valid: pole.mass, slide.damping"):
        differing.differing_in(["mass"])


@pytest.mark.parametrize("given", [np.ones((3, 1)), np.ones((2, 2)), np.full((3, 2), np.nan)])
def test_wrong_values_are_refused(tmp_path, given):
    with (
        pytest.raises(InputError, match="parameter"),
        StoreWriter(tmp_path / "store.h5", header(parameters=DECLARED)) as writer,
    ):
        writer.append(*counting_batch(3, 10), parameters=given)
    assert not (tmp_path / "store.h5").exists()


def test_changed_values_are_noticed(tmp_path):
    write(tmp_path / "store.h5")
    with h5py.File(tmp_path / "store.h5", "r+") as file:
        file["parameters"][4, 0] = 7.0
    with pytest.raises(InputError, match="damaged store: parameters"):
        Store.open(tmp_path / "store.h5")
