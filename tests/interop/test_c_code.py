"""Exported C does what Python does, compiles without warnings, and refuses what it cannot do."""

import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from neurodyn import dynamics, robots
from neurodyn.core.artifacts import read_weights
from neurodyn.core.description.blueprint import Blueprint
from neurodyn.core.description.scene import Plane, Scene
from neurodyn.core.errors import InputError
from neurodyn.dynamics import Control, Dynamics, HybridDynamics, NeuralDynamics, State, declared_hybrid
from neurodyn.dynamics.quantities import Quantities
from neurodyn.identify.drives import Rows, _Perceptron, _predict, _Recurrent
from neurodyn.interop.c_code.models import hybrid_unit, neural_unit
from neurodyn.interop.c_code.policies import policy_unit
from neurodyn.interop.c_code.source import identifier
from neurodyn.interop.c_code.units import code_unit
from neurodyn.interop.formats import export_code
from neurodyn.multibody.inverse_dynamics import link_parameters, regressor
from neurodyn.policy.artifact import ActingPolicy, load_policy, policy_config, save_policy
from neurodyn.policy.settings import NetworkSettings
from neurodyn.tasks import Memory, load
from neurodyn.tasks.task import reset_states
from neurodyn.walking.convex_mpc import FrictionPyramids, MpcSettings
from neurodyn.walking.force_network import ForceNetwork, ImitationConfig, save_imitation
from neurodyn.walking.state import CONTACT, FORCE_INPUTS
from tests.dynamics.hybrid.test_memory import RECURRENT, stirred
from tests.dynamics.neural.test_compiled import make
from tests.dynamics.test_artifact_export import hopping
from tests.interop.c_programs import Program
from tests.interop.runs import network_run
from tests.multibody.constraints.test_soft_contact import random_states

STEPS = 1000


def saved_policy(folder: Path, **settings: object) -> str:
    """Write a policy of the cartpole with random weights."""
    torch.manual_seed(1)
    config = policy_config(load("cartpole-swingup"), NetworkSettings(hidden=(16, 12), **settings))
    config = msgspec.structs.replace(config, clip=2.0)
    network = config.build()
    with torch.no_grad():
        network.layers[-1].weight *= 25.0  # pyright: ignore[reportOperatorIssue, reportArgumentType]
    network.mean.uniform_(-1.0, 1.0)
    network.deviation.uniform_(0.5, 2.0)
    save_policy(folder, config, network)
    return str(folder)


@pytest.mark.parametrize(
    "settings",
    [
        {"activation": "tanh"},
        {"history": 3, "with_actions": True},
        {"recurrent": "gru", "memory": 20},
        {"recurrent": "lstm", "memory": 20},
    ],
    ids=["mlp", "history", "gru", "lstm"],
)
def test_a_policy_acts_as_in_python(tmp_path: Path, settings: dict[str, object]) -> None:
    policy = saved_policy(tmp_path / "policy", **settings)
    config, network = load_policy(policy)
    seen = torch.randn(STEPS, len(config.observations), dtype=torch.float64)
    acting = ActingPolicy(network.double())
    wanted = torch.stack([acting(row[None])[0] for row in seen])
    action, scaled = Program(policy_unit(policy), tmp_path / "c")(seen.numpy())
    np.testing.assert_allclose(action, wanted, atol=1e-6)
    np.testing.assert_allclose(scaled, wanted * 1500.0, rtol=1e-6, atol=1e-6)
    assert np.abs(action).max() == 1.0  # the limit
    assert action.std() > 0.01


@pytest.mark.parametrize("name", ["ant-run", "anymal-velocity", "cartpole"])
def test_a_task_observes_and_controls_as_in_python(tmp_path: Path, name: str) -> None:
    unit = policy_unit(f"pretrained-policy:{name}")
    config, network = load_policy(f"pretrained-policy:{name}")
    task = load(config.task)
    functions = {one.name: one for one in unit.functions}
    torch.manual_seed(0)
    command = task.commands(50, torch.Generator().manual_seed(3))
    values = {
        array.name: torch.randn(50, array.width) for array in functions["observe"].given if array.name != "command"
    }
    if "base_orientation" in values:
        values["base_orientation"] = torch.nn.functional.normalize(values["base_orientation"])
    quantities = Quantities("test", {}, known=values)
    zero = torch.zeros(50, len(task.actions))
    memory = Memory(zero, command, values["joint_velocity"], zero[:, :0], torch.zeros(50, dtype=torch.long))
    observe = Program(unit, tmp_path / "observe", "observe", double=False)
    [seen] = observe(*[{**values, "command": command}[array.name].numpy() for array in functions["observe"].given])
    np.testing.assert_allclose(seen, task.observe(quantities, memory), atol=1e-5)
    control = Program(unit, tmp_path / "control", "control", double=False)
    action = network(torch.tensor(seen, dtype=torch.float32))
    given = {**values, "command": command, "action": action}
    [made] = control(*[given[array.name].numpy() for array in functions["control"].given])
    wanted = task.control(action, quantities, memory)
    np.testing.assert_allclose(made, wanted.torque if wanted.target is None else wanted.target, rtol=1e-6, atol=1e-6)


