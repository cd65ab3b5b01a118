# SPDX-License-Identifier: Apache-2.0
"""Beside mjlab: a velocity task of its Go1 with our physics, and our adaptation to a log of it with a payload."""

from pathlib import Path

import mujoco
import numpy as np
import torch
import warp as wp
from mjlab.envs import ManagerBasedRlEnv
from mjlab.tasks.registry import load_env_cfg
from walks import walk

import neurodyn
from neurodyn.core.artifacts import read_json
from neurodyn.interop.mjlab import declare_scene, use_dynamics

WORLDS, FRAMES, PAYLOAD = 4, 10, 2.5


def environment() -> ManagerBasedRlEnv:
    cfg = load_env_cfg("Mjlab-Velocity-Flat-Unitree-Go1")
    cfg.scene.num_envs, cfg.seed = WORLDS, 1
    env = ManagerBasedRlEnv(cfg=cfg, device="cpu")
    torch.manual_seed(0)
    env.reset(seed=3)
    return env


def frames_of(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Return positions, rewards and observations of some frames, shape [frames, worlds, numbers]."""
    torch.manual_seed(0)
    frames, joints = [], env.action_manager.total_action_dim
    for frame in range(FRAMES):
        action = 0.3 * torch.sin(torch.arange(joints) + 0.4 * frame).expand(WORLDS, joints)
        seen, reward, *_ = env.step(action)
        frames.append(torch.cat([wp.to_torch(env.sim.wp_data.qpos), reward[:, None], seen["actor"][:, :9]], 1).clone())
    return torch.stack(frames)


def task_moves_as_its_own() -> None:
    """Run a task in its physics and in ours, with its randomisation."""
    own, env = frames_of(environment()), environment()
    declare_scene(env.scene, "own", simulation=env.sim)
    physics = use_dynamics(env, neurodyn.dynamics.declared_hybrid("own", substeps=1))
    assert physics.left_out == (), physics.left_out
    assert any(name.endswith(".com.x") for name in physics.quantities)
    torch.testing.assert_close(frames_of(env), own, atol=1e-4, rtol=1e-3)


def write_log(model: mujoco.MjModel) -> None:
    """Write the states of a loaded robot that moves its legs as it stands."""
    (trunk,) = (body for body in range(model.nbody) if model.body(body).name.endswith("trunk"))
    model.body_mass[trunk] += PAYLOAD
    mujoco.mj_setConst(model, mujoco.MjData(model))
    random, data = np.random.default_rng(0), mujoco.MjData(model)
    places, episodes = model.jnt_qposadr[model.actuator_trnid[:, 0]], []
    home = model.key_qpos[0] if model.nkey else model.qpos0
    for _ in range(6):
        mujoco.mj_resetData(model, data)
        data.qpos[:] = home
        phase, rate, size = (random.uniform(*ends, model.nu) for ends in ((0, 6), (5, 15), (0.05, 0.15)))
        rows = []
        for step in range(400):
            data.ctrl[:] = home[places] + size * np.sin(phase + rate * step * model.opt.timestep)
            rows.append([data.qpos.copy(), data.qvel.copy(), data.ctrl.copy()])
            mujoco.mj_step(model, data)
        episodes.append([np.array(column) for column in zip(*rows, strict=True)])
    qpos, qvel, ctrl = (np.array(column) for column in zip(*episodes, strict=True))
    np.savez("log.npz", qpos=qpos, qvel=qvel, ctrl=ctrl, timestep=model.opt.timestep)


def task_trains_in_the_adapted_model() -> None:
    """Follow the walk of the page; the log is doubted, because legs that carry a robot lag behind their targets."""
    followed = walk("mjlab", 'quantities: ["*mass", "*.kp"]', accepted=(0, 2))
    names = next(followed)
    write_log(names["env"].sim.mj_model)
    *_, names = followed
    assert read_json(Path("result.json"))["chosen"] == "identified"
    names["env"].reset()
    seen, *_ = names["env"].step(torch.zeros(WORLDS, names["env"].action_manager.total_action_dim))
    assert torch.isfinite(seen["actor"]).all()
    assert names["physics"].faults == []


if __name__ == "__main__":
    wp.config.quiet = True
    assert mujoco.__version__.startswith("3.11."), mujoco.__version__
    task_moves_as_its_own()
    task_trains_in_the_adapted_model()
