# SPDX-License-Identifier: Apache-2.0
"""A frame of neural models in ONNX Runtime against the model's own, on one thread.

Each file is compared with its model in one frame from random states before timing.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch

import neurodyn
from _common import compare, require, result_parser, single_thread, write_result
from neurodyn.evaluate import Scenario
from neurodyn.interop import export_model


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--models", nargs="+", default=["pretrained:cartpole", "pretrained:pendulum", "pretrained:ant"])
    parser.add_argument("--worlds", nargs="+", type=int, default=[1, 256])
    arguments = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for run in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            for worlds in arguments.worlds:
                times, error = measured(run, worlds, Path(folder) / "model.onnx")
                name = Path(run.partition(":")[2] or run).name.replace("-", "_")
                figures[f"{name}_onnx_us_b{worlds}"] = 1e6 * times["onnx"]
                figures[f"{name}_step_us_b{worlds}"] = 1e6 * times["step"]
                figures[f"{name}_relative_error_b{worlds}"] = error
                ratios[f"{name}_onnx_vs_step_b{worlds}"] = times["onnx"] / times["step"]
    write_result(arguments.json, "onnx_frame", figures, ratios)


def measured(run: str, worlds: int, path: Path) -> tuple[dict[str, float], float]:
    """Return CPU seconds of a frame in ONNX Runtime and of a step, and their difference over the largest entry."""
    import onnxruntime

    model = neurodyn.load(run)
    if not path.exists():
        export_model(model, path)
    assert model.robot is not None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    state, _ = Scenario().begin(model.robot, worlds, np.random.default_rng(0))
    torque = torch.randn(worlds, model.spec.nu)
    control = neurodyn.Control(torque=torque)
    given = {"q": state.q.numpy(), "qd": state.qd.numpy(), "control": torque.numpy()}
    types = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
    for value in session.get_inputs():
        if value.name not in given:
            given[value.name] = np.zeros((worlds, *value.shape[1:]), types[value.type])
    carry = model.begin(state)
    _, step = model.step_(carry, state, control)
    found = session.run(None, given)[:2]
    pairs = zip(found, (step.state.q.numpy(), step.state.qd.numpy()), strict=True)
    error = max(float(np.abs(a - b).max() / max(1.0, np.abs(b).max())) for a, b in pairs)
    require(error < 1e-5, f"a frame of {run} in ONNX Runtime is {error:.1e} from the model's")
    times = compare({"onnx": lambda: session.run(None, given), "step": lambda: model.step_(carry, state, control)})
    return times, error


if __name__ == "__main__":
    main()
