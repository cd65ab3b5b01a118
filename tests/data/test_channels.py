# SPDX-License-Identifier: Apache-2.0
"""Measured numbers beside the coordinates, contacts and failures: in the store and in windows of it."""

import numpy as np
import pytest

from neurodyn.core.description.spec import Channel, JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split, Status, StoreHeader
from neurodyn.data.inspection import inspect_store
from neurodyn.data.store import Store
from neurodyn.data.windows import WindowSampler, all_windows
from neurodyn.data.writer import StoreWriter

SPEC = StateSpec(
    robot="walker",
    joints=(JointSpec(name="knee", kind="revolute"), JointSpec(name="hip", kind="revolute")),
    controls=("knee",),
    dt=0.02,
    channels=(Channel(name="gravity.x", unit="1", frame="base"), Channel(name="gravity.y", unit="1", frame="base")),
    contacts=("foot",),
    control_kind="target",
)
LENGTHS = [10, 5, 7, 3]
STATUS = [Status.COMPLETE, Status.TERMINATED, Status.LOG, Status.TERMINATED]


def arrays(seed=0):
    random = np.random.default_rng(seed)
    q, qd, channel = (random.normal(size=(4, 11, 2)).astype(np.float32) for _ in range(3))
    return q, qd, random.normal(size=(4, 10, 1)).astype(np.float32), channel, random.integers(0, 2, (4, 11, 1))


@pytest.fixture
def path(tmp_path):
    q, qd, control, channel, contact = arrays()
    with StoreWriter(tmp_path / "log.h5", StoreHeader(spec=SPEC, source="log")) as writer:
        writer.append(q, qd, control, channel=channel, contact=contact, lengths=LENGTHS, status=STATUS)
    return tmp_path / "log.h5"


def test_round_trip(path, tmp_path):
    store = Store.open(path)
    q, qd, control, channel, contact = arrays()
    valid = np.arange(11)[None] <= np.array(LENGTHS)[:, None]
    assert store.header.spec == SPEC
    np.testing.assert_array_equal(store.q, q[valid])
    np.testing.assert_array_equal(store.qd, qd[valid])
    np.testing.assert_array_equal(store.channel, channel[valid])
    np.testing.assert_array_equal(store.contact, contact[valid])
    np.testing.assert_array_equal(store.episode(2)[2], control[2, :7])
    store.write(tmp_path / "copy.h5")
    np.testing.assert_array_equal(Store.open(tmp_path / "copy.h5").frames, store.frames)


def test_a_missing_array_is_refused(tmp_path):
    q, qd, control, channel, _ = arrays()
    with (
        pytest.raises(InputError, match=r"channel, contact have shapes .*valid"),
        StoreWriter(tmp_path / "log.h5", StoreHeader(spec=SPEC, source="log")) as writer,
    ):
        writer.append(q, qd, control, channel=channel)


def test_windows_carry_channels_contacts_and_failures(path):
    store = Store.open(path)
    found = next(all_windows(store, 3, split=None))
    assert found.channels.shape == (len(found.start), 4, 2)
    assert found.contacts.shape == (len(found.start), 4, 1)
    for window, (episode, start) in enumerate(zip(found.episode, found.start, strict=True)):
        rows = slice(store.offsets[episode] + start, store.offsets[episode] + start + 4)
        np.testing.assert_array_equal(found.channels[window], store.channel[rows])
        np.testing.assert_array_equal(found.contacts[window], store.contact[rows])
        ends = [state == LENGTHS[episode] and episode in (1, 3) for state in range(start, start + 4)]
        assert found.failed[window].tolist() == ends


def test_without_failures_there_is_no_mark(tmp_path):
    q, qd, control, channel, contact = arrays()
    with StoreWriter(tmp_path / "log.h5", StoreHeader(spec=SPEC, source="log")) as writer:
        writer.append(q, qd, control, channel=channel, contact=contact)
    assert WindowSampler(Store.open(tmp_path / "log.h5"), 4, split=Split.TRAIN, batch=2, seed=0).draw().failed is None


def test_another_channel_order_is_a_difference():
    other = StateSpec(**{**{f: getattr(SPEC, f) for f in SPEC.__struct_fields__}, "channels": SPEC.channels[::-1]})
    assert SPEC.differences(other) == ["channels: ['gravity.y', 'gravity.x'] instead of ['gravity.x', 'gravity.y']"]


def test_inspection_shows_channels_contacts_and_targets_with_units(path):
    found = {(c["what"], c["name"]): c for c in inspect_store(Store.open(path))["coordinates"]}
    assert found["channel", "gravity.x"]["unit"] == "1"
    assert found["channel", "gravity.y"]["mean"] == pytest.approx(Store.open(path).channel[:, 1].mean(), abs=1e-6)
    assert found["contact", "foot"]["max"] == 1.0
    assert found["control", "knee"]["unit"] == "rad"
