# SPDX-License-Identifier: Apache-2.0
"""The scene of a store: one pose of it for each episode, from writing to windows."""

import h5py
import numpy as np
import pytest
import torch

from neurodyn.core.description.contacts import ChainJoint, ContactPoint, ContactPointLayout
from neurodyn.core.description.scene import IDENTITY, Plane, Scene
from neurodyn.core.errors import InputError
from neurodyn.data.inspection import inspect_store
from neurodyn.data.store import Store
from neurodyn.data.windows import WindowSampler, all_windows
from neurodyn.data.writer import StoreWriter

from .conftest import counting_batch, header

FLAT = Scene(shapes=(Plane(),))
LAYOUT = ContactPointLayout(
    joints=(
        ChainJoint(name="root", kind="free", parent=-1, parent_frame=IDENTITY, child_frame=IDENTITY, axis=(0.0,) * 3),
    ),
    contact_points=(ContactPoint(name="foot/0", joint=0, point=(0.1, 0.0, -0.2), radius=0.0),),
)


def poses(episodes, first=0):
    """Poses whose x says which episode they are of; tilted about x."""
    found = np.zeros((episodes, 7))
    found[:, 0] = first + np.arange(episodes)
    found[:, 3], found[:, 6] = np.sin(0.1), np.cos(0.1)
    return found


def write(path, batches=2, **options):
    with StoreWriter(path, header(scene=FLAT, contact_points=LAYOUT), **options) as writer:
        for index in range(writer.batches, batches):
            writer.append(*counting_batch(3, 10, first=3 * index), lengths=[10, 4, 8], ground=poses(3, 3 * index))


def write_then_interrupt(path):
    with StoreWriter(path, header(scene=FLAT, contact_points=LAYOUT)) as writer:
        writer.append(*counting_batch(3, 10), lengths=[10, 4, 8], ground=poses(3))
        raise KeyboardInterrupt


@pytest.fixture
def grounded(tmp_path):
    write(tmp_path / "store.h5")
    return Store.open(tmp_path / "store.h5")


def test_scene_contact_points_and_poses_round_trip(grounded, tmp_path):
    assert grounded.header.scene == FLAT
    assert grounded.header.contact_points == LAYOUT
    assert np.array_equal(grounded.ground, poses(6).astype(np.float32))
    grounded.write(tmp_path / "again.h5")
    assert np.array_equal(Store.open(tmp_path / "again.h5").ground, grounded.ground)


def test_one_pose_for_all_and_the_identity_where_none_is_given(tmp_path):
    with StoreWriter(tmp_path / "x.h5", header(scene=FLAT)) as writer:
        writer.append(*counting_batch(2, 3))
        writer.append(*counting_batch(2, 3), ground=poses(1)[0])
    ground = Store.open(tmp_path / "x.h5").ground
    assert ground is not None
    assert np.array_equal(ground[:2], np.tile(np.float32(IDENTITY), (2, 1)))
    assert np.array_equal(ground[2:], np.tile(np.float32(poses(1)[0]), (2, 1)))


def test_a_store_without_a_scene_has_no_ground(store):
    assert store.header.scene is None
    assert store.ground is None
    assert next(all_windows(store, 3)).ground is None
    assert WindowSampler(store, 3, batch=5, seed=0).draw().ground is None
    assert inspect_store(store)["ground"] is None


def test_an_interrupted_writer_keeps_the_poses(tmp_path):
    path = tmp_path / "store.h5"
    with pytest.raises(KeyboardInterrupt):
        write_then_interrupt(path)
    write(path, resume=True)
    assert np.array_equal(Store.open(path).ground, poses(6).astype(np.float32))


def test_every_window_sees_the_pose_of_its_own_episode(grounded):
    for windows in all_windows(grounded, 4, batch=5):
        assert windows.ground.shape == (len(windows.q), 7)
        assert windows.ground[:, 0].tolist() == windows.episode.tolist()
    drawn = WindowSampler(grounded, 4, batch=200, seed=0).draw()
    # The position column counts 1000 * episode + state.
    assert torch.equal(drawn.ground[:, 0], (drawn.q[:, 0, 0] / 1000).floor())


@pytest.mark.parametrize(
    ("ground", "message"),
    [
        (poses(2), r"ground has shape \[2, 7\]"),
        (2 * poses(3), "ground of episode 0 is .* unit quaternion"),
        (np.full((3, 7), np.nan), "ground of episode 0"),
    ],
)
def test_what_is_no_pose_is_refused(tmp_path, ground, message):
    with pytest.raises(InputError, match=message), StoreWriter(tmp_path / "x.h5", header(scene=FLAT)) as writer:
        writer.append(*counting_batch(3, 4), ground=ground)


def test_a_pose_without_a_scene_is_refused(tmp_path):
    with pytest.raises(InputError, match="but no scene"), StoreWriter(tmp_path / "x.h5", header()) as writer:
        writer.append(*counting_batch(3, 4), ground=poses(3))


def test_a_store_that_lost_its_poses_is_damaged(grounded, tmp_path):
    with h5py.File(tmp_path / "store.h5", "r+") as file:
        del file["ground"]
    with pytest.raises(InputError, match="no dataset 'ground'"):
        Store.open(tmp_path / "store.h5")


def test_inspection_shows_the_ground(grounded):
    found = inspect_store(grounded)["ground"]
    assert found["shapes"] == ["plane"]
    assert found["poses"] == 6
    assert found["probes"] == 1
    assert found["tilt"] == pytest.approx([0.2, 0.2], abs=1e-6)
