# SPDX-License-Identifier: Apache-2.0
"""Exported C on one core: a policy, frames of hybrid and neural dynamics, compiled as in the first line of main.c.

Each is compared with Python, row by row, before timing. Times are mean CPU times of a step.
"""

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import neurodyn
from _common import require, result_parser, single_thread, write_result
from neurodyn import Control, State, robots
from neurodyn.dynamics import NeuralDynamics, declared_hybrid
from neurodyn.interop import CODE
from neurodyn.interop.c_code.models import hybrid_unit, neural_unit
from neurodyn.interop.c_code.source import CUnit
from neurodyn.interop.c_code.units import code_unit
from neurodyn.nets.networks import NetConfig
from neurodyn.nets.predictor import build_predictor
from neurodyn.policy.artifact import load_policy
from neurodyn.tasks.task import reset_states

ROWS = 300
ASKED = {"ant_run_policy": 20.0, "hybrid_ant_16": 25.0, "cartpole_transformer": 60.0}
"""Required limits [us]."""

Rows = tuple[np.ndarray, ...]


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    arguments = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    for name, make in CASES.items():
        unit, given, wanted, tolerance = make()
        with tempfile.TemporaryDirectory() as folder:
            error, time, worst = measured(unit, given, wanted, Path(folder), arguments.steps)
        require(error < tolerance, f"{name}: C differs from Python by {error:.1e}")
        figures |= {f"{name}_us": time, f"{name}_worst_us": worst, f"{name}_error": error}
        asked = f", asked {ASKED[name]:g}" if name in ASKED else ""
        print(f"{name}: {time:.2f} us of CPU time{asked}; worst {worst:.0f} us of wall time; error {error:.1e}")
    write_result(arguments.json, "c_code", figures, {})


def measured(unit: CUnit, given: Rows, wanted: Rows, folder: Path, steps: int) -> tuple[float, float, float]:
    """Return the difference to Python relative to max(1, largest entry), and mean CPU and worst wall time [us]."""
    for file, text in CODE["c"](unit, "unit").items():
        (folder / file).write_text(text)
    found = re.search(r"(gcc .*) && ./bench", (folder / "main.c").read_text())
    assert found is not None
    command = found[1].split()
    subprocess.run(command, cwd=folder, check=True)
    shared = ["-shared", "-fPIC", *(part for part in command[1:] if part not in {"main.c", "-o", "bench"})]
    subprocess.run([command[0], *shared, "-o", "unit.so"], cwd=folder, check=True)
    results = called(unit, folder / "unit.so", given)
    error = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1.0)) for a, b in zip(results, wanted, strict=True))
    said = subprocess.run(["./bench", str(steps)], cwd=folder, check=True, capture_output=True, text=True).stdout
    times = re.search(r"CPU time ([\d.]+) us\), worst ([\d.]+) us", said)
    assert times is not None
    return error, float(times[1]), float(times[2])


def called(unit: CUnit, library: Path, given: Rows) -> list[np.ndarray]:
    """Return the results of the first function, row by row."""
    one, kind = unit.functions[0], np.float64 if unit.double else np.float32
    function = getattr(ctypes.CDLL(str(library)), f"unit_{one.name}")
    size = sum(array.width * (8 if array.kind == "real" else 4) for array in unit.memory) + 64
    memory = ctypes.create_string_buffer(size)  # zero, as after a reset
    found: list[list[np.ndarray]] = [[] for _ in one.results]
    for row in zip(*given, strict=True):
        inputs = [np.ascontiguousarray(x, kind) for x, array in zip(row, one.given, strict=True) if array.width]
        outputs = [np.zeros(array.width, kind) for array in one.results]
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (*inputs, *outputs)]
        function(*([memory] if one.memory else []), *pointers)
        for column, output in zip(found, outputs, strict=True):
            column.append(output)
    return [np.stack(column) for column in found]


@torch.no_grad()
def rolled_out(model: neurodyn.Dynamics, name: str, dtype: torch.dtype, size: float) -> tuple[Rows, Rows]:
    """Return states and controls of a roll-out, and the states after them."""
    state, generator = reset_states(robots.load(name), 1, torch.Generator().manual_seed(0)), np.random.default_rng(0)
    state = State(state.q.to(dtype), state.qd.to(dtype))
    carry, rows = model.begin(state), []
    for _ in range(ROWS):
        torque = torch.as_tensor(generator.normal(size=(1, model.spec.nu)) * size).to(dtype)
        carry, step = model.step(carry, state, Control(torque=torque))
        rows.append((state.q[0], state.qd[0], torque[0], step.state.q[0], step.state.qd[0]))
        state = step.state
    columns = tuple(torch.stack(column).numpy() for column in zip(*rows, strict=True))
    return columns[:3], columns[3:]


def ant_run_policy() -> tuple[CUnit, Rows, Rows, float]:
    config, network = load_policy("pretrained-policy:ant-run")
    torch.manual_seed(0)
    seen = network.mean + network.deviation * torch.randn(ROWS, len(config.observations))
    action = network(seen)
    scaled = action * torch.tensor(config.action_scale)
    return code_unit("pretrained-policy:ant-run"), (seen.numpy(),), (action.numpy(), scaled.numpy()), 1e-5


def hybrid_ant(substeps: int) -> tuple[CUnit, Rows, Rows, float]:
    model = declared_hybrid("ant", substeps=substeps)
    return (hybrid_unit(model), *rolled_out(model, "ant", torch.float64, 20.0), 1e-6)


def cartpole() -> tuple[CUnit, Rows, Rows, float]:
    model = neurodyn.load("pretrained:cartpole")
    return (code_unit("pretrained:cartpole"), *rolled_out(model, "cartpole", torch.float32, 1.0), 1e-4)


def cartpole_transformer() -> tuple[CUnit, Rows, Rows, float]:
    """The encoding of pretrained:cartpole, an MLP, around the network of `train-small-transformer`."""
    shipped = neurodyn.load("pretrained:cartpole")
    assert isinstance(shipped, NeuralDynamics)
    torch.manual_seed(0)
    config = NetConfig(kind="transformer", width=64, depth=2, heads=4, window=10, head=64)
    predictor = build_predictor(config, shipped.encoding.inputs, shipped.encoding.outputs)
    predictor.normaliser.load_state_dict(shipped.predictor.normaliser.state_dict())
    predictor.denormaliser.std *= 0.01
    torch.nn.init.normal_(predictor.net.output_layer.weight)
    model = NeuralDynamics(shipped.encoding, predictor).requires_grad_(False)
    return (neural_unit(model), *rolled_out(model, "cartpole", torch.float32, 1.0), 1e-4)


CASES: dict[str, Callable[[], tuple[CUnit, Rows, Rows, float]]] = {
    "ant_run_policy": ant_run_policy, "hybrid_ant_4": lambda: hybrid_ant(4), "hybrid_ant_16": lambda: hybrid_ant(16),
    "cartpole_mlp": cartpole, "cartpole_transformer": cartpole_transformer,
}  # fmt: skip


if __name__ == "__main__":
    main()