def test_single_precision_differs_by_rounding_alone(tmp_path: Path) -> None:
    config, network = load_policy("pretrained-policy:ant-run")
    seen = network.mean + network.deviation * torch.randn(STEPS, len(config.observations))
    action, _ = Program(policy_unit("pretrained-policy:ant-run"), tmp_path, double=False)(seen.numpy())
    np.testing.assert_allclose(action, network(seen), atol=2e-5)


def frames_of(model: Dynamics, frames: int, state: State, every: int = 100) -> tuple[np.ndarray, ...]:
    """Return the states and controls of a roll-out under random controls, and the state after each frame."""
    generator = torch.Generator().manual_seed(0)
    carry, rows = model.begin(state), []
    for _ in range(frames):
        control = 0.5 * torch.randn(1, model.spec.nu, dtype=torch.float64, generator=generator)
        given = Control(torque=control) if model.spec.control_kind == "torque" else Control(target=control)
        carry, step = model.step(carry, state, given)
        rows.append((state.q, state.qd, control, step.state.q, step.state.qd))
        state = step.state
        if len(rows) % every == 0:  # stays near where it began
            state = State(rows[0][0], rows[0][1])
    return tuple(torch.cat(column).numpy() for column in zip(*rows, strict=True))


@pytest.mark.parametrize("net", ["silu", "gelu", "gru", "transformer"])
@torch.no_grad()
def test_neural_dynamics_predict_as_in_python(tmp_path: Path, net: str) -> None:
    made = make(net, dtype=torch.float32)
    made.predictor.denormaliser.std *= 0.02  # random networks throw the body out of the range of numbers otherwise
    plane = Scene(shapes=(Plane(),))
    unit = neural_unit(NeuralDynamics(made.encoding, made.predictor, scene=plane))
    model = NeuralDynamics(made.encoding, made.predictor, scene=plane).double()
    q = torch.tensor([[0.1, 0.2, 0.15, 0.1, 0.2, 0.3, 0.9, 0.2, 0.1, 0.0, 0.0, 0.995]], dtype=torch.float64)
    q[:, 3:7] /= q[:, 3:7].norm()
    q[:, 8:12] /= q[:, 8:12].norm()
    begin = State(q[:, : model.spec.nq], torch.zeros(1, model.spec.nv, dtype=torch.float64))
    q, qd, control, q_next, qd_next = frames_of(model, STEPS, begin, every=5)
    found_q, found_qd = Program(unit, tmp_path)(q, qd, control)
    np.testing.assert_allclose(found_q, q_next, atol=1e-6)
    np.testing.assert_allclose(found_qd, qd_next, atol=1e-6, rtol=1e-6)
    assert np.abs(qd_next).max() > 0.1


