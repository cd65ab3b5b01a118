# SPDX-License-Identifier: Apache-2.0
"""Logs of policies: what a row says, which control acts on it, and how episodes end."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.control.starts import home_ground
from neurodyn.control.task_frames import MeasurementNoise
from neurodyn.core.errors import InputError
from neurodyn.data.header import Status
from neurodyn.data.inspection import inspect_store
from neurodyn.data.readers import read_rows, write_rows
from neurodyn.data.store import Store
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.artifact import load as load_model
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.same_robot import require_same_simulator
from neurodyn.evaluate import evaluate
from neurodyn.learn import train
from neurodyn.multibody.drives.drive import pd_torque
from neurodyn.policy.artifact import Behaviour, Excitation, behaviour
from neurodyn.policy.episodes.logs import LogSummary, record_log, row_layout, usual_worlds
from neurodyn.robots.sections import Ranges
from neurodyn.tasks import load as load_task
from neurodyn.tasks.anymal import KD, KP, AnymalVelocity
from neurodyn.tasks.swing_up import CartpoleSwingUp

pytest.importorskip("rsl_rl")
pytest.importorskip("newton")


class _Short(AnymalVelocity):
    frames = 60


def _still(observation: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(observation), 12)


def _rolling_over(observation: torch.Tensor) -> torch.Tensor:
    """Stretch the legs of one side and fold those of the other."""
    action = torch.zeros(len(observation), 12)
    action[:, [1, 7]], action[:, [2, 8]] = 2.0, -2.0
    return action


def log_of(task, behaviours, out, dynamics=None, **more):
    """Record a log, by default in the simulator, and return its summary and its store."""
    dynamics = dynamics or AnalyticDynamics(task.declaration())
    return record_log(task, dynamics, behaviours, out, **more), Store.open(out)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[LogSummary, Store]:
    behaviours = [Behaviour("still", _still), Behaviour("rolling", _rolling_over)]
    return log_of(_Short(), behaviours, tmp_path_factory.mktemp("log") / "log.h5", transitions=400, worlds=8, noise=0.2)


def test_rows_are_what_a_robot_measures(recorded: tuple[LogSummary, Store]) -> None:
    summary, store = recorded
    spec = store.header.spec
    assert (spec.nq, spec.nv, spec.nx, spec.nu, spec.nc) == (12, 12, 21, 12, 8)
    assert spec.control_kind == "target"
    assert store.header.groups == ("still", "rolling")
    assert summary.transitions == int(store.table["length"].sum())
    standing = store.table[store.table["group"] == 0]
    last = standing["start"] + standing["length"]
    gravity = store.channel[last, 6:9]
    np.testing.assert_allclose(np.linalg.norm(gravity, axis=1), 1.0, atol=1e-4)
    assert (gravity[:, 2] < -0.95).all()  # upright, and gravity points down
    feet = [spec.contacts.index(f"{leg}_FOOT") for leg in ("LF", "RF", "LH", "RH")]
    assert store.contact[last][:, feet].mean() > 0.6
    assert store.contact[last].sum(1).max() <= 4.0  # no knee


def test_the_control_of_a_row_makes_the_torque_of_the_next(recorded: tuple[LogSummary, Store]) -> None:
    _, store = recorded
    spec = store.header.spec
    torque = [spec.channels.index(c) for c in spec.channels if c.quantity == "joint_torque"]
    for record in store.table:
        begin, end = int(record["start"]), int(record["start"] + record["length"])
        q, qd, target = (torch.from_numpy(x[begin:end].copy()) for x in (store.q, store.qd, store.control))
        wanted = pd_torque(spec, q, qd, target, KP, KD).numpy()
        np.testing.assert_allclose(store.channel[begin + 1 : end + 1, torque], wanted, atol=2e-2)


def test_failures_end_episodes_and_time_limits_complete_them(recorded: tuple[LogSummary, Store]) -> None:
    summary, store = recorded
    status, length = store.table["status"], store.table["length"]
    assert set(status.tolist()) <= {Status.COMPLETE, Status.TERMINATED}
    assert (length[status == Status.COMPLETE] == _Short.frames).all()
    assert (length[status == Status.TERMINATED] < _Short.frames).all()
    assert summary.failed == pytest.approx(float((status == Status.TERMINATED).mean()))


def test_a_log_survives_the_way_through_rows(recorded: tuple[LogSummary, Store], tmp_path: Path) -> None:
    _, store = recorded
    layout = msgspec.structs.replace(row_layout(_Short()), time_out=True, episode_length=None)
    write_rows(store, tmp_path / "rows.csv", layout)
    again = read_rows([tmp_path / "rows.csv"], layout)
    np.testing.assert_allclose(again.frames, store.frames, atol=1e-5)
    np.testing.assert_array_equal(again.table["status"], store.table["status"])
    np.testing.assert_array_equal(again.table["length"], store.table["length"])


@pytest.mark.parametrize(("given", "message"), [({"noise": -1.0}, "noise is -1"), ({"worlds": 0}, "worlds is 0")])
def test_bad_settings_are_refused(tmp_path: Path, given: dict, message: str) -> None:
    task = _Short()
    with pytest.raises(InputError, match=message):
        record_log(
            task, AnalyticDynamics(task.declaration()), [Behaviour("still", _still)], tmp_path / "x.h5",
            **{"transitions": 10, **given},
        )  # fmt: skip
    assert not (tmp_path / "x.h5").exists()


def test_a_bolted_robot_logs_joints_and_the_torques_that_moved_them(tmp_path: Path) -> None:
    class Brief(CartpoleSwingUp):
        frames = 20

    task = Brief()
    dynamics = AnalyticDynamics(task.declaration())
    push = Behaviour("push", lambda observation: torch.full((len(observation), 1), 0.3))
    summary, store = log_of(task, [push], tmp_path / "log.h5", dynamics, transitions=40, worlds=4, noise=0.5)
    assert summary.transitions == store.transitions
    assert store.header.spec == dynamics.spec
    assert store.header.source == "teacher"
    assert store.reward is not None
    assert store.reward.min() < store.reward.max()
    for episode in range(len(store.table)):
        q, qd, control = (torch.from_numpy(x.copy()) for x in store.episode(episode))
        if len(control):
            after = dynamics.rollout(State(q[:-1], qd[:-1]), control[:, None])  # every frame on its own
            np.testing.assert_allclose(after.qd[:, 1], qd[1:], atol=1e-3)


def test_measurements_are_noisy_and_another_robot_than_declared_makes_a_log(tmp_path: Path) -> None:
    class Brief(CartpoleSwingUp):
        frames = 40

    heavy, seen = declared_hybrid("cartpole", parameters=["slider.mass=70"]), []

    def push(observation: torch.Tensor) -> torch.Tensor:
        seen.append(observation)
        return torch.full((len(observation), 1), 0.3)

    stores = {}
    for name, noise in (("exact", None), ("noisy", MeasurementNoise(0.01, 0.2))):
        _, stores[name] = log_of(
            Brief(), [Behaviour("push", push)], tmp_path / f"{name}.h5", heavy, transitions=800, worlds=20, noise=0.0,
            seed=1, measurement=noise, declared=False,
        )  # fmt: skip
    exact, noisy = stores["exact"], stores["noisy"]
    assert (noisy.header.source, noisy.header.fingerprint) == ("log", None)
    assert noisy.header.notes["measurement_noise"] == {"position": 0.01, "velocity": 0.2}
    np.testing.assert_allclose((noisy.q - exact.q).std(0), 0.01, rtol=0.1)
    np.testing.assert_allclose((noisy.qd - exact.qd).std(0), 0.2, rtol=0.1)
    np.testing.assert_array_equal(noisy.reward, exact.reward)  # of the true state
    begin = noisy.table["start"]
    np.testing.assert_allclose(seen[-40][:, 2:], noisy.qd[begin], rtol=1e-5)  # what the policy saw is what was logged


class _Brief(AnymalVelocity):
    frames = 12


@pytest.fixture(scope="module")
def coordinates(tmp_path_factory: pytest.TempPathFactory) -> tuple[LogSummary, Store]:
    behaviours, out = [Behaviour("still", _still), Behaviour("random")], tmp_path_factory.mktemp("coordinates")
    return log_of(_Brief(), behaviours, out / "log.h5", transitions=40, worlds=4, noise=0.0, coordinates=True)


def test_coordinates_are_what_the_simulator_computes_from_the_torques(coordinates: tuple[LogSummary, Store]) -> None:
    summary, store = coordinates
    task = _Brief()
    robot = task.declaration()
    spec = store.header.spec
    assert not robot.spec.differences(spec)
    assert spec.contacts == tuple(robot.contacts)
    assert store.header.contact_points is not None
    assert store.header.mechanism is not None
    assert store.header.scene == robot.named_ground()
    np.testing.assert_array_equal(store.ground, np.tile([0, 0, 0, 0, 0, 0, 1], (len(store.table), 1)))
    require_same_simulator(robot, store)
    dynamics = AnalyticDynamics(robot)
    still = np.flatnonzero((store.group == 0) & (store.lengths > 0))
    for episode in still:
        q, qd, torque = (torch.from_numpy(x.copy()) for x in store.episode(int(episode)))
        after = dynamics.rollout(State(q[:-1], qd[:-1]), torque[:, None], home_ground(task))
        np.testing.assert_allclose(after.q[:, 1], q[1:], atol=1e-3)
    returns = store.returns
    assert returns is not None
    for number, name in enumerate(store.header.groups):
        assert summary.returns[name] == pytest.approx(returns[store.group == number].mean(), rel=1e-5)


@pytest.mark.parametrize(("transitions", "worlds"), [(1, 4), (500, 4), (30_000, 60), (64_000, 256), (10**6, 256)])
def test_short_logs_take_few_episodes(transitions: int, worlds: int) -> None:
    assert AnymalVelocity.frames == 500
    assert usual_worlds(AnymalVelocity(), transitions) == worlds
    assert usual_worlds(AnymalVelocity(), transitions, 5) == max(5, worlds)


def test_random_actions_differ_between_worlds_and_repeat_by_seed(coordinates: tuple[LogSummary, Store]) -> None:
    _, store = coordinates
    first = [store.episode(int(e))[2][:1] for e in np.flatnonzero((store.group == 1) & (store.lengths > 0))]
    assert len(np.unique(np.concatenate(first), axis=0)) == len(first) > 1


def test_what_breaks_down_is_not_logged_and_has_its_own_end(tmp_path: Path) -> None:
    class Bounded(CartpoleSwingUp):
        frames = 60

        def declaration(self):
            return msgspec.structs.replace(super().declaration(), range=Ranges(qd={"slider": (-2.0, 2.0)}))

    push = Behaviour("push", lambda seen: torch.ones(len(seen), 1))
    summary, store = log_of(Bounded(), [push], tmp_path / "log.h5", transitions=8, worlds=4, noise=0.0)
    assert summary.implausible == summary.failed == 1.0
    assert set(store.status.tolist()) == {Status.OUT_OF_RANGE}
    assert np.abs(store.qd[:, 0]).max() <= 2.0 * (1 + 1e-5)


def test_a_log_is_data_like_those_that_are_generated(tmp_path: Path) -> None:
    out, run = tmp_path / "log.h5", tmp_path / "run"
    _, store = log_of(load_task("cartpole-swingup"), [Behaviour("random")], out, transitions=1200, worlds=4, noise=0.0)
    train("cartpole", out, run, steps=20, seed=0)
    result = evaluate(run, data=str(out), horizon=5, rollouts=8)
    assert 0 < result.about.rollouts <= 16
    rewards = inspect_store(store)["rewards"]
    assert rewards["groups"]["random"] == pytest.approx(rewards["return"]["mean"])
    assert load_model(run).training_range is not None


def test_a_floating_robot_without_rows_logs_what_it_measures_and_a_world_model_of_it_does_its_task(tmp_path: Path):
    from neurodyn.control.starts import LoggedStarts
    from neurodyn.dynamics.world_model.model import WorldModel
    from neurodyn.nets.ensemble import EnsembleConfig
    from neurodyn.policy.worlds.environment import PolicyEnvironment
    from neurodyn.tasks.running import AntRun

    class Short(AntRun):
        frames = 12

    task, still = Short(), Behaviour("still", lambda seen: torch.zeros(len(seen), 8))
    _, store = log_of(task, [still], tmp_path / "log.h5", transitions=60, worlds=5, noise=0.3, coordinates=False)
    spec = store.header.spec
    assert [joint.name for joint in spec.joints] == list(task.actions)
    assert spec.control_kind == "torque"
    assert store.control.std() > 50.0
    named = {channel.name: store.channel[:, i] for i, channel in enumerate(spec.channels)}
    assert ((named["base_height"] > 0.3) & (named["base_height"] < 1.2)).all()
    turn = np.stack([named[f"base_orientation.{part}"] for part in "xyzw"], -1)
    np.testing.assert_allclose(np.linalg.norm(turn, axis=-1), 1.0, atol=1e-5)
    x, y = turn[:, 0], turn[:, 1]
    np.testing.assert_allclose(named["projected_gravity.z"], 2.0 * (x * x + y * y) - 1.0, atol=1e-4)
    model = WorldModel(spec.with_context(2), EnsembleConfig(members=2, width=8, depth=1, head=8)).requires_grad_(False)
    model.fitted.fill_(True)
    model.scale.fill_(1e-3)
    world = PolicyEnvironment(task, model, LoggedStarts(store, 2, 0), 3)
    seen, reward, _, _ = world.step(torch.zeros(3, 8))
    assert seen["policy"].shape == (3, len(task.observations))
    assert reward.isfinite().all()


def _added(noise: float, correlation: float, behaviours: list[Behaviour], frames: int = 300) -> torch.Tensor:
    """Return what is added to the actions of two episodes of each behaviour, shape [frames, episodes, actions]."""
    number, draws = torch.arange(2 * len(behaviours)) // 2, torch.Generator().manual_seed(2)
    excitation = Excitation(AnymalVelocity(), behaviours, number, noise, correlation, draws)
    return torch.stack([excitation.frame() for _ in range(frames)])


def test_all_actions_swing_at_one_frequency_of_the_episode() -> None:
    added = _added(1.5, 0.9, [behaviour("swing", AnymalVelocity()), behaviour("still", AnymalVelocity())])
    spectrum = torch.fft.rfft(added[:, :2] * torch.hann_window(300)[:, None, None], dim=0).abs().sum(-1)
    hertz = torch.fft.rfftfreq(300, 0.02)[spectrum.argmax(0)]
    assert ((hertz > 0.9) & (hertz < 3.1)).all()
    assert hertz[0] != hertz[1]
    assert (spectrum.amax(0) > 10.0 * spectrum.median(0).values).all()  # the rest is noise
    quiet = Behaviour("swing", _still, quiet=True, swings=True)
    assert not _added(1.5, 0.9, [quiet]).any()


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_noise_of_an_episode_lasts(correlation: float) -> None:
    added = _added(0.5, correlation, [Behaviour("still", _still)], 4000)
    unit = (added - added.mean(0)) / added.std(0)
    assert (added.std(0) < 0.6).all()
    assert (unit[1:] * unit[:-1]).mean().item() == pytest.approx(correlation, abs=0.02)
