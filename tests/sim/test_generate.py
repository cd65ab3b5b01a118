# SPDX-License-Identifier: Apache-2.0
"""Data sets repeat for a seed, survive an interruption, and count what ended early."""

import subprocess

import h5py
import msgspec
import numpy as np
import pytest
import torch

from neurodyn import robots
from neurodyn.core.description.drive import Drive
from neurodyn.core.errors import InputError
from neurodyn.core.progress import showing
from neurodyn.data.header import Status
from neurodyn.data.store import Store
from neurodyn.geometry.ground import Ground
from neurodyn.robots import Ranges
from neurodyn.robots.plausible import declared_bounds
from neurodyn.robots.sections import SimulatorConfig
from neurodyn.sim.batches import EarlyEndCount, early_ends
from neurodyn.sim.generation import batch_worlds, generate
from neurodyn.sim.newton.simulator import ReferenceSimulator
from neurodyn.sim.sampling import CONTACT_DEPTH, Clearance
from neurodyn.sim.simulators import simulator


class Interrupts:
    """Somebody who presses Ctrl-C at a share of the work."""

    def __init__(self, at: float) -> None:
        self.at = at

    def update(self, done: float, text: str) -> None:
        if done >= self.at:
            raise KeyboardInterrupt


def content(path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: file[name][()] for name in file}


def assert_same(a, b):
    first, second = content(a), content(b)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def test_data_are_the_simulators_own_motion(cartpole, tmp_path):
    summary = generate(cartpole, transitions=300, frames=30, worlds=5, passive_fraction=0.0, out=tmp_path / "a.h5")
    assert (summary.transitions, summary.episodes, summary.empty) == (300, 10, 0)
    store = Store.open(tmp_path / "a.h5")
    assert store.header.spec == cartpole.spec
    assert store.header.seed == 0
    q, qd, control = (x.reshape(10, 31, -1) for x in (store.q, store.qd, store.control))
    replay = ReferenceSimulator(cartpole, 10).rollout(*(torch.tensor(x) for x in (q[:, 0], qd[:, 0], control[:, :-1])))
    np.testing.assert_array_equal(replay[0].numpy(), q)
    np.testing.assert_array_equal(replay[1].numpy(), qd)
    assert len(np.unique(control[:, :-1])) == 300


def test_each_trajectory_has_a_ground_of_its_own_and_can_be_repeated_from_the_file(tmp_path):
    pendulum = robots.load("pendulum")
    generate(pendulum, transitions=1200, frames=40, worlds=20, out=tmp_path / "a.h5")
    store = Store.open(tmp_path / "a.h5")
    assert store.header.scene == pendulum.grounds["plane-1"]
    assert {contact_point.name.split("/")[0] for contact_point in store.header.contact_points.contact_points} == {
        "upper_arm",
        "lower_arm",
    }
    pose = torch.tensor(store.ground)
    assert pose.shape == (30, 7)
    assert len(torch.unique(pose[:, 2])) > 20
    q, qd, control = (torch.tensor(x.reshape(30, 41, -1)) for x in (store.q, store.qd, store.control))
    ground = Ground(store.header.scene, pose)
    assert Clearance(store.header.contact_points).depth(ground, q[:, 0].contiguous()).max() <= CONTACT_DEPTH
    simulator = ReferenceSimulator(pendulum, 30, scene=store.header.scene)
    simulator.set_ground(pose)
    replay = simulator.rollout(q[:, 0], qd[:, 0], control[:, :-1])
    torch.testing.assert_close(replay[0], q)
    simulator.set_ground(None)
    assert (simulator.rollout(q[:, 0], qd[:, 0], control[:, :-1])[0] - q).abs().max() > 0.1


