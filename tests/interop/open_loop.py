# SPDX-License-Identifier: Apache-2.0
"""Open loops of an exported MJCF in plain MuJoCo, with the callback beside it, and of the model that it was made of."""

import runpy
from pathlib import Path

import mujoco
import numpy as np
import torch
from msgspec import structs
from scipy.spatial.transform import Rotation

from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.dynamics import HybridDynamics, State
from tests.interop.runs import scalar_first


def with_networks(model: HybridDynamics, *networks: Augmentation, size: float = 0.3) -> HybridDynamics:
    """Return a model with networks of random weights."""
    config = structs.replace(model.config, blueprint=Blueprint(augmentations=networks))
    made = HybridDynamics(
        model.spec, model.mechanism, config, model.physical.specs, model.fingerprint, model.scene,
        declaration=model.declaration,
    )  # fmt: skip
    draw = torch.randn(made.weights.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        made.physical.raw.copy_(model.physical.raw)
        made.weights.copy_(size * draw)
    return made.requires_grad_(False).eval()


def mujoco_open_loop(file: Path, model: HybridDynamics, state: State, controls: torch.Tensor) -> np.ndarray:
    """Return positions [frames, nq] of the exported file under commands to its actuators, scalars first."""
    compiled = mujoco.MjModel.from_xml_path(str(file))
    data = mujoco.MjData(compiled)
    data.qpos[:] = scalar_first(model, state.q[0].numpy())
    data.qvel[:] = state.qd[0].numpy()
    if model.spec.floating:  # whose velocity MuJoCo has at the origin, and its spin in axes of the body
        turn = Rotation.from_quat(state.q[0, 3:7].numpy())
        spin = state.qd[0, 3:6].numpy()
        data.qvel[:3] -= np.cross(spin, turn.apply(np.array(model.mechanism.links[0].com)))
        data.qvel[3:6] = turn.inv().apply(spin)
    callback = file.with_name(f"{file.stem.replace('-', '_')}_networks.py")
    if callback.is_file():
        runpy.run_path(str(callback))["install"](compiled)
    order = [compiled.actuator(name).id for name in model.spec.controls]
    try:
        path = []
        for command in controls[0].numpy():
            data.ctrl[order] = command / compiled.actuator_gear[order, 0]
            for _ in range(model.config.substeps):
                mujoco.mj_step(compiled, data)
            path.append(data.qpos.copy())
    finally:
        mujoco.set_mjcb_control(None)
    return np.array(path)


def open_loop_error(file: Path, model: HybridDynamics, state: State, controls: torch.Tensor) -> tuple[float, float]:
    """Return the largest difference in position, and the largest way of the model [rad or m]."""
    ours = scalar_first(model, model.rollout(state, controls).q[0, 1:].numpy())
    theirs = mujoco_open_loop(file, model, state, controls)
    return float(np.abs(ours - theirs).max()), float(np.abs(ours - ours[0]).max())
