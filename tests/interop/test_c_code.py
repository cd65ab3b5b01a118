"""Exported C does what Python does, compiles without warnings, and refuses what it cannot do."""

import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.dynamics.quantities import Quantities
from neurodyn.interop.c_code.export import code_unit, export_code
from neurodyn.interop.c_code.policies import policy_unit
from neurodyn.interop.c_code.source import identifier
from neurodyn.policy.artifact import ActingPolicy, load_policy, policy_config, save_policy
from neurodyn.policy.settings import NetworkSettings
from neurodyn.tasks import load
from neurodyn.tasks.task import Memory
from tests.interop.c_programs import Program

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
        assert re.match(r"20 steps: mean [\d.]+ us, worst [\d.]+ us", said), said


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