def test_floating_robots_under_a_controller_repeat_for_a_seed_and_resume(tmp_path):
    anymal = robots.load("anymal-c")
    settings = {"transitions": 80, "frames": 10, "worlds": 4}

    generate(anymal, out=tmp_path / "whole.h5", **settings)
    with pytest.raises(KeyboardInterrupt), showing(Interrupts(0.5)):
        generate(anymal, out=tmp_path / "cut.h5", **settings)
    assert generate(anymal, out=tmp_path / "cut.h5", resume=True, **settings).simulated == 40
    assert_same(tmp_path / "whole.h5", tmp_path / "cut.h5")
    store = Store.open(tmp_path / "whole.h5")
    assert store.q.shape[1] == 19
    assert np.abs(store.control).max() <= 80.0
    first = store.control[store.table["start"][store.lengths > 0]]
    assert len(first)
    assert (first != 0).all()


def test_a_seed_repeats_and_another_does_not(cartpole, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        generate(cartpole, transitions=200, frames=20, worlds=4, seed=seed, out=tmp_path / f"{name}.h5")
    assert_same(tmp_path / "a.h5", tmp_path / "b.h5")
    assert (content(tmp_path / "a.h5")["q"] != content(tmp_path / "c.h5")["q"]).any()


def test_an_interrupted_run_resumes_to_the_same_file(cartpole, tmp_path):
    settings = {"transitions": 500, "frames": 20, "worlds": 4, "passive_fraction": 0.3}

    generate(cartpole, out=tmp_path / "whole.h5", **settings)
    with pytest.raises(KeyboardInterrupt), showing(Interrupts(240 / 500)):
        generate(cartpole, out=tmp_path / "cut.h5", **settings)
    assert not (tmp_path / "cut.h5").exists()
    summary = generate(cartpole, out=tmp_path / "cut.h5", resume=True, **settings)
    assert summary.transitions == 500
    assert summary.simulated == 260
    assert_same(tmp_path / "whole.h5", tmp_path / "cut.h5")


def test_resuming_with_other_settings_is_refused(cartpole, tmp_path):
    generate(cartpole, transitions=100, frames=20, worlds=4, out=tmp_path / "a.h5")
    with pytest.raises(InputError, match="seed"):
        generate(cartpole, transitions=100, frames=20, worlds=4, seed=1, resume=True, out=tmp_path / "a.h5")


def test_passive_trajectories_have_no_torque(cartpole, tmp_path):
    generate(cartpole, transitions=2000, frames=10, out=tmp_path / "a.h5", passive_fraction=0.5)
    control = Store.open(tmp_path / "a.h5").control.reshape(200, -1)
    assert 60 < (control == 0).all(1).sum() < 140


def test_trajectories_that_leave_the_declared_range_end_early_and_are_counted(cartpole, tmp_path):
    robot = msgspec.structs.replace(cartpole, range=Ranges(q={"slider": (-4.5, 4.5)}))
    summary = generate(robot, transitions=4000, frames=40, passive_fraction=0.0, out=tmp_path / "a.h5")
    store = Store.open(tmp_path / "a.h5")
    out = store.table["status"] == Status.OUT_OF_RANGE
    assert summary.early_ends == {"not finite": 0, "out of range": int(out.sum())}
    assert 10 < out.sum() < 100
    assert summary.episodes == 100
    assert summary.transitions == store.table["length"].sum() < 4000
    assert (store.table["length"][~out] == 40).all()
    assert np.abs(store.q[:, 0]).max() <= 4.50001


def test_early_ends_distinguish_reasons_lengths_and_coordinates(cartpole):
    bounds = declared_bounds(msgspec.structs.replace(cartpole, range=Ranges(qd={"hinge": (-10.0, 10.0)})))
    q, qd = torch.zeros(4, 6, 2), torch.zeros(4, 6, 2)
    q[1, 3:, 0] = torch.nan
    qd[2, 2, 1] = 11.0
    qd[3, 1:, 0] = torch.inf
    ends = early_ends("cartpole", bounds, q, qd)
    assert ends.lengths.tolist() == [5, 2, 1, 0]
    assert ends.status.tolist() == [Status.COMPLETE, Status.NOT_FINITE, Status.OUT_OF_RANGE, Status.NOT_FINITE]
    assert ends.column.tolist() == [-1, 0, 3, 2]
    assert ends.value[2] == 11.0


def test_what_left_the_bounds_is_summed_up_by_coordinate(cartpole):
    robot = msgspec.structs.replace(cartpole, range=Ranges(qd={"hinge": (-10.0, 10.0)}))
    tally = EarlyEndCount(robot, declared_bounds(robot), episodes=100)
    q, qd = torch.zeros(3, 6, 2), torch.zeros(3, 6, 2)
    qd[:2, 2, 1] = torch.tensor([11.0, -30.0])
    tally.add(early_ends("cartpole", tally.bounds, q, qd), 3)
    (departure,) = tally.departures
    assert departure.words == "qd.hinge reaches -30 (declared range: [-10, 10] rad/s) in 2"


def blowing_up(cartpole):
    """A cartpole that its own effort tears apart: 3e38 N on its cart."""
    ranges = Ranges(**{**msgspec.structs.asdict(cartpole.sampling), "control": {"slider": (1e38, 3e38)}})
    return msgspec.structs.replace(cartpole, sampling=ranges)


def test_a_simulator_that_blows_up_is_refused_and_leaves_what_was_there(cartpole, tmp_path):
    path = tmp_path / "a.h5"
    generate(cartpole, transitions=100, frames=10, out=path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"100.0% of the trajectories leave plausible bounds .*slider") as caught:
        generate(blowing_up(cartpole), transitions=100, frames=10, passive_fraction=0.0, out=path, overwrite=True)
    assert "neurodyn check cartpole" in str(caught.value)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_range_that_cuts_most_trajectories_is_refused(cartpole, tmp_path):
    robot = msgspec.structs.replace(cartpole, range=Ranges(qd={"hinge": (-10.0, 10.0)}))
    with pytest.raises(InputError, match=r"declared range: \[-10, 10\] rad/s.*widen its `range`"):
        generate(robot, transitions=4000, frames=100, passive_fraction=0.0, out=tmp_path / "a.h5")
    assert list(tmp_path.iterdir()) == []


def test_a_finished_file_is_replaced_only_when_asked_for(cartpole, tmp_path):
    path = tmp_path / "a.h5"
    generate(cartpole, transitions=100, frames=10, out=path)
    with pytest.raises(InputError, match=r"a\.h5 exists; valid: another --out, --resume .* or --overwrite"):
        generate(cartpole, transitions=200, frames=10, out=path)
    assert generate(cartpole, transitions=200, frames=10, out=path, overwrite=True).transitions == 200


@pytest.mark.parametrize("linked", [False, True])
def test_an_interrupted_file_is_replaced_only_when_asked_for(cartpole, tmp_path, linked):
    path = tmp_path / "a.h5"
    if linked:
        (tmp_path / "disk").mkdir()
        path.symlink_to(tmp_path / "disk" / "b.h5")
    settings = {"transitions": 500, "frames": 20, "worlds": 4, "out": path}
    with pytest.raises(KeyboardInterrupt), showing(Interrupts(240 / 500)):
        generate(cartpole, **settings)
    part = path.resolve().with_name(f"{path.resolve().name}.part")
    before = part.read_bytes()
    with pytest.raises(InputError, match=r"h5\.part holds an interrupted data set; valid: --resume .* or --overwrite"):
        generate(cartpole, **settings)
    assert part.read_bytes() == before
    assert generate(cartpole, **settings, overwrite=True).simulated == 500
    assert path.is_symlink() == linked
    assert not part.exists()


def test_ranges_that_exclude_random_states_are_refused(cartpole, tmp_path):
    robot = msgspec.structs.replace(cartpole, range=Ranges(q={"slider": (-1.0, 1.0)}))
    with pytest.raises(InputError, match="keep `sampling` within `range`"):
        generate(robot, transitions=2000, out=tmp_path / "a.h5")
    assert list(tmp_path.iterdir()) == []


def test_every_split_gets_whole_episodes(cartpole, tmp_path):
    generate(cartpole, transitions=1000, frames=10, out=tmp_path / "a.h5")
    assert np.bincount(Store.open(tmp_path / "a.h5").table["split"]).tolist() == [90, 5, 5]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"transitions": 0}, "transitions is 0"),
        ({"worlds": 0}, "worlds is 0"),
        ({"frames": 0}, "frames is 0"),
        ({"passive_fraction": 2.0}, "between 0 and 1"),
        ({"out": "data.csv"}, r"\.h5 or \.hdf5"),
        ({"out": "/proc/none/data.h5"}, "cannot be written"),
    ],
)
def test_bad_settings_are_one_line(cartpole, tmp_path, change, words):
    with pytest.raises(InputError, match=words) as caught:
        generate(cartpole, **{"transitions": 10, "out": tmp_path / "a.h5", **change})
    assert "\n" not in str(caught.value)


