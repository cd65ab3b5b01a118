# SPDX-License-Identifier: Apache-2.0
"""What a store may hold beside positions, velocities and controls, from writing to windows.

Poses of a scene, parameters of the episodes, readings of sensors, and channels and contacts of the state.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.contacts import ChainJoint, ContactPoint, ContactPointLayout
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.scene import IDENTITY, Plane, Scene
from neurodyn.core.description.sensors import Stream, stream_columns
from neurodyn.core.description.spec import Channel, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split, Status
from neurodyn.data.inspection import inspect_store
from neurodyn.data.mixture import first_frames, join_stores
from neurodyn.data.store import Store
from neurodyn.data.windows import WindowSampler, all_windows, select_windows, windows_at
from neurodyn.data.writer import StoreWriter

from .conftest import cartpole_spec, counting_batch, header

LENGTHS = [10, 4, 8]
STATES = np.arange(11) <= np.array(LENGTHS)[:, None]
FLAT = Scene(shapes=(Plane(),))
FREE = ChainJoint(name="root", kind="free", parent=-1, parent_frame=IDENTITY, child_frame=IDENTITY, axis=(0.0,) * 3)
LAYOUT = ContactPointLayout(
    joints=(FREE,), contact_points=(ContactPoint(name="foot/0", joint=0, point=(0.1, 0.0, -0.2), radius=0.0),)
)
PARAMETERS = {"pole.mass": 1.0, "slide.damping": 0.5}
STREAMS = (Stream(name="imu", kind="imu"), Stream(name="torque", kind="joint_torque", joints=("slide", "pole")))
DRIVES = {"slide": Drive(kind="pd", kp=20.0, kd=1.0)}
CHANNELS = tuple(Channel(name=f"gravity.{axis}", unit="1", frame="base") for axis in "xy")
WALKER = msgspec.structs.replace(cartpole_spec(), channels=CHANNELS, contacts=("foot",), control_kind="target")


def poses(first: int) -> np.ndarray:
    """Poses whose x says which episode they are of; tilted about x."""
    values = np.zeros((3, 7), np.float32)
    values[:, 0] = first + np.arange(3)
    values[:, 3], values[:, 6] = np.sin(0.1), np.cos(0.1)
    return values


def numbers(first: int) -> np.ndarray:
    own = np.arange(first, first + 3, dtype=np.float32)
    return np.stack([own, 0.25 * own], 1)


def readings(first: int) -> np.ndarray:
    values = np.random.default_rng(first).normal(size=(3, 11, 8)).astype(np.float32)
    values[:, ::3, :6] = np.nan
    return values


def gravity(first: int) -> np.ndarray:
    return np.random.default_rng(first).normal(size=(3, 11, 2)).astype(np.float32)


@dataclass(frozen=True)
class Kind:
    """An optional array: fields of the header, what is written of three episodes, and the name of the array read."""

    header: dict
    written: Callable[[int], dict[str, np.ndarray]]
    read: str
    by_state: bool = False

    def expected(self, batches: int = 2) -> np.ndarray:
        parts = [next(iter(self.written(3 * index).values())) for index in range(batches)]
        return np.concatenate([part[STATES] if self.by_state else part for part in parts])


KINDS = {
    "ground": Kind({"scene": FLAT, "contact_points": LAYOUT}, lambda k: {"ground": poses(k)}, "ground"),
    "parameters": Kind({"parameters": PARAMETERS}, lambda k: {"parameters": numbers(k)}, "parameters"),
    "readings": Kind({"streams": STREAMS, "drives": DRIVES}, lambda k: {"measured": readings(k)}, "measured", True),
    "channels": Kind(
        {"spec": WALKER}, lambda k: {"channel": gravity(k), "contact": gravity(k)[..., :1] > 0}, "channel", True
    ),
}


def write(path: Path, kind: Kind, *, interrupted: bool = False, **options) -> None:
    with StoreWriter(path, header(**kind.header), **options) as writer:
        for index in range(writer.batches, 1 if interrupted else 2):
            own = kind.written(3 * index)
            writer.append(
                *counting_batch(3, 10, first=3 * index), lengths=LENGTHS,
                status=[Status.COMPLETE, Status.TERMINATED, Status.LOG], **own,
            )  # fmt: skip
        if interrupted:
            raise KeyboardInterrupt


@pytest.fixture(params=KINDS)
def kind(request) -> Kind:
    return KINDS[request.param]


def store_of(name: str, folder: Path) -> Store:
    write(folder / "store.h5", KINDS[name])
    return Store.open(folder / "store.h5")


def test_values_round_trip(kind: Kind, tmp_path: Path):
    write(tmp_path / "store.h5", kind)
    store = Store.open(tmp_path / "store.h5")
    assert store.header == header(**kind.header)
    np.testing.assert_array_equal(getattr(store, kind.read), kind.expected())
    store.write(tmp_path / "again.h5")
    again = Store.open(tmp_path / "again.h5")
    assert again.header == store.header
    np.testing.assert_array_equal(again.frames, store.frames)
    np.testing.assert_array_equal(getattr(again, kind.read), kind.expected())


def test_an_interrupted_store_continues(kind: Kind, tmp_path: Path):
    path = tmp_path / "store.h5"
    with pytest.raises(KeyboardInterrupt):
        write(path, kind, interrupted=True)
    np.testing.assert_array_equal(getattr(Store.open(f"{path}.part"), kind.read), kind.expected(1))
    write(path, kind, resume=True)
    np.testing.assert_array_equal(getattr(Store.open(path), kind.read), kind.expected())


def test_values_follow_their_episodes_into_other_stores(kind: Kind, tmp_path: Path):
    write(tmp_path / "store.h5", kind)
    store, rows = Store.open(tmp_path / "store.h5"), np.arange(6)
    episode = np.repeat(rows, store.lengths + 1)

    def of(episodes: list[int]) -> np.ndarray:
        chosen = episode if kind.by_state else rows
        return np.concatenate([kind.expected()[chosen == one] for one in episodes])

    np.testing.assert_array_equal(getattr(store.select([3, 1]), kind.read), of([3, 1]))
    np.testing.assert_array_equal(getattr(join_stores([store, store]), kind.read), of([*range(6)] * 2))
    np.testing.assert_array_equal(getattr(first_frames(store, 10), kind.read), of([0, 3]))


@pytest.mark.parametrize("name", ["ground", "parameters", "measured"])
def test_a_store_that_lost_its_values_is_damaged(name: str, tmp_path: Path):
    store_of("readings" if name == "measured" else name, tmp_path)
    with h5py.File(tmp_path / "store.h5", "r+") as file:
        file[name][4, 0] = 7.0
    with pytest.raises(InputError, match=f"damaged store: {name}"):
        Store.open(tmp_path / "store.h5")
    with h5py.File(tmp_path / "store.h5", "r+") as file:
        del file[name]
    with pytest.raises(InputError, match=f"no dataset '{name}'"):
        Store.open(tmp_path / "store.h5")


@pytest.mark.parametrize(
    ("fields", "given", "message"),
    [
        ({"scene": FLAT}, {"ground": poses(0)[:2]}, r"ground has shape \[2, 7\]"),
        ({"scene": FLAT}, {"ground": 2 * poses(0)}, "ground of episode 0 is .* unit quaternion"),
        ({"scene": FLAT}, {"ground": np.full((3, 7), np.nan)}, "ground of episode 0"),
        ({}, {"ground": poses(0)}, "but no scene"),
        ({"parameters": PARAMETERS}, {"parameters": np.ones((3, 1))}, "parameter"),
        ({"parameters": PARAMETERS}, {"parameters": np.ones((2, 2))}, "parameter"),
        ({"parameters": PARAMETERS}, {"parameters": np.full((3, 2), np.nan)}, "parameter"),
        ({"streams": STREAMS}, {}, r"measured has shape \[33, 0\]; valid: \[33, 8\]"),
        ({}, {"measured": readings(0)}, r"measured has shape \[33, 8\]; valid: \[33, 0\]"),
        ({"streams": STREAMS}, {"measured": np.full((3, 11, 8), np.inf)}, "a reading is infinite"),
        ({"streams": STREAMS}, {"measured": readings(0)[:, :4]}, r"measured has shape \[3, 4, 8\]"),
        ({"spec": WALKER}, {"channel": gravity(0)}, r"channel, contact have shapes .*valid"),
    ],
)
def test_values_that_do_not_fit_are_refused(fields: dict, given: dict, message: str, tmp_path: Path):
    with pytest.raises(InputError, match=message), StoreWriter(tmp_path / "x.h5", header(**fields)) as writer:
        writer.append(*counting_batch(3, 10), **given)
    assert not (tmp_path / "x.h5").exists()


def test_what_is_not_given_is_as_declared(store: Store, tmp_path: Path):
    with StoreWriter(tmp_path / "x.h5", header(scene=FLAT, parameters=PARAMETERS)) as writer:
        writer.append(*counting_batch(2, 3))
        writer.append(*counting_batch(2, 3), ground=poses(1)[0])
    own = Store.open(tmp_path / "x.h5")
    assert own.parameters is not None
    assert own.parameters.tolist() == [[1.0, 0.5]] * 4
    np.testing.assert_array_equal(own.ground, np.float32([IDENTITY, IDENTITY, poses(1)[0], poses(1)[0]]))
    drawn = WindowSampler(store, 3, batch=5, seed=0).draw()
    for windows in (next(all_windows(store, 3)), drawn, select_windows(store, None, 3)):
        absent = windows.ground, windows.parameters, windows.readings, windows.channels, windows.contacts
        assert absent == (None,) * 5
    assert (store.ground, store.header.scene, inspect_store(store)["ground"]) == (None, None, None)
    assert drawn.failed is None  # no episode did


def test_windows_have_the_values_of_their_episode(kind: Kind, tmp_path: Path):
    write(tmp_path / "store.h5", kind)
    store = Store.open(tmp_path / "store.h5")
    windows = select_windows(store, None, 3, stride=2)
    rows = store.offsets[windows.episode.numpy()] + windows.start.numpy()
    if kind.by_state:
        name = {"measured": "readings", "channel": "channels"}[kind.read]
        wanted = kind.expected()[rows[:, None] + np.arange(4)]
        np.testing.assert_array_equal(getattr(windows, name), wanted)
        np.testing.assert_array_equal(getattr(windows.cut(2), name), wanted[:, 2:])
    else:
        name, wanted = kind.read, kind.expected()[windows.episode]
        np.testing.assert_array_equal(getattr(windows, name), wanted.astype(np.float64))
        drawn = WindowSampler(store, 4, batch=200, seed=0, episodes=np.array([0, 5])).draw()
        episode = (drawn.q[:, 0, 0] / 1000).floor().long()  # the position counts 1000 * episode + state
        assert set(episode.tolist()) == {0, 5}
        assert torch.equal(getattr(drawn, name), torch.from_numpy(kind.expected())[episode])
        assert torch.equal(getattr(windows_at(store, np.array([4]), np.array([0]), 4), name)[0],
                           torch.from_numpy(kind.expected())[4])  # fmt: skip
    for part in all_windows(store, 3, batch=5):
        assert part.failed is not None
        ends = [[e % 3 == 1 and s + k == 4 for k in range(4)] for e, s in part.source.places.tolist()]
        assert part.failed.tolist() == ends
        if name in ("ground", "parameters"):
            np.testing.assert_array_equal(getattr(part, name), kind.expected()[part.episode])
        elif name == "channels":
            first = store.offsets[part.episode.numpy()] + part.start.numpy()
            np.testing.assert_array_equal(part.channels, store.channel[first[:, None] + np.arange(4)])
            np.testing.assert_array_equal(part.contacts, store.contact[first[:, None] + np.arange(4)])


def test_stores_differ_in_some_parameters_alone(tmp_path: Path):
    store = store_of("parameters", tmp_path)
    one = store.differing_in(["slide.damping"])
    one.check("one")
    assert one.header.parameters == {"slide.damping": 0.5}
    np.testing.assert_array_equal(one.parameters, KINDS["parameters"].expected()[:, 1:])
    assert store.differing_in([]).parameters is None
    with pytest.raises(InputError, match=r"no parameter 'mass'; valid: pole.mass, slide.damping"):
        store.differing_in(["mass"])


def test_names_are_attributes_of_the_file(tmp_path: Path):
    store_of("parameters", tmp_path).write(tmp_path / "parameters.h5")
    store_of("readings", tmp_path).write(tmp_path / "readings.h5")
    with h5py.File(tmp_path / "parameters.h5") as one, h5py.File(tmp_path / "readings.h5") as other:
        assert list(one.attrs["parameter_names"]) == [b"pole.mass", b"slide.damping"]
        assert one["parameters"].shape == (6, 2)
        assert b"imu.angular_velocity.x" in other.attrs["measured_names"].tolist()
    assert stream_columns(STREAMS)[5:] == ("imu.specific_force.z", "torque.torque.slide", "torque.torque.pole")


def test_stores_with_and_without_sensors_do_not_join(tmp_path: Path):
    store = store_of("readings", tmp_path)
    bare = replace(store, header=msgspec.structs.replace(store.header, streams=()), measured=None)
    with pytest.raises(InputError, match="other streams of sensors"):
        join_stores([store, bare])


def test_another_channel_order_is_a_difference():
    other: StateSpec = msgspec.structs.replace(WALKER, channels=CHANNELS[::-1])
    assert WALKER.differences(other) == ["channels: ['gravity.y', 'gravity.x'] instead of ['gravity.x', 'gravity.y']"]


def test_an_inspection_shows_them(tmp_path: Path):
    ground = inspect_store(store_of("ground", tmp_path))["ground"]
    assert (ground["shapes"], ground["poses"], ground["probes"]) == (["plane"], 6, 1)
    assert ground["tilt"] == pytest.approx([0.2, 0.2], abs=1e-6)
    store = store_of("readings", tmp_path)
    found = inspect_store(store)
    columns = {one["name"]: one for one in found["coordinates"] if one["what"] == "measured"}
    assert list(columns) == list(stream_columns(STREAMS))
    share = pytest.approx(float(np.isfinite(store.measured[:, 0]).mean()))
    assert found["sensors"] == {"imu": share, "torque": 1.0}
    assert columns["imu.specific_force.x"]["unit"] == "m/s^2"
    assert columns["imu.specific_force.x"]["max"] == pytest.approx(float(np.nanmax(store.measured[:, 3])))
    store = store_of("channels", tmp_path)
    columns = {(one["what"], one["name"]): one for one in inspect_store(store)["coordinates"]}
    assert columns["channel", "gravity.x"]["unit"] == "1"
    assert columns["channel", "gravity.y"]["mean"] == pytest.approx(store.channel[:, 1].mean(), abs=1e-6)
    assert columns["contact", "foot"]["max"] == 1.0
    assert columns["control", "slide"]["unit"] == "m"


def test_a_store_of_before_there_were_sensors_opens(tmp_path: Path):
    with StoreWriter(tmp_path / "old.h5", header()) as writer:
        writer.append(*counting_batch(2, 5))
    with h5py.File(tmp_path / "old.h5", "r+") as file:
        plain = json.loads(bytes(file["header"][()]).decode())
        plain["controller"] = {"kind": "pd", "kp": 20.0, "kd": {"slide": 1.0}, "limit": 1e9, "updates": 1}
        text = json.dumps({key: value for key, value in plain.items() if key not in ("streams", "drives")})
        del file["header"], file.attrs["measured_names"]
        file.create_dataset("header", data=np.frombuffer(text.encode(), np.uint8))
        assert "measured" not in file
    store = Store.open(tmp_path / "old.h5")
    assert (store.measured, store.header.streams) == (None, ())
    assert store.header.drives == {"slide": Drive(kind="pd", kp=20.0, kd=1.0, effort_limit=1e9)}


def test_drawn_windows_of_a_split_carry_failures(tmp_path: Path):
    drawn = WindowSampler(store_of("channels", tmp_path), 3, split=Split.TRAIN, batch=300, seed=0).draw()
    assert drawn.failed is not None
    assert drawn.failed[:, -1].any()
