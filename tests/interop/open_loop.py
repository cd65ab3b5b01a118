# SPDX-License-Identifier: Apache-2.0
"""Open loops of an exported MJCF in plain MuJoCo, with the plugin beside it, and of the model that it was made of."""

import shutil
import subprocess
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest
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


def mujoco_start(model: HybridDynamics, state: State) -> tuple[np.ndarray, np.ndarray]:
    """Return MuJoCo's positions and velocities."""
    qvel = state.qd[0].numpy().copy()
    if model.spec.floating:  # whose velocity MuJoCo has at the origin, and its spin in axes of the body
        turn = Rotation.from_quat(state.q[0, 3:7].numpy())
        spin = state.qd[0, 3:6].numpy()
        qvel[:3] -= np.cross(spin, turn.apply(np.array(model.mechanism.links[0].com)))
        qvel[3:6] = turn.inv().apply(spin)
    return scalar_first(model, state.q[0].numpy()), qvel


def mujoco_open_loop(file: Path, model: HybridDynamics, state: State, controls: torch.Tensor) -> np.ndarray:
    """Return positions [frames, nq] of the exported file under commands to its actuators, scalars first."""
    compiled = mujoco.MjModel.from_xml_path(str(file))
    data = mujoco.MjData(compiled)
    data.qpos[:], data.qvel[:] = mujoco_start(model, state)
    order = [compiled.actuator(name).id for name in model.spec.controls]
    path = []
    for command in controls[0].numpy():
        data.ctrl[order] = command / compiled.actuator_gear[order, 0]
        for _ in range(model.config.substeps):
            mujoco.mj_step(compiled, data)
        path.append(data.qpos.copy())
    return np.array(path)


PLUGIN_LOOP = """
import sys
import mujoco, numpy as np
library, file, given, out, steps = sys.argv[1:]
mujoco.mj_loadPluginLibrary(library)
compiled = mujoco.MjModel.from_xml_path(file)
data = mujoco.MjData(compiled)
arrays = np.load(given)
def run():
    data.qpos[:], data.qvel[:] = arrays["qpos"], arrays["qvel"]
    path = []
    for command in arrays["ctrl"]:
        data.ctrl[:] = command
        for _ in range(int(steps)):
            mujoco.mj_step(compiled, data)
            mujoco.mj_forward(compiled, data)  # changes nothing
        path.append(data.qpos.copy())
    return np.array(path)
first = run()
copy = mujoco.MjData(compiled)
mujoco.mj_copyData(copy, compiled, data)
for one in (data, copy):
    mujoco.mj_step(compiled, one, nstep=20)
assert np.array_equal(data.qpos, copy.qpos)
mujoco.mj_resetData(compiled, data)
assert np.array_equal(run(), first)
np.save(out, first)
"""
"""A loop in a process of its own, which loads the plugin, goes on with a copy, and again after a reset."""


def build_plugin(folder: Path, name: str) -> Path:
    """Compile NAME_networks.c as its comment says."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    place, library = Path(mujoco.__path__[0]), folder / f"lib{name}.so"
    version = next(place.glob("libmujoco.so.*")).name
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{place / 'include'}"]
    source = folder / f"{name}_networks.c"
    links = ["-o", library, f"-L{place}", f"-l:{version}", "-lm"]
    made = subprocess.run(["gcc", *flags, source, *links], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return library


def plugin_path(file: Path, qpos: np.ndarray, qvel: np.ndarray, ctrl: np.ndarray, steps: int) -> np.ndarray:
    """Return positions [frames, nq] of the exported ROBOT.xml under its plugin, after `steps` with each row of ctrl."""
    library = build_plugin(file.parent, file.stem.replace("-", "_"))
    given, out = file.with_name("given.npz"), file.with_name("path.npy")
    np.savez(given, qpos=qpos, qvel=qvel, ctrl=ctrl)
    plugin = file.with_name(f"{file.stem}_plugin.xml")
    call = [sys.executable, "-c", PLUGIN_LOOP, library, plugin, given, out, str(steps)]
    ran = subprocess.run(call, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return np.load(out)


def open_loop_error(
    file: Path, model: HybridDynamics, state: State, controls: torch.Tensor, *, plugin: bool = False
) -> tuple[float, float]:
    """Return the largest difference in position, and the largest way of the model [rad or m]."""
    ours = scalar_first(model, model.rollout(state, controls).q[0, 1:].numpy())
    if plugin:
        compiled = mujoco.MjModel.from_xml_path(str(file))
        order = [compiled.actuator(name).id for name in model.spec.controls]
        ctrl = np.zeros((controls.shape[1], compiled.nu))
        ctrl[:, order] = controls[0].numpy() / compiled.actuator_gear[order, 0]
        theirs = plugin_path(file, *mujoco_start(model, state), ctrl, model.config.substeps)
    else:
        theirs = mujoco_open_loop(file, model, state, controls)
    return float(np.abs(ours - theirs).max()), float(np.abs(ours - ours[0]).max())
