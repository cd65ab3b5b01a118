# SPDX-License-Identifier: Apache-2.0
"""Commands that come faster than frames: kept by part, in files and windows."""

import numpy as np
import pytest

from neurodyn.data.command_parts import part_count, without_parts
from neurodyn.data.mixture import join_stores
from neurodyn.data.readers import read_logs
from neurodyn.data.store import Store
from neurodyn.data.windows import select_windows

from .conftest import SPEC, npz_arrays, npz_map

PERIOD = 0.005


def log(folder, period=PERIOD, held=1):
    """A log with rows every `period`, whose commands stay for `held` rows."""
    arrays = npz_arrays(rows=round(2.0 / period) + 1, dt=period)
    within = np.arange(len(arrays["tau"])) % (len(arrays["tau"]) // 3)
    arrays["tau"] = arrays["tau"][np.arange(len(within)) - within % held]
    np.savez(folder / "log.npz", **arrays)
    return read_logs([folder / "log.npz"], npz_map(), SPEC), arrays


def test_each_part_of_a_frame_has_its_commands(tmp_path):
    read, arrays = log(tmp_path)
    read.write(tmp_path / "log.h5")
    store = Store.open(tmp_path / "log.h5")
    windows = select_windows(store, None, 20, stride=20)
    start = int(windows.source.places[3, 1])
    logged = arrays["tau"][4 * start :][:80].reshape(20, 4, 2)
    assert part_count(store.header) == 4
    np.testing.assert_allclose(windows.parts[3], logged, atol=1e-5)
    np.testing.assert_allclose(windows.commands.mean(2), windows.control, atol=1e-5)
    later = windows.after(5)
    np.testing.assert_allclose(later.past.parts[3], logged[:5], atol=1e-5)
    np.testing.assert_allclose(later.until(4).parts[3], logged[5:9], atol=1e-5)


@pytest.mark.parametrize(("period", "held"), [(0.02, 1), (0.06, 1), (PERIOD, 4)])
def test_commands_that_stay_over_frames_have_no_parts(tmp_path, period, held):
    store, _ = log(tmp_path, period, held)
    assert part_count(store.header) == 1
    assert select_windows(store, None, 20, stride=20).parts is None


@pytest.mark.parametrize(("period", "parts"), [(0.008, 5), (0.015, 4), (0.03, 2), (0.0123, 1)])
def test_commands_change_between_parts_where_a_period_allows_it(tmp_path, period, parts):
    store, arrays = log(tmp_path, period)
    windows = select_windows(store, None, 20, stride=20)
    assert part_count(store.header) == parts
    if parts == 1:
        return
    begin = int(windows.source.places[0, 1]) * 0.02 + (np.arange(20 * parts) + 0.5) * 0.02 / parts
    held = arrays["tau"][(begin / period).astype(int)]
    np.testing.assert_allclose(windows.parts[0].reshape(-1, 2), held, atol=1e-5)


def test_short_parts_are_means_of_several_commands(tmp_path):
    store, arrays = log(tmp_path, 0.001)
    windows = select_windows(store, None, 20, stride=20)
    assert part_count(store.header) == 10
    np.testing.assert_allclose(windows.parts[0, 0], arrays["tau"][:20].reshape(10, 2, 2).mean(1), atol=1e-5)


def test_logs_of_other_parts_are_joined_by_means(tmp_path):
    store, _ = log(tmp_path)
    joined = join_stores([store, without_parts(store)])
    assert part_count(joined.header) == 1
    np.testing.assert_array_equal(joined.control[: len(store.frames)], store.control)
    assert part_count(join_stores([store, store]).header) == 4