def test_more_than_the_disk_holds_is_refused_at_once(cartpole, tmp_path):
    with pytest.raises(InputError, match=r"need .* GB and .* GB are free; give fewer transitions"):
        generate(cartpole, transitions=10**14, out=tmp_path / "data.h5")
    assert list(tmp_path.iterdir()) == []


def test_a_ground_and_a_share_of_resets_replace_those_of_the_robot(tmp_path):
    robot = robots.load("ant")
    out = tmp_path / "flat.h5"
    generate(robot, transitions=80, worlds=8, frames=10, out=out, ground="flat", reset_fraction=1.0)
    store = Store.open(out)
    assert store.header.scene == robot.grounds["flat"]
    assert np.abs(store.control).max() == 0.0
    for wrong, words in (({"ground": "moon"}, "no ground 'moon'"), ({"reset_fraction": 2.0}, "reset_fraction is 2")):
        with pytest.raises(InputError, match=words):
            generate(robot, transitions=8, out=tmp_path / "none.h5", **wrong)
        assert not (tmp_path / "none.h5").exists()


def test_short_data_sets_are_cut_into_batches_that_processes_share():
    assert [batch_worlds(episodes, "cpu") for episodes in (100, 3000, 100_000)] == [64, 93, 512]
    assert batch_worlds(100, "cuda") == 512


