# SPDX-License-Identifier: Apache-2.0
"""Several stores together: shares of a batch, the ground of each window, and what does not mix."""

import dataclasses

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.scene import Box, Plane, Scene
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.data.header import Split, Status, StoreHeader, episode_table
from neurodyn.data.mixture import Mixture, MixtureSampler, first_frames, join_stores
from neurodyn.data.store import Store
from neurodyn.data.windows import WindowSampler
from neurodyn.data.writer import StoreWriter

SPEC = StateSpec(robot="mass", joints=(JointSpec(name="line", kind="prismatic"),), controls=("line",), dt=0.1)
FRAMES = 8


def store(level: float, episodes: int = 10, scene: Scene | None = None, spec: StateSpec = SPEC, **header) -> Store:
    """Episodes whose positions are all `level`; the last tenth is for validation."""
    split = np.where(np.arange(episodes) < 0.9 * episodes, Split.TRAIN, Split.VALIDATION)
    table = episode_table([FRAMES] * episodes, split=split, status=Status.COMPLETE)
    frames = np.zeros((episodes * (FRAMES + 1), 3), np.float32)
    frames[:, 0] = level
    ground = None
    if scene is not None:
        ground = np.tile(np.array([level, 0, 0, 0, 0, 0, 1], np.float32), (episodes, 1))
    return Store(StoreHeader(spec=spec, source="log", scene=scene, **header), frames, table, ground)


def test_batches_contain_the_shares_that_were_asked_for():
    mixture = Mixture.of([store(1.0), store(2.0, 40)], [0.7, 0.3])
    sampler = MixtureSampler(mixture, 3, batch=25, seed=0)
    counts = torch.zeros(2)
    for _ in range(40):
        parts = sampler.draw()
        assert sum(len(batch.q) for _, batch in parts) == 25
        for number, batch in parts:
            assert abs(len(batch.q) - 25 * mixture.shares[number]) < 1
            assert torch.equal(batch.q, torch.full_like(batch.q, number + 1.0))
            counts[number] += len(batch.q)
    assert counts[0] / counts.sum() == pytest.approx(0.7, abs=0.01)


def test_shares_are_those_of_the_transitions_unless_given():
    assert Mixture.of([store(1.0), store(2.0, 30)]).shares == (0.25, 0.75)


def test_a_share_smaller_than_a_window_is_drawn_now_and_then():
    sampler = MixtureSampler(Mixture.of([store(1.0), store(2.0)], [0.99, 0.01]), 3, batch=10, seed=3)
    seen = [len(sampler.draw()) for _ in range(60)]
    assert set(seen) == {1, 2}


def test_draws_from_one_store_equal_those_of_its_own_sampler():
    one = store(1.0)
    mixed, plain = MixtureSampler(Mixture.of(one), 3, batch=5, seed=4), WindowSampler(one, 3, batch=5, seed=4)
    ((number, batch),) = mixed.draw()
    assert number == 0
    assert torch.equal(batch.q, plain.draw().q)
    assert mixed.state_dict().keys() == plain.state_dict().keys()


def test_each_window_has_the_pose_and_the_split_of_its_own_file():
    scenes = Scene(shapes=(Plane(),)), Scene(shapes=(Box(half=(0.5, 0.5, 0.5)),))
    mixture = Mixture.of([store(1.0, scene=scenes[0]), store(2.0, scene=scenes[1])], [0.5, 0.5])
    for split, most in ((Split.TRAIN, 9), (Split.VALIDATION, 1)):
        for number, batch in MixtureSampler(mixture, FRAMES, split=split, batch=64, seed=0).draw():
            assert batch.ground is not None
            assert torch.equal(batch.ground[:, 0], torch.full((32,), number + 1.0))
            assert most >= len(batch.q.unique(dim=0))


def test_draws_continue_bitwise_from_a_saved_state():
    mixture = Mixture.of([store(1.0), store(2.0)], [0.6, 0.4])
    first, second = (MixtureSampler(mixture, 3, batch=7, seed=9) for _ in range(2))
    first.draw()
    second.load_state_dict(first.state_dict())
    for _ in range(3):
        one, other = first.draw(), second.draw()
        assert [number for number, _ in one] == [number for number, _ in other]
        assert all(torch.equal(a.q, b.q) for (_, a), (_, b) in zip(one, other, strict=True))