@torch.no_grad()
def test_impulses_of_a_network_move_a_base_as_in_python(tmp_path: Path) -> None:
    states = random_states(60, seed=7)
    state = State(states[:, :8], states[:, 8:])
    torque = torch.randn(len(states), 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    unit = neural_unit(hopping("impulses", "mlp"))
    found = Program(unit, tmp_path)(state.q.numpy(), state.qd.numpy(), torque.numpy())
    above, alone = (hopping("impulses", "mlp", scene).double() for scene in (Scene(shapes=(Plane(),)), None))
    wanted, free = (one.step(one.begin(state), state, Control(torque=torque))[1].state for one in (above, alone))
    np.testing.assert_allclose(found[0], wanted.q, atol=1e-6)
    np.testing.assert_allclose(found[1], wanted.qd, atol=1e-5, rtol=1e-6)
    assert (wanted.qd - free.qd)[:, :6].abs().amax(1).gt(0.01).float().mean() > 0.3  # many are near the ground


@pytest.mark.parametrize("name", ["cartpole", "cube", "pendulum"])
@torch.no_grad()
def test_shipped_models_in_single_precision_differ_by_rounding(tmp_path: Path, name: str) -> None:
    model = dynamics.load(f"pretrained:{name}")
    generator = torch.Generator().manual_seed(1)
    states = reset_states(robots.load(name), 200, generator)
    torque = torch.randn(200, model.spec.nu, generator=generator)
    after = model.step(model.begin(states), states, Control(torque=torque))[1].state
    unit = code_unit(f"pretrained:{name}")
    q, qd = Program(unit, tmp_path, double=False)(states.q.numpy(), states.qd.numpy(), torque.numpy())
    np.testing.assert_allclose(q, after.q, atol=5e-5)
    np.testing.assert_allclose(qd, after.qd, atol=2e-4, rtol=1e-4)


@torch.no_grad()
def test_memories_of_drives_and_networks_are_kept(tmp_path: Path) -> None:
    model = stirred(Blueprint(augmentations=(RECURRENT,)))
    begin = State(torch.full((1, 2), 0.3, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64))
    q, qd, control, q_next, qd_next = frames_of(model, STEPS, begin)
    unit = hybrid_unit(model)
    assert unit.memory[0].width == model.memory > 10
    found_q, found_qd = Program(unit, tmp_path)(q, qd, control)
    np.testing.assert_allclose(found_q, q_next, atol=1e-6)
    np.testing.assert_allclose(found_qd, qd_next, atol=1e-6)


@pytest.mark.parametrize("name", ["cartpole", "cube"])
@torch.no_grad()
def test_hybrid_dynamics_roll_out_as_in_python(tmp_path: Path, name: str) -> None:
    model = declared_hybrid(name)
    begin = reset_states(robots.load(name), 1, torch.Generator().manual_seed(2))
    q, qd, control, q_next, qd_next = frames_of(model, STEPS, State(begin.q.double(), begin.qd.double()))
    found_q, found_qd = Program(hybrid_unit(model), tmp_path)(q, qd, control)
    np.testing.assert_allclose(found_q, q_next, atol=1e-6)
    np.testing.assert_allclose(found_qd, qd_next, atol=1e-6)
    if name == "cube":
        assert (np.abs(qd_next[:, :3] - qd[:, :3]).max(1) > 0.5).any()  # it hits the ground


@torch.no_grad()
def test_laws_of_a_bolted_robot(tmp_path: Path) -> None:
    model = declared_hybrid("pendulum")
    unit, mechanism, nv = hybrid_unit(model), model.mechanism, model.spec.nv
    q, qd, qdd = np.random.default_rng(0).normal(size=(3, 20, nv))
    [tau] = Program(unit, tmp_path / "inverse", "inverse_dynamics")(q, qd, qdd)
    links = mechanism.links
    parameters = link_parameters(
        *(torch.tensor([getattr(link, name) for link in links]).double() for name in ("mass", "com", "inertia"))
    )
    wanted = regressor(mechanism, q, qd, qdd) @ parameters.flatten().numpy()
    np.testing.assert_allclose(tau, wanted + qdd * [link.armature for link in links], atol=1e-9)
    [still] = Program(unit, tmp_path / "gravity", "gravity")(q)
    np.testing.assert_allclose(still, regressor(mechanism, q, 0 * q, 0 * q) @ parameters.flatten().numpy(), atol=1e-9)


@torch.no_grad()
def test_laws_of_a_floating_body(tmp_path: Path) -> None:
    model = declared_hybrid("cube")
    unit = hybrid_unit(model)
    q = reset_states(robots.load("cube"), 20, torch.Generator().manual_seed(4)).q.double().numpy()
    q[:, 3:] /= np.linalg.norm(q[:, 3:], axis=1, keepdims=True)
    [still] = Program(unit, tmp_path / "gravity", "gravity")(q)
    np.testing.assert_allclose(still[:, 2], model.mechanism.links[0].mass * -model.mechanism.gravity[2])
    points, step = Program(unit, tmp_path / "points", "points"), 1e-6
    [rates] = Program(unit, tmp_path / "jacobian", "jacobian")(q)
    moved = q + step * np.eye(7)[1]
    [before], [after] = points(q), points(moved)
    np.testing.assert_allclose(rates.reshape(*before.shape, 6)[..., 1], (after - before) / step, atol=1e-6)
    spin = np.array([0.3, -0.2, 0.5])
    turned, com, turn = q.copy(), model.mechanism.links[0].com, Rotation.from_quat(q[:, 3:])
    turned[:, 3:] = (Rotation.from_rotvec(step * spin) * turn).as_quat()
    turned[:, :3] += turn.apply(com) - Rotation.from_quat(turned[:, 3:]).apply(com)  # about the centre of mass
    [after] = points(turned)
    np.testing.assert_allclose(rates.reshape(*before.shape, 6)[..., 3:] @ spin, (after - before) / step, atol=1e-5)


@pytest.mark.parametrize("network", ["mlp", "gru"])
@torch.no_grad()
def test_networks_of_drives_give_the_torques_of_python(tmp_path: Path, network: str) -> None:
    recurrent = {"network": "gru", "history": (0.0,), "hidden": (6,)}
    config = network_run(tmp_path / "run", **(recurrent if network == "gru" else {}))
    signals = torch.randn(STEPS, len(config.signals))
    net = (_Recurrent if network == "gru" else _Perceptron)(config.inputs, config.hidden)
    net.load_state_dict(read_weights(tmp_path / "run/actuator_network.safetensors"))
    first = torch.arange(STEPS) == 0
    rows = Rows(dict(zip(config.signals, signals.T[:, None], strict=True)), torch.zeros(1, STEPS), first)
    [wanted] = _predict(net, config, rows)
    [effort] = Program(code_unit(str(tmp_path / "run")), tmp_path / "c")(signals.numpy())
    np.testing.assert_allclose(effort[:, 0], wanted, atol=1e-5)
    assert effort.std() > 0.05


@torch.no_grad()
def test_imitated_forces_are_those_of_python(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = ForceNetwork(120.0, (20, 10))
    network.normaliser.fit(torch.randn(100, FORCE_INPUTS))
    config = ImitationConfig("a1", "trot", MpcSettings(), (20, 10), 12.0, 0.3)
    save_imitation(tmp_path / "forces", network, config, onnx=False)
    features = np.random.default_rng(0).normal(size=(200, FORCE_INPUTS)).astype(np.float32)
    features[:, CONTACT] = features[:, CONTACT] > 0
    [found] = Program(code_unit(str(tmp_path / "forces")), tmp_path / "c")(features)
    pyramids = FrictionPyramids(config.settings.friction, config.settings.greatest_force * 120.0)
    forces = network(torch.tensor(features)).numpy().reshape(-1, 4, 3)
    np.testing.assert_allclose(found, pyramids.nearest(forces, features[:, CONTACT]).reshape(-1, 12), atol=1e-4)
    assert np.abs(found).max() > 1.0


def friction_of_a_pendulum(qd: np.ndarray, model: HybridDynamics) -> np.ndarray:
    return np.stack([link.damping * x + link.friction * np.tanh(x / 0.05)
                     for link, x in zip(model.mechanism.links, qd.T, strict=True)], 1)  # fmt: skip


@torch.no_grad()
def test_friction_is_what_joints_and_drives_lose(tmp_path: Path) -> None:
    model = declared_hybrid("pendulum")
    q, qd = np.random.default_rng(1).normal(size=(2, 20, 2))
    [found] = Program(hybrid_unit(model), tmp_path, "friction")(q, qd)
    np.testing.assert_allclose(found, friction_of_a_pendulum(qd, model), atol=1e-9)
    assert np.abs(found).max() > 0 or not any(link.damping or link.friction for link in model.mechanism.links)


def test_files_compile_as_their_first_line_says(tmp_path: Path) -> None:
    for to, compiler in (("c", "gcc"), ("cpp-header", "g++")):
        if shutil.which(compiler) is None:
            pytest.skip(f"needs {compiler}")
        folder = export_code("pretrained-policy:cartpole", to, tmp_path / to)
        main = folder / ("main.c" if to == "c" else "main.cpp")
        command = re.search(rf"({re.escape(compiler)} .*) && ./bench", main.read_text())
        assert command is not None
        subprocess.run([*command[1].split(), "-Wall", "-Wextra", "-Werror"], cwd=folder, check=True)
        said = subprocess.run([folder / "bench", "20"], check=True, capture_output=True, text=True).stdout
        assert re.match(r"20 steps: mean [\d.]+ us \(CPU time [\d.]+ us\), worst [\d.]+ us", said), said


def test_nothing_is_kept_outside_of_the_state(tmp_path: Path) -> None:
    folder = export_code("pretrained-policy:ant-run", "c", tmp_path / "c")
    subprocess.run(["gcc", "-std=c99", "-O2", "-c", "ant_run.c"], cwd=folder, check=True)
    sizes = subprocess.run(["size", "-A", "ant_run.o"], cwd=folder, check=True, capture_output=True, text=True).stdout
    for section in (".data", ".bss"):  # what could change
        found = re.search(rf"^{re.escape(section)}\s+(\d+)", sizes, re.MULTILINE)
        assert found is None or found[1] == "0"
    undefined = subprocess.run(["nm", "-u", "ant_run.o"], cwd=folder, check=True, capture_output=True, text=True).stdout
    assert set(undefined.split()) <= {"U", "expf", "memset", "sinf", "cosf", "sqrtf", "tanhf", "_GLOBAL_OFFSET_TABLE_"}


def test_what_has_no_c_is_refused_by_name(tmp_path: Path) -> None:
    selu = saved_policy(tmp_path / "selu", activation="selu")
    with pytest.raises(InputError, match="activation 'selu' has no form in C; valid: silu"):
        code_unit(selu)
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="exists; valid: the path of a folder that does not"):
        export_code("pretrained-policy:cartpole", "c", tmp_path / "there")
    assert identifier("2nd run/a-b") == "n_2nd_run_a_b"
