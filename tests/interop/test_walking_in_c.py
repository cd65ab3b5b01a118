# SPDX-License-Identifier: Apache-2.0
"""The exported C of a walking policy in the loop with plain MuJoCo, at the policy's rate."""

import math
import subprocess
import time

import mujoco
import numpy as np
import pytest
import torch

from neurodyn.interop.c_code.policies import policy_unit
from neurodyn.policy.artifact import ActingPolicy, load_policy, policy_config, save_policy
from neurodyn.policy.settings import NetworkSettings
from neurodyn.tasks.velocity import Velocity
from tests.interop.c_programs import compiled
from tests.tasks.test_velocity import JOINTS, declare_quadruped

FRAMES = 100
ORDER = ("gyroscope", "gravity", "joint_position", "joint_velocity", "command")
DRIVER = """#include <stdio.h>
#include "unit.h"
int main(void) {{
  unit_state state;
  {declared} unit_real observation[{observations}], action[8], scaled[8], control[8];
  unit_reset(&state);
  while (1) {{
    {read}
    unit_observe(&state, {observe}, observation);
    unit_act(&state, observation, action, scaled);
    unit_control({control}action, control);
    for (int i = 0; i < 8; ++i) {{ double x = control[i]; fwrite(&x, sizeof x, 1, stdout); }}
    fflush(stdout);
  }}
}}
"""


def readings(model: mujoco.MjModel, data: mujoco.MjData, phase: float) -> dict[str, np.ndarray]:
    """What the robot's sensors tell, and its command."""
    down = np.zeros(3)
    mujoco.mju_rotVecQuat(down, np.array([0.0, 0.0, -1.0]), data.qpos[3:7] * [1, -1, -1, -1])
    joints = [model.joint(name) for name in JOINTS]
    return {
        "gyroscope": data.qvel[3:6].copy(), "gravity": down, "command": np.array([0.5, 0.1, 0.3, 0.0, phase]),
        "joint_position": np.array([data.qpos[joint.qposadr[0]] for joint in joints]),
        "joint_velocity": np.array([data.qvel[joint.dofadr[0]] for joint in joints]),
    }  # fmt: skip


def walk(model: mujoco.MjModel, task: Velocity, controller) -> np.ndarray:
    """Let a controller of readings move the robot; return its path, shape [frames, nq]."""
    data, path = mujoco.MjData(model), []
    data.qpos[2] = task.legs.height + 0.01
    for joint, pose in zip(JOINTS, task.joint_nominal(torch.zeros(1)).tolist(), strict=True):
        data.qpos[model.joint(joint).qposadr[0]] = pose
    mujoco.mj_forward(model, data)
    for frame in range(FRAMES):
        data.ctrl[:] = controller(readings(model, data, (task.stride * frame) % (2 * math.pi)))
        mujoco.mj_step(model, data, round(task.declaration().dt / model.opt.timestep))
        path.append(data.qpos.copy())
    return np.array(path)


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    folder = tmp_path_factory.mktemp("robot")
    declare_quadruped(folder)
    return folder


def test_the_c_of_a_walker_moves_the_robot_in_mujoco_as_torch_does_within_its_frames(robot, tmp_path):
    torch.manual_seed(1)
    task = Velocity(str(robot / "dog")).observing("sensors")
    config = policy_config(task, NetworkSettings(hidden=(32, 16), history=3))
    save_policy(tmp_path / "policy", config, config.build())
    unit = policy_unit(str(tmp_path / "policy"))
    given = {one.name: list(one.given) for one in unit.functions if one.name in ("observe", "control")}
    assert {array.name for array in given["observe"]} == set(ORDER)
    arrays = sorted(given["observe"], key=lambda array: ORDER.index(array.name))
    driver = DRIVER.format(
        declared=" ".join(f"unit_real {array.name}[{array.width}];" for array in arrays),
        read=" ".join(
            f"for (int i = 0; i < {array.width}; ++i) {{ double x; if (fread(&x, sizeof x, 1, stdin) != 1) return 0; "
            f"{array.name}[i] = (unit_real)x; }}" for array in arrays
        ),
        observe=", ".join(array.name for array in given["observe"]),
        control="".join(f"{array.name}, " for array in given["control"] if array.name != "action"),
        observations=len(config.observations),
    )  # fmt: skip
    program = compiled(unit, driver, tmp_path / "c")
    act = ActingPolicy(load_policy(tmp_path / "policy")[1].double())
    act.restart(torch.ones(1, dtype=torch.bool))
    model, pose = mujoco.MjModel.from_xml_path(str(robot / "dog.xml")), task.joint_nominal(torch.zeros(1)).double()
    last = torch.zeros(1, 8, dtype=torch.float64)

    @torch.no_grad()
    def by_torch(now: dict[str, np.ndarray]) -> np.ndarray:
        nonlocal last
        phase, given = now["command"][4], {name: torch.from_numpy(value) for name, value in now.items()}
        seen = {
            "gyroscope": given["gyroscope"], "gravity": given["gravity"], "command": given["command"][:3],
            "joint_position": given["joint_position"] - pose, "joint_velocity": given["joint_velocity"],
            "last_action": last[0], "clock": torch.tensor([math.sin(phase), math.cos(phase)], dtype=torch.float64),
        }  # fmt: skip
        last = act(torch.cat([seen[term.name] for term in task.readings])[None])
        return (task.nominal(last) + last * torch.tensor(task.action_scale, dtype=torch.float64))[0].numpy()

    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def by_c(now: dict[str, np.ndarray]) -> np.ndarray:
            process.stdin.write(np.concatenate([now[name] for name in ORDER]).tobytes())
            process.stdin.flush()
            return np.frombuffer(process.stdout.read(64))

        wanted, begin = walk(model, task, by_torch), time.process_time()
        found = walk(model, task, by_c)
        process.stdin.close()
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert np.abs(wanted[-1] - wanted[0]).max() > 1e-3
    assert time.process_time() - begin < FRAMES * task.declaration().dt
