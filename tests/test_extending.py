# SPDX-License-Identifier: Apache-2.0
"""One of everything, added from outside of the package, is used, and gone when it is taken out again.

The plug-in is the page docs/extending.md: its blocks of Python are written into a module that is found as that of an
installed package is.
"""

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

import neurodyn
from neurodyn.cli.main import run
from neurodyn.core import registry
from neurodyn.core.description.contacts import ContactPoint
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.errors import InputError
from neurodyn.data.readers.column_map import Column, ColumnMap
from neurodyn.data.readers.logs import read_logs
from neurodyn.dynamics import HybridDynamics, MountedSensor, SensorModel, State
from neurodyn.dynamics.artifact import save
from neurodyn.interop.onnx import export_model
from neurodyn.multibody import EngineConfig
from neurodyn.multibody.drives.drive_program import DriveProgram
from neurodyn.nets import EnsembleConfig, NetConfig, build_predictor
from neurodyn.robots import load
from tests import plant
from tests.multibody import machines

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/extending.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """The page as the plug-in of an installed package, which is taken out again by the page's last block."""
    (tmp_path / "extending_plugin.py").write_text("\n\n".join(BLOCKS[:-1]))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(ROOT)
    entry = EntryPoint(name="extending", value="extending_plugin", group=registry.PLUGINS)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry])
    monkeypatch.setattr(registry, "_loaded", [])
    registry.load_plugins()
    module = sys.modules["extending_plugin"]
    yield module
    exec(BLOCKS[-1], vars(module))
    del sys.modules["extending_plugin"]


def falling(config: EngineConfig) -> HybridDynamics:
    """A ball of 1 kg above a plane."""
    link = Link(joint=machines.joint("ball", "free"), mass=1.0, com=(0.0,) * 3, inertia=(0.01,) * 3 + (0.0,) * 3)
    points = (ContactPoint(name="ball/0", joint=0, point=(0.0, 0.0, 0.0), radius=0.1),)
    mechanism = Mechanism(links=(link,), points=points)
    scene = neurodyn.core.Scene(shapes=(neurodyn.core.Plane(),))
    return HybridDynamics(machines.spec(mechanism), mechanism, config, scene=scene)