@pytest.mark.slow
def test_processes_make_the_data_of_one_and_end_with_it(cartpole, tmp_path, monkeypatch):
    given = {"transitions": 1000, "frames": 50, "worlds": 2, "seed": 3}
    generate(cartpole, **given, threads=1, out=tmp_path / "one.h5")
    monkeypatch.setattr("neurodyn.core.workers.WORTHWHILE", 0.0)
    started = []

    def start(*arguments, _start=subprocess.Popen, **options):
        started.append(_start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    # At 60 % the other process has made some.
    with pytest.raises(KeyboardInterrupt), showing(Interrupts(0.6)):
        generate(cartpole, **given, threads=2, out=tmp_path / "two.h5")
    assert len(started) == 1
    assert started[0].poll() is not None
    assert not (tmp_path / "two.h5").exists()
    generate(cartpole, **given, threads=1, out=tmp_path / "two.h5", resume=True)
    assert_same(tmp_path / "one.h5", tmp_path / "two.h5")
    with pytest.raises(InputError, match="threads is 0; valid"):
        generate(cartpole, **given, threads=0, out=tmp_path / "none.h5")


TEXTS = ("hinge.mass=x.5:2:log", "slider.damping=0:1", "actuator.slider.gain=.6:1")


def test_every_trajectory_has_a_robot_of_its_own(cartpole, tmp_path):
    robot = msgspec.structs.replace(cartpole, simulator=SimulatorConfig(solver="mujoco-c", substeps=5))
    out = tmp_path / "a.h5"
    generate(robot, transitions=240, frames=20, worlds=5, seed=3, threads=1, out=out, randomise=TEXTS)
    store = Store.open(out)
    assert list(store.header.parameters) == ["hinge.mass", "slider.damping", "actuator.slider.gain"]
    assert store.header.parameters["slider.damping"] == 0.0
    assert store.header.simulator["sampling"]["randomise"] == list(TEXTS)
    numbers = torch.tensor(store.parameters)
    assert numbers.shape == (12, 3)
    assert len(numbers.unique(dim=0)) == 12
    worlds = simulator(msgspec.structs.replace(robot, drives={"slider": Drive()}), 12)
    q, qd, control = (torch.tensor(x.reshape(12, 21, -1)) for x in (store.q, store.qd, store.control))
    worlds.set_parameters(tuple(store.header.parameters), numbers)
    path = worlds.rollout(q[:, 0], qd[:, 0], control[:, :-1])
    torch.testing.assert_close(path[0], q, atol=1e-5, rtol=1e-5)
    worlds.set_parameters((), None)
    assert float((worlds.rollout(q[:, 0], qd[:, 0], control[:, :-1])[0] - q).abs().max()) > 1e-2
    with pytest.raises(InputError, match="cannot be continued"):
        generate(
            robot, transitions=480, frames=20, worlds=5, seed=3, threads=1, out=out, randomise=TEXTS[:1], resume=True
        )


def test_worlds_of_other_simulators_are_refused(cartpole, tmp_path):
    with pytest.raises(InputError, match="solver: mujoco or mujoco-c, or hybrid"):
        generate(cartpole, transitions=100, out=tmp_path / "a.h5", randomise=TEXTS[:1])
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def plain_ant() -> robots.Robot:
    """The ant in plain MuJoCo, which needs no kernels."""
    return msgspec.structs.replace(robots.load("ant"), simulator=SimulatorConfig(solver="mujoco-c", substeps=4))


def test_the_compiled_robot_makes_the_simulators_data(plain_ant, tmp_path):
    shared = {"transitions": 160, "frames": 20, "worlds": 8, "ground": "tilted", "reset_fraction": 0.5, "seed": 3}
    for dynamics in ("analytic", "hybrid"):
        generate(plain_ant, out=tmp_path / f"{dynamics}.h5", dynamics=dynamics, threads=1, **shared)
    simulated, compiled = (Store.open(tmp_path / f"{name}.h5") for name in ("analytic", "hybrid"))
    np.testing.assert_array_equal(simulated.control, compiled.control)
    errors = np.abs(simulated.q - compiled.q).reshape(8, 21, -1).max((1, 2))
    assert np.median(errors) < 1e-4
    assert (np.abs(simulated.q.reshape(8, 21, -1)[:, -1] - simulated.q.reshape(8, 21, -1)[:, 0]).max(1) > 0.1).all()
    assert compiled.header.simulator["dynamics"] == "hybrid"


def test_a_robot_without_contacts_is_not_compiled(cartpole, tmp_path):
    with pytest.raises(InputError, match=r"featherstone.* has no contacts or limits to compile; valid: analytic"):
        generate(cartpole, transitions=10, out=tmp_path / "a.h5", dynamics="hybrid")
    assert not list(tmp_path.glob("*.h5*"))


def test_controls_are_held_and_weaker(cartpole, tmp_path):
    generate(
        cartpole, transitions=3000, frames=100, worlds=30, passive_fraction=0.0, held_fraction=1.0, threads=1,
        out=tmp_path / "a.h5",
    )  # fmt: skip
    control = Store.open(tmp_path / "a.h5").control.reshape(30, 101, -1)[:, :-1, 0]
    same = (control[:, 1:] == control[:, :-1]).mean()
    assert 0.6 < same < 0.95  # 1 to 20 frames each
    strongest = np.abs(control).max(1) / 1500.0
    assert strongest.min() < 0.5 < strongest.max() <= 1.0


def test_starts_are_faster_up_to_a_factor(cartpole, tmp_path):
    shared = {"transitions": 400, "frames": 1, "worlds": 400, "threads": 1}
    for factor in (1.0, 3.0):
        generate(cartpole, out=tmp_path / f"{factor}.h5", speed=factor, **shared)
    usual, fast = (Store.open(tmp_path / f"{factor}.h5").qd.reshape(400, 2, -1)[:, 0] for factor in (1.0, 3.0))
    ratio = fast / usual
    assert (ratio >= 1.0 - 1e-6).all()
    assert 2.5 < ratio.max() <= 3.0 + 1e-5
