# SPDX-License-Identifier: Apache-2.0
"""Pieces of benchmarks/identification.py: the peer in MuJoCo, late commands, and the log of the worn quadruped."""

from types import ModuleType

import numpy as np
import pytest

from neurodyn.data.store import Store
from neurodyn.robots import Robot, load
from tests.plant import repository

mujoco = pytest.importorskip("mujoco")
pytest.importorskip("newton")


@pytest.fixture
def peer() -> ModuleType:
    from neurodyn.sim.mujoco import sysid

    return sysid


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(repository() / "benchmarks"))
    import identification  # pyright: ignore[reportMissingImports]

    return identification


def test_late_commands_are_linear_between_steps(peer: ModuleType):
    commands = np.arange(5.0)[:, None]
    assert peer.late(commands, 0.0) == pytest.approx(commands)
    assert peer.late(commands, 1.5)[:, 0] == pytest.approx([0.0, 0.0, 0.5, 1.5, 2.5])


def test_a_peer_follows_its_own_log(peer: ModuleType, benchmark: ModuleType):
    spec = mujoco.MjSpec.from_string(benchmark.hung_xml())
    spec.option.timestep = 0.01
    for motor in spec.actuators:
        motor.dyntype, motor.dynprm[0] = mujoco.mjtDyn.mjDYN_FILTEREXACT, 0.02
    one = peer.MujocoPeer(peer.with_inertias(spec), benchmark.HUNG, benchmark.HUNG, 0.02)
    rng = np.random.default_rng(0)
    still, control = np.zeros((1, 42, 8)), rng.normal(0, 2, (1, 41, 8))
    control[:, 0] = 0.0  # before the start
    q, _ = one.rollout(peer.LogSegments(still, still, control, 1))
    model = one.spec.compile()
    data = mujoco.MjData(model)
    for command in control[0, 1:]:
        data.ctrl[:] = command
        mujoco.mj_step(model, data, 2)
    assert q[0, -1] == pytest.approx(data.qpos, abs=1e-9)
    assert np.abs(q[0, -1]).max() > 0.05
    heavier = peer.MujocoPeer(one.spec.copy(), benchmark.HUNG, benchmark.HUNG, 0.02)
    peer.modifier("mass_scale", "front_left_ankle", (1.0, np.full(3, 0.01), "front_left_foot"))(
        heavier.spec, type("Parameter", (), {"value": np.array([1.5])})
    )
    assert heavier.spec.compile().body("front_left_foot").mass[0] == pytest.approx(1.5)


def test_the_bias_of_a_joint_is_what_it_reads_at_zero(peer: ModuleType, benchmark: ModuleType):
    spec = mujoco.MjSpec.from_string(benchmark.hung_xml())
    peer.modifier("bias", "front_left_ankle", (0.0, np.zeros(3), ""))(
        spec, type("Parameter", (), {"value": np.array([0.1])})
    )
    plain, biased = mujoco.MjSpec.from_string(benchmark.hung_xml()).compile(), spec.compile()
    here, there = mujoco.MjData(plain), mujoco.MjData(biased)
    there.qpos[:] = 0.0
    there.qpos[1] = 0.1
    for model, data in ((plain, here), (biased, there)):
        mujoco.mj_forward(model, data)
    assert there.xipos == pytest.approx(here.xipos, abs=1e-9)


def test_quantities_are_those_of_the_model(peer: ModuleType, benchmark: ModuleType):
    spec = peer.with_inertias(mujoco.MjSpec.from_string(benchmark.hung_xml()))
    names = peer.MujocoPeer(spec, benchmark.HUNG, benchmark.HUNG, 0.02).parameters(("*",))
    assert "actuator.front_left_hip.gain" in names
    assert not [name for name in names if name.endswith((".kp", ".bias", ".lag"))]
    pace = peer.MujocoPeer(spec, benchmark.HUNG, benchmark.HUNG, 0.02).parameters(benchmark.PACE_OF_TORQUES)
    assert len(pace) == 3 * 8 + 1


@pytest.mark.slow
def test_the_worn_quadruped_leaves_its_declaration(benchmark: ModuleType, tmp_path):
    robot = declared(benchmark, tmp_path)
    log = benchmark.hung_log(
        benchmark.worn(mujoco.MjSpec.from_string(benchmark.hung_xml())), robot, tmp_path / "log.h5", episodes=8,
        frames=60,
    )  # fmt: skip
    assert isinstance(log, Store)
    starts = benchmark.starts_of(log, 4, 50, 20)
    assert starts.q.shape[1:] == (55, 8)
    sound = benchmark.peer_of(mujoco.MjSpec.from_string(benchmark.hung_xml()), tuple(robot.actuated), robot)
    errors = benchmark.errors_of(sound.rollout(starts)[0], starts, robot.dt)
    assert 0.01 < errors[1] < 1.0
    own = benchmark.errors_of(starts.q[:, starts.past :], starts, robot.dt)
    assert own == [0.0, 0.0, 0.0]


def declared(benchmark: ModuleType, folder) -> Robot:
    (folder / "hung.xml").write_text(benchmark.hung_xml())
    benchmark.declare(folder / "hung.xml", folder / "hung", name="hung", dt=0.02)
    return load(folder / "hung")
