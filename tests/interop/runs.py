# SPDX-License-Identifier: Apache-2.0
"""Runs to export, and what their exports are compared with."""

import itertools
import json
from pathlib import Path

import mujoco
import numpy as np
import torch
import yaml
from safetensors.torch import save_file
from scipy.spatial.transform import Rotation

from neurodyn.core.config import to_dict
from neurodyn.core.description.drive_network import DriveNetwork
from neurodyn.dynamics import HybridDynamics, State, declared_hybrid
from neurodyn.dynamics.artifact import save
from neurodyn.interop.identified import shapes


def identified_run(folder: Path, robot: str, *parameters: str, contact: str | None = None) -> HybridDynamics:
    """Write a hybrid model whose free quantities have other values than declared."""
    model = declared_hybrid(robot, parameters=parameters, contact=contact)
    save(folder, model)
    return model


def network_run(folder: Path, joints=("shoulder", "elbow"), **fields) -> DriveNetwork:
    """Write an actuator network with random weights."""
    config = DriveNetwork(
        **{
            "network": "mlp", "joints": joints, "signals": ("position_error", "velocity"), "scales": (2.0, -0.5),
            "effort_scale": 3.0, "history": (0.0, 0.01, 0.03), "period": 0.01, "hidden": (5, 4), **fields,
        }
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    tensors = {name: 0.6 * torch.randn(shape, generator=generator) for name, shape in shapes(config).items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "actuator_network.json").write_text(json.dumps(to_dict(config)))
    save_file(tensors, folder / "actuator_network.safetensors")
    return config


def network_torques(config: DriveNetwork, folder: Path, errors: np.ndarray, velocities: np.ndarray) -> np.ndarray:
    """Return what a network says, shape [frames, joints], written anew from its description; history begins at zero."""
    from safetensors.numpy import load_file

    w = load_file(folder / "actuator_network.safetensors")
    signals = {"position_error": errors, "velocity": velocities}
    scaled = [signals[name] * scale for name, scale in zip(config.signals, config.scales, strict=True)]
    frames, joints = errors.shape
    torques, hidden = np.zeros((frames, joints)), np.zeros((joints, config.hidden[0]))
    for t in range(frames):
        x = np.stack(
            [(one[t - k] if t >= k else np.zeros(joints)) for one, k in itertools.product(scaled, config.steps)], 1
        )
        if config.network == "gru":
            i = x @ w["gru.weight_ih_l0"].T + w["gru.bias_ih_l0"]
            h = hidden @ w["gru.weight_hh_l0"].T + w["gru.bias_hh_l0"]
            (ri, zi, ni), (rh, zh, nh) = np.split(i, 3, 1), np.split(h, 3, 1)
            r, z = 1 / (1 + np.exp(-ri - rh)), 1 / (1 + np.exp(-zi - zh))
            hidden = (1 - z) * np.tanh(ni + r * nh) + z * hidden
            y = hidden @ w["head.weight"].T + w["head.bias"]
        else:
            y = x
            for layer in range(len(config.hidden) + 1):
                y = y @ w[f"layers.{layer}.weight"].T + w[f"layers.{layer}.bias"]
                if layer < len(config.hidden):
                    y = y / (1 + np.abs(y)) if config.activation == "softsign" else np.tanh(y)
        torques[t] = config.effort_scale * y[:, 0]
    return torques


def random_start(model: HybridDynamics, frames: int, size: float = 0.25) -> tuple[State, torch.Tensor]:
    """Return a state of a robot with a fixed base, and torques for so many frames."""
    generator = torch.Generator().manual_seed(1)
    spec, efforts = model.spec, torch.tensor(list(model.robot.actuated.values()), dtype=torch.float64)
    q = torch.full((1, spec.nq), 0.3, dtype=torch.float64)
    qd = torch.full((1, spec.nv), 0.5, dtype=torch.float64)
    draw = torch.rand(1, frames, spec.nu, generator=generator, dtype=torch.float64)
    return State(q=q, qd=qd), size * (2.0 * draw - 1.0) * efforts


def mujoco_path(compiled: mujoco.MjModel, model: HybridDynamics, state: State, torques: torch.Tensor) -> np.ndarray:
    """Return positions [frames, nq] that MuJoCo computes with the model's steps and torques; scalars first."""
    compiled.opt.timestep = model.spec.dt / model.config.substeps
    if not model.contacts_of_simulator:  # which then takes damping at the beginning of a step
        compiled.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_EULERDAMP
    data = mujoco.MjData(compiled)
    data.qpos[:] = scalar_first(model, state.q[0].numpy())
    data.qvel[:] = state.qd[0].numpy()
    if model.spec.floating:  # whose angular velocity MuJoCo has in axes of the body
        data.qvel[3:6] = Rotation.from_quat(state.q[0, 3:7].numpy()).inv().apply(state.qd[0, 3:6].numpy())
    path = []
    for torque in torques[0].numpy():
        data.qfrc_applied[list(model.spec.control_dofs)] = torque
        for _ in range(model.config.substeps):
            mujoco.mj_step(compiled, data)
        path.append(data.qpos.copy())
    return np.array(path)


ARM = """<!-- The licence of the arm. -->
<mujoco model="arm">
  <compiler angle="degree" inertiafromgeom="true"/>
  <default><joint damping="0.2" range="-170 170"/><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <body name="upper" pos="0 0 1" euler="0 20 0">
      <!-- Two joints of one body. -->
      <joint name="pan" axis="0 0 1"/>
      <joint name="lift" axis="0 1 0" pos="0 0 .05"/>
      <geom name="rod" type="capsule" fromto="0 0 0 .4 0 0" size=".03"/>
      <body name="welded" pos=".2 .1 0"><geom name="lump" size=".05"/></body>
      <body name="fore" pos=".4 0 0">
        <joint name="elbow" axis="0 1 0"/>
        <geom name="hand" type="box" size=".1 .02 .03" pos=".1 0 0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor name="own" joint="elbow" gear="7"/></actuator>
</mujoco>
"""


def write_arm(folder: Path, **more) -> str:
    """Write an arm whose asset is an MJCF, without contacts, and return the path of its declaration."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "arm.xml").write_text(ARM)
    joints = [{"name": name, "kind": "revolute", "lower": -2.5, "upper": 2.5} for name in ("pan", "lift", "elbow")]
    declared = {
        "name": "arm", "asset": "arm.xml", "dt": 0.01, "joints": joints, "simulator": {"solver": "featherstone"},
        "actuated": {"pan": 5.0, "lift": 20.0, "elbow": 5.0}, "frames": 20, "evaluation_horizon": 10,
        "sampling": {"qd": {"*": [-1.0, 1.0]}}, **more,
    }  # fmt: skip
    (folder / "robot.yaml").write_text(yaml.safe_dump(declared, sort_keys=False))
    return str(folder)


def scalar_first(model: HybridDynamics, q: np.ndarray) -> np.ndarray:
    """Return positions with the quaternion of a free joint as MuJoCo has it."""
    if not model.spec.floating:
        return q
    order = [0, 1, 2, 6, 3, 4, 5, *range(7, q.shape[-1])]
    return q[..., order]