def test_joined_batches_say_where_an_episode_failed_even_if_one_file_has_no_failure():
    failing = store(2.0)
    table = failing.table.copy()
    table["status"] = Status.TERMINATED
    mixture = Mixture.of([store(1.0), dataclasses.replace(failing, table=table)], [0.5, 0.5])
    batch = MixtureSampler(mixture, FRAMES, batch=20, seed=0).draw_together()
    assert batch.failed is not None
    assert torch.equal(batch.failed.any(1), batch.q[:, 0, 0] == 2.0)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([1.0], "shares are 1, but there are 2 data sets; valid: one share for each"),
        ([0.7, 0.7], r"sum to 1\.4; valid: numbers above 0 that sum to 1"),
        ([1.5, -0.5], "valid: numbers above 0 that sum to 1"),
        ([float("nan"), 0.5], "valid: numbers above 0 that sum to 1"),
    ],
)
def test_shares_that_do_not_fit_are_refused(shares: list[float], message: str):
    with pytest.raises(InputError, match=message):
        Mixture.of([store(1.0), store(2.0)], shares)


def test_data_of_different_robots_do_not_mix():
    for changed, words in (
        ({"dt": 0.2}, "dt is 0.2 s instead of 0.1 s"),
        ({"robot": "other"}, "robot is 'other' instead of 'mass'"),
        ({"joints": (JointSpec(name="turn", kind="revolute"),), "controls": ("turn",)}, "joint order is"),
    ):
        other = store(2.0, spec=msgspec.structs.replace(SPEC, **changed))
        with pytest.raises(MismatchError, match=f"b.h5: not the robot of a.h5, .*cannot be mixed: {words}") as caught:
            Mixture.of([store(1.0), other], names=["a.h5", "b.h5"])
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="no data given"):
        Mixture.of([])


def test_a_file_without_a_long_enough_episode_is_named():
    mixture = Mixture.of([store(1.0), store(2.0)], names=["a.h5", "b.h5"])
    with pytest.raises(InputError, match=r"a\.h5: no episode of 'mass' holds a window of 9 frames"):
        MixtureSampler(mixture, FRAMES + 1, batch=2, seed=0)


def counted(path, lengths, *, first=0.0, rewarded=True, spec=SPEC):
    """Return a store in which q counts from `first` on."""
    with StoreWriter(path, StoreHeader(source="log", spec=spec, groups=("a",)), rewarded=rewarded) as writer:
        for length in lengths:
            q = (first + np.arange(length + 1, dtype=np.float32))[None, :, None]
            reward = np.ones((1, length)) if rewarded else None
            writer.append(q, -q, np.zeros((1, length, 1)), status=[Status.TERMINATED], group=[0], reward=reward)
            first += 100.0
    return Store.open(path)


def test_joined_stores_hold_all_episodes(tmp_path):
    a, b = counted(tmp_path / "a.h5", [3, 5]), counted(tmp_path / "b.h5", [4], first=1000.0)
    both = join_stores([a, b])
    both.check("joined")
    assert both.lengths.tolist() == [3, 5, 4]
    assert both.run.tolist() == [0, 0, 1]
    np.testing.assert_array_equal(both.episode(2)[0], b.episode(0)[0])
    assert both.returns is not None
    assert both.returns.tolist() == [3.0, 5.0, 4.0]


def test_what_does_not_join_is_refused(tmp_path):
    a = counted(tmp_path / "a.h5", [3])
    with pytest.raises(InputError, match="with and without a reward cannot be combined"):
        join_stores([a, counted(tmp_path / "b.h5", [3], rewarded=False)])
    with pytest.raises(MismatchError, match="robot is 'cart' instead of 'mass'"):
        join_stores([a, counted(tmp_path / "c.h5", [3], spec=msgspec.structs.replace(SPEC, robot="cart"))])


def test_beginnings_are_the_first_frames_of_each_long_episode(tmp_path):
    cut = first_frames(counted(tmp_path / "a.h5", [3, 5, 2]), 3)
    cut.check("beginnings")
    assert cut.lengths.tolist() == [3, 3]
    assert cut.q[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 100.0, 101.0, 102.0, 103.0]
    with pytest.raises(InputError, match="no episode of 'mass' has 9 frames"):
        first_frames(counted(tmp_path / "b.h5", [3]), 9)
