# SPDX-License-Identifier: Apache-2.0
"""Exported policies of sensors act like torch on the readings of whole episodes, with resets, in C and in ONNX."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from neurodyn.dynamics.quantities import Quantities
from neurodyn.interop.c_code.policies import policy_unit
from neurodyn.interop.onnx import export_policy
from neurodyn.policy.artifact import ActingPolicy, load_policy, policy_config, save_policy
from neurodyn.policy.settings import NetworkSettings
from neurodyn.tasks import load
from neurodyn.tasks.sensing import GRAVITY, GYROSCOPE
from tests.interop.c_programs import compiled

STEPS = 1000
NETWORKS = [{"history": 5}, {"recurrent": "gru", "memory": 12}, {"history": 3, "with_actions": True}]
DRIVER = """#include <stdio.h>
#include "unit.h"
int main(void) {{
  unit_state state; double x; double again;
  unit_reset(&state);
  {declared} unit_real observation[{observations}], action[{actions}], scaled[{actions}];
  while (fread(&again, sizeof again, 1, stdin) == 1) {{
    if (again > 0.5) unit_reset(&state);
    {read}
    unit_observe(&state, {passed}, observation);
    unit_act(&state, observation, action, scaled);
    for (int i = 0; i < {actions}; ++i) {{ x = action[i]; fwrite(&x, sizeof x, 1, stdout); }}
  }}
  return 0;
}}
"""


def saved(folder: Path, task: str, **network: object) -> Path:
    torch.manual_seed(2)
    config = policy_config(load(task, "sensors"), NetworkSettings(hidden=(24, 16), **network))
    policy = config.build()
    with torch.no_grad():
        policy.mean.uniform_(-0.2, 0.2)
        policy.deviation.uniform_(0.5, 2.0)
        policy.layers[-1].weight *= 4.0  # pyright: ignore[reportOperatorIssue, reportArgumentType]
    save_policy(folder, config, policy)
    return folder


def episodes(task, given):
    """Return readings by name, shape [steps, width], where episodes begin, and the actions of torch for them."""
    generator = torch.Generator().manual_seed(5)
    values = {
        array.name: 0.5 * torch.randn(STEPS, array.width, generator=generator, dtype=torch.float64) for array in given
    }
    begins = torch.rand(STEPS, generator=generator) < 0.02
    begins[0] = True
    return values, begins


@torch.no_grad()
def actions_of(task, network, values, begins):
    act, rows, seen = ActingPolicy(network.double()), [], []
    generator = torch.Generator().manual_seed(0)
    memory = None
    for step in range(STEPS):
        known = {name: value[step : step + 1] for name, value in values.items() if name != "command"}
        now = Quantities("test", {}, known=known)
        if bool(begins[step]):
            act.restart(torch.ones(1, dtype=torch.bool))
            memory = task.begin(now, generator)
        assert memory is not None
        command = values["command"][step : step + 1] if "command" in values else memory.command
        memory = type(memory)(**{**vars(memory), "command": command})
        seen.append(task.observe(now, memory))
        rows.append(act(seen[-1]))
        memory = type(memory)(**{**vars(memory), "action": rows[-1]})
    return torch.cat(rows).numpy(), torch.cat(seen).numpy()


@pytest.mark.parametrize("network", NETWORKS, ids=["history", "gru", "actions"])
@pytest.mark.parametrize("name", ["ant-run", "anymal-velocity", "planar-run"])
def test_c_acts_on_readings_as_torch_does(tmp_path, name, network):
    folder = saved(tmp_path / "policy", name, **network)
    config, torch_policy = load_policy(folder)
    task, unit = load(name, "sensors"), policy_unit(str(folder))
    observe = next(one for one in unit.functions if one.name == "observe")
    assert {GYROSCOPE, GRAVITY} <= {array.name for array in observe.given}
    assert not any(array.name.endswith("linear_velocity") for array in observe.given)
    values, begins = episodes(task, observe.given)
    wanted, _ = actions_of(task, torch_policy, values, begins)
    driver = DRIVER.format(
        declared=" ".join(f"unit_real {array.name}[{array.width}];" for array in observe.given),
        read=" ".join(
            f"for (int i = 0; i < {array.width}; ++i) {{ if (fread(&x, sizeof x, 1, stdin) != 1) return 1; "
            f"{array.name}[i] = (unit_real)x; }}"
            for array in observe.given
        ),
        passed=", ".join(array.name for array in observe.given),
        observations=len(config.observations), actions=len(config.actions),
    )  # fmt: skip
    program = compiled(unit, driver, tmp_path)
    rows = np.concatenate([begins[:, None].double(), *(values[array.name] for array in observe.given)], 1)
    found = subprocess.run([program], input=rows.tobytes(), capture_output=True, check=True)
    acted = np.frombuffer(found.stdout).reshape(STEPS, -1)
    np.testing.assert_allclose(acted, wanted, atol=1e-6)
    assert wanted.std() > 0.05


@pytest.mark.parametrize("network", NETWORKS, ids=["history", "gru", "actions"])
def test_onnx_acts_on_readings_as_torch_does(tmp_path, network):
    runtime = pytest.importorskip("onnxruntime")
    folder = saved(tmp_path / "policy", "ant-run", **network)
    assert export_policy(folder, tmp_path / "policy.onnx") < 1e-4
    config, policy = load_policy(folder)
    task = load("ant-run", "sensors")
    given = next(one for one in policy_unit(str(folder)).functions if one.name == "observe").given
    values, begins = episodes(task, given)
    wanted, seen = actions_of(task, policy, values, begins)
    session = runtime.InferenceSession(tmp_path / "policy.onnx")
    assert session.get_modelmeta().custom_metadata_map["observe"].strip('"') == "sensors"
    history, width = config.network.history, len(config.observations)
    frames, last = np.zeros((1, 0)), np.zeros((1, len(config.actions)))
    memory = {one.name: np.zeros((1, one.shape[1]), np.float32) for one in session.get_inputs()[1:]}
    for step in range(STEPS):
        if begins[step]:
            last[:] = 0.0
            memory = {name: np.zeros_like(value) for name, value in memory.items()}
        frame = (
            np.concatenate([seen[step : step + 1], last], 1) if config.network.with_actions else seen[step : step + 1]
        )
        assert frame.shape[1] >= width
        frames = (
            np.tile(frame, (1, history)) if begins[step] else np.concatenate([frame, frames[:, : -frame.shape[1]]], 1)
        )
        if history == 1:
            frames = frame
        action, _, *after = session.run(None, {"observation": frames.astype(np.float32), **memory})
        memory = dict(zip(memory, after, strict=True))
        last = action
        np.testing.assert_allclose(action[0], wanted[step], atol=2e-5)
