# SPDX-License-Identifier: Apache-2.0
"""Quantities that differ between the runs of a log: by row or by run, in steps or averaged."""

import numpy as np
import pytest

from neurodyn.core.errors import InputError
from neurodyn.data.readers.logs import import_logs, read_logs
from neurodyn.data.store import Store

from .conftest import SPEC, npz_arrays, npz_map


@pytest.fixture
def log(tmp_path):
    """A log whose second run switches its motor off for a while."""
    arrays = npz_arrays()
    offsets, runs = arrays["offsets"], len(arrays["offsets"]) - 1
    on = np.ones(int(offsets[-1]), np.int8)
    middle = int(offsets[1] + offsets[2]) // 2
    on[middle : middle + 20] = 0
    volts = np.linspace(11.0, 12.0, len(on))
    np.savez(tmp_path / "log.npz", **arrays, on=on, volts=volts, load=100.0 * np.arange(runs))
    return tmp_path / "log.npz"


GIVEN = {
    "actuator.turn.supply": {"column": "on"}, "payload.mass": {"column": "load", "scale": 0.001},
    "volts": {"column": "volts", "averaged": True},
}  # fmt: skip


def test_episodes_end_where_a_quantity_changes_and_keep_its_value(log, tmp_path):
    plain, store = read_logs([log], npz_map(), SPEC), read_logs([log], npz_map(parameters=GIVEN), SPEC)
    assert list(store.header.parameters) == list(GIVEN)
    assert len(store.lengths) == len(plain.lengths) + 2  # before, while and after it is off
    assert store.parameters is not None
    supply, mass, volts = store.parameters.T
    assert sorted(set(supply.tolist())) == [0.0, 1.0]
    assert (supply == 0.0).sum() == 1
    runs = store.run
    np.testing.assert_allclose(mass, 0.1 * runs)
    assert (np.diff(volts) > 0).all()
    written = import_logs([log], npz_map(parameters=GIVEN), SPEC, tmp_path / "log.h5")
    np.testing.assert_array_equal(Store.open(tmp_path / "log.h5").parameters, store.parameters)
    assert written.header.parameters["payload.mass"] == pytest.approx(float(mass.mean()))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"payload.mass": {"column": "weight"}}, "has no array 'weight'"),
        ({"payload.mass": {"column": "on", "averaged": "yes"}}, "averaged"),
        ({"payload.mass": {"column": []}}, "a column is an empty list"),
    ],
)
def test_parameters_that_cannot_be_are_refused(log, given, said):
    with pytest.raises((InputError, ValueError), match=said):
        read_logs([log], npz_map(parameters=given), SPEC)