def fall(config: EngineConfig, frames: int) -> torch.Tensor:
    """Return the ball's height after each frame."""
    q = torch.tensor([[0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
    path = falling(config).rollout(State(q, torch.zeros_like(q[:, :6])), torch.zeros(1, frames, 0).double())
    return path.q[0, :, 2].detach()


def test_a_sensor(plugin):
    stream = neurodyn.core.Stream(name="height", kind="altimeter")
    sensor = neurodyn.core.Sensor(kind="altimeter", position=(0.0, 0.0, 0.2))
    model = falling(EngineConfig(contact="spring", substeps=1))
    observation = SensorModel(model, [MountedSensor("height", sensor, stream)])
    q = torch.tensor([[0.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)  # upside down
    none = q[:, :0]
    seen = observation(State(q, torch.zeros_like(q[:, :6])), none, none, none, model.weights.detach())
    assert stream.columns == ("height.height.z",)
    assert seen.item() == pytest.approx(0.3)


def test_a_drive(plugin):
    drives = {name: neurodyn.core.Drive(kind="spring", kp=kp) for name, kp in (("shoulder", 2.0), ("elbow", 0.0))}
    mechanism = msgspec.structs.replace(machines.pendulum(), drives=drives)
    spec = machines.spec(mechanism, tuple(drives), kind="target")
    program = DriveProgram(drives, spec, 0.01)
    torque, _ = program(torch.tensor([[0.5, 0.5]]), torch.zeros(1, 2), torch.ones(1, 2), None)
    assert torque.tolist() == [[1.0, 0.0]]


def test_a_robot(plugin, capsys):
    assert load("my-arm").name == "my-arm"
    assert run(["robots"]) == 0
    assert "my-arm" in capsys.readouterr().out


def test_a_task(plugin):
    task, usual = neurodyn.tasks.load("cartpole-calm"), neurodyn.tasks.load("cartpole-swingup")
    state = State(torch.zeros(2, 2), torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    now = plant.make_model("mlp", torch.float32).quantities(state)
    memory = task.begin(now, torch.Generator())
    rewards = task.reward(now, memory, torch.zeros(2, 1))
    assert rewards.keys() - usual.reward(now, memory, torch.zeros(2, 1)).keys() == {"haste"}
    torch.testing.assert_close(rewards["haste"], torch.tensor([0.0, -0.25]))


def test_a_log_reader(plugin, tmp_path):
    time = np.arange(200) / 60.0
    np.savetxt(tmp_path / "log.dat", np.stack([time, np.sin(time), 0.5 * time, 0.1 * time], axis=1))
    columns = ColumnMap(
        format="dat", q={"slider": Column(column="x"), "hinge": Column(column="angle")}, qd="differentiate",
        control={"slider": Column(column="force")}, time="t", alignment=0.0,
    )  # fmt: skip
    store = read_logs([tmp_path / "log.dat"], columns, plant.robot().spec, split="test")
    position, velocity, force = store.frames[10:-10, 1], store.frames[10:-10, 3], store.frames[10:-10, 4]
    np.testing.assert_allclose(velocity, 0.5, atol=1e-4)
    np.testing.assert_allclose(force, 0.2 * position, atol=0.1 / 60.0)  # held over a frame
    with pytest.raises(
        InputError,
        match="unknown format of logs 'xml'; valid: csv, dat, folder, json, jsonl, lerobot, mcap, mujoco, npz",
    ):
        ColumnMap(format="xml", q=columns.q, time="t")


def test_a_network(plugin, tmp_path, plant_file):
    config = NetConfig(kind="funnel", width=16, depth=3)
    assert [layer.out_features for layer in build_predictor(config, 3, 2).net.layers] == [16, 8, 4, 2]
    out = tmp_path / "run"
    flags = ["--data", str(plant_file), "--out", str(out), "--net", "funnel", "--steps", "2"]
    assert run(["train", "cartpole", *flags]) == 0
    model = neurodyn.load(out)
    assert model.network == "funnel"
    pytest.importorskip("onnxruntime")
    assert export_model(model, tmp_path / "model.onnx") < 1e-4


def test_a_trunk_of_an_ensemble(plugin):
    from tests import worlds

    model = worlds.make_model(kind="tanh", trunk="own")
    assert model.network == "tanh"
    assert not model.net.recurrent
    with pytest.raises(InputError, match="unknown network of an ensemble 'lstm'; valid: gru, mlp, tanh"):
        EnsembleConfig(kind="lstm")


def test_an_optimiser(plugin):
    from neurodyn.learn.optimiser import build_optimiser

    weight = torch.nn.Parameter(torch.ones(1))
    assert isinstance(build_optimiser("sgd", [{"params": [weight], "lr": 0.1}]), torch.optim.SGD)


def test_a_contact_model(plugin):
    heights = fall(EngineConfig(contact="spring", substeps=20), 80)
    static = 0.1 - 9.81 / 2e3  # of the ball at rest on the spring
    assert heights.min() < static
    # No damping: the ball comes back up to where it fell from.
    assert heights[60:].max() > 0.45
    with pytest.raises(InputError, match="unknown contact model 'glue'; valid: force, impulse, soft, spring"):
        EngineConfig(contact="glue")


def test_an_integrator(plugin):
    dt, frames = machines.DT, 10
    semi = fall(EngineConfig(substeps=1), frames)[-1]
    explicit = fall(EngineConfig(substeps=1, integrator="explicit-euler"), frames)[-1]
    g, n = 9.81, frames
    assert float(semi) == pytest.approx(0.5 - g * dt**2 * n * (n + 1) / 2)
    assert float(explicit) == pytest.approx(0.5 - g * dt**2 * n * (n - 1) / 2)
    with pytest.raises(InputError, match="unknown integrator 'heun'; valid: explicit-euler, rk4, semi-implicit-euler"):
        EngineConfig(integrator="heun")


def test_a_metric(plugin, plant_store):
    found = neurodyn.evaluate.beside_log(plant.PlantDynamics(), load("cartpole"), plant_store, split=None, horizon=5)
    assert found.plain()["by_horizon"]["5"]["speed_error"] == 0.0
    from neurodyn.evaluate.metrics import summarise

    truth = neurodyn.Trajectory(torch.zeros(2, 4, 2), torch.zeros(2, 4, 2))
    fast = neurodyn.Trajectory(torch.zeros(2, 4, 2), torch.full((2, 4, 2), 0.5))
    assert summarise(neurodyn.dynamics.RolloutErrors.of(load("cartpole"), fast, truth), 3).means["speed_error"] == 0.5


def test_a_check(plugin, capsys):
    pytest.importorskip("newton")
    assert run(["check", "cartpole", "--worlds", "2", "--frames", "10"]) == 0
    assert "mass on the bench 52.5 kg 60.0 kg ok" in " ".join(capsys.readouterr().out.split())


def test_a_verb(plugin, capsys):
    assert run(["weigh", "cartpole", "--density", "500"]) == 0
    assert capsys.readouterr().out == "2 joints at 500 kg/m^3\n"
    assert run(["--help"]) == 0
    assert "say what a robot is made of" in capsys.readouterr().out
    assert run(["weigh", "cartpole", "--densty", "500"]) == 2


def test_a_kind_of_dynamics(plugin, tmp_path, capsys):
    model = plugin.Coasting(plant.robot().spec)
    with torch.no_grad():
        model.rate.copy_(torch.tensor([0.0, 2.0]))
    save(tmp_path / "run", model)
    found = neurodyn.load(tmp_path / "run")
    assert isinstance(found, neurodyn.dynamics.Dynamics)
    assert (found.kind, found.robot, found.device) == ("coasting", plant.robot(), "cpu")
    path = found.rollout(State(torch.zeros(1, 2), torch.ones(1, 2)), torch.zeros(1, 60, 1))
    torch.testing.assert_close(path.qd[0, -1], torch.tensor([1.0, 2.718281828**-2.0]))
    assert "joint_velocity" in found.quantities(State(torch.zeros(1, 2), torch.ones(1, 2)))
    data = str(tmp_path / "none.h5")
    assert run(["finetune", str(tmp_path / "run"), "--data", data, "--out", str(tmp_path / "out")]) == 2
    assert "holds a coasting model; valid here: a neural model" in capsys.readouterr().err


def test_what_is_taken_out_is_gone(plugin):
    registries = [value for value in vars(plugin).values() if isinstance(value, registry.Registry)]
    assert len(registries) == 19
    before = [set(names) for names in registries]
    exec(BLOCKS[-1], vars(plugin))
    after = [set(names) for names in registries]
    exec("\n\n".join(BLOCKS[:-1]), vars(plugin))
    assert all(len(a - b) == 1 and b < a for a, b in zip(before, after, strict=True))
