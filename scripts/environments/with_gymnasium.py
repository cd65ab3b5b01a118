# SPDX-License-Identifier: Apache-2.0
"""Beside Gymnasium and stable-baselines3, without Newton: an own robot, its environment, and a training in it."""

import subprocess
import sys

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env
from stable_baselines3 import PPO

from neurodyn.cli.main import run

POLE = """<mujoco><compiler angle="radian"/><option timestep=".01"/><worldbody>
  <body name="pole" pos="0 0 1"><joint name="hinge" axis="0 1 0" damping=".05" range="-3 3" limited="true"/>
    <geom name="rod" type="capsule" fromto="0 0 0 0 0 -.5" size=".02" mass=".5"/></body>
</worldbody><actuator><motor name="motor" joint="hinge" ctrlrange="-2 2" gear="1"/></actuator></mujoco>
"""


def own_robot_is_declared_simulated_and_compiled() -> None:
    with open("pole.xml", "w", encoding="utf-8") as file:
        file.write(POLE)
    assert run(["init", "pole.xml", "--out", "pole"]) == 0
    assert run(["generate", "./pole", "--transitions", "2000", "--out", "data.h5"]) == 0
    assert run(["hybrid", "./pole", "--out", "hybrid"]) == 0
    assert run(["evaluate", "hybrid", "--horizon", "20", "--rollouts", "16"]) == 0


def policies_learn_in_a_shipped_model() -> None:
    env = gymnasium.make("neurodyn:neurodyn/cartpole-swingup-v0", dynamics="pretrained:cartpole")
    check_env(env.unwrapped, skip_render_check=True)
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=32, device="cpu", seed=0).learn(128)
    action, _ = model.predict(env.reset(seed=1)[0])
    assert np.isfinite(action).all()


def what_needs_newton_names_its_extra() -> None:
    words = ["-m", "neurodyn", "generate", "cartpole", "--transitions", "9", "--out", "no.h5"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, "pip install 'neurodyn[newton]'" in done.stderr) == (2, True), done


if __name__ == "__main__":
    own_robot_is_declared_simulated_and_compiled()
    policies_learn_in_a_shipped_model()
    what_needs_newton_names_its_extra()
