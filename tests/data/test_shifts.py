# SPDX-License-Identifier: Apache-2.0
"""Shifts that older imports applied are taken back, and different ones of one robot's logs are reported."""

import numpy as np
import pytest

from neurodyn.data.header import CONTROL, Delay, StoreHeader, episode_table
from neurodyn.data.mixture import join_stores
from neurodyn.data.shifts import joined_delays, measured_shift, without_measured_shift
from neurodyn.data.store import Store

from .readers.conftest import PENDULUM

DT = PENDULUM.dt


def log(shift: float, reason: str = "measured: it fits best", lengths=(30, 20, 2)) -> Store:
    """A log whose commands count the frames, shifted by `shift` as an older import did."""
    table = episode_table(list(lengths))
    frames = np.zeros((sum(lengths) + len(lengths), 3), np.float32)
    for start, length in zip(table["start"], lengths, strict=True):
        at = np.arange(length + 1)
        frames[start : start + length + 1, 0] = at
        frames[start : start + length, 2] = at[:-1] - shift / DT
    notes = {"alignment": {"chosen": shift, "reason": reason}}
    return Store(StoreHeader(spec=PENDULUM, source="log", notes=notes), frames, table)


@pytest.mark.parametrize("steps", [1.0, 3.0, 0.4, 2.5, -1.0, -0.3])
def test_commands_of_an_older_import_come_back_to_their_times(steps: float):
    store = without_measured_shift(log(steps * DT))
    lost = int(np.ceil(abs(steps)))
    assert store.lengths.tolist() == [n - lost for n in (30, 20, 2) if n > lost]
    assert store.header.shift == 0.0
    for index in range(len(store.table)):
        q, _, control = store.episode(index)
        assert np.allclose(control[:, 0], q[:-1, 0], atol=1e-4)
    assert without_measured_shift(store) is store


@pytest.mark.parametrize("header", [
    StoreHeader(spec=PENDULUM, source="log"),
    StoreHeader(spec=PENDULUM, source="log", delays={CONTROL: Delay(seconds=0.02, applied=0.02)}),
    StoreHeader(spec=PENDULUM, source="log", notes={"alignment": {"chosen": 0.02, "reason": "declared; measured: 0"}}),
])  # fmt: skip
def test_a_declared_shift_stays(header: StoreHeader):
    assert measured_shift(header) == 0.0


def test_logs_with_different_shifts_are_reported_when_they_are_joined():
    joined = join_stores([log(0.0), log(2 * DT)], ["a", "b"])
    (found,) = joined.header.findings
    assert found.name == "shift"
    assert "in a" in found.what
    assert "20 ms in b" in found.what
    assert not join_stores([log(DT), log(DT)], ["a", "b"]).header.findings


def test_delays_of_several_logs_are_averaged_by_their_errors():
    headers = [
        StoreHeader(spec=PENDULUM, source="log", delays={CONTROL: Delay(seconds=s, error=e, usable=u)})
        for s, e, u in ((0.010, 0.001, True), (0.016, 0.002, True), (0.5, 0.1, False))
    ]
    mean = joined_delays(headers)[CONTROL]
    assert mean.seconds == pytest.approx(0.0112)
    assert mean.error is not None
    assert 0.001 < mean.error < 0.004
