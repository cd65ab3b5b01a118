# SPDX-License-Identifier: Apache-2.0
"""Kernel launches and host copies of a step on a GPU, counted without one.

    python benchmarks/launches.py --json benchmarks/results/launches.json

A launch costs 5 to 10 microseconds of host time for any number of worlds. Steps of environments include the whole
frame: prediction, reward, ends of episodes, and starts of new ones.
"""

import torch

import neurodyn
from _common import require, result_parser, write_result
from _launches import EmptyWindows, LaunchCount, count_launches
from neurodyn.control import SampledStarts
from neurodyn.dynamics import Control, State, WorldModel
from neurodyn.nets import EnsembleConfig
from neurodyn.policy import PolicyEnvironment
from neurodyn.policy.episodes.logs import row_layout
from neurodyn.tasks import load

META = torch.device("meta")
WORLDS = 64
ENVIRONMENTS = {"ant": "ant-run", "anymal-c": "anymal-forward", "cartpole": "cartpole-swingup"}
BEFORE = {"ant": 348, "imagination": 334}
"""Launches of a step before launches were counted."""


def step(name: str) -> LaunchCount:
    """Return the launches of a neural model's step."""
    dynamics = neurodyn.load(f"pretrained:{name}").to("meta")
    spec = dynamics.spec
    state = State(torch.zeros(WORLDS, spec.nq, device=META), torch.zeros(WORLDS, spec.nv, device=META))
    control, carry = Control(torque=torch.zeros(WORLDS, spec.nu, device=META)), dynamics.begin(state)
    carry, _ = dynamics.step_(carry, state, control)
    return count_launches(lambda: dynamics.step_(carry, state, control))


def frame(env: PolicyEnvironment) -> LaunchCount:
    """Return the launches of an environment's step."""
    actions = torch.zeros(WORLDS, env.num_actions, device=META)
    for _ in range(2):
        env.step(actions)
    return count_launches(lambda: env.step(actions))


def imagination() -> LaunchCount:
    """Return the launches of an imagination step, at the sizes of Robotic World Model."""
    task = load("anymal-velocity")
    sizes = EnsembleConfig(kind="gru", members=5, width=256, depth=2, head=128)
    model = WorldModel(row_layout(task).spec.with_context(4), sizes, terminates=True).requires_grad_(False).to("meta")
    model.fitted = torch.tensor(True)
    return frame(PolicyEnvironment(task, model, EmptyWindows(model.spec), WORLDS, penalty=1.0, noisy=True))


def main() -> None:
    """Count, and require that nothing is copied."""
    parser = result_parser(__doc__)
    found: dict[str, LaunchCount] = {}
    arguments = parser.parse_args()
    for name, task_name in ENVIRONMENTS.items():
        task = load(task_name)
        model = neurodyn.load(f"pretrained:{name}").to("meta")
        found[f"{name}_step"] = step(name)
        found[name] = frame(PolicyEnvironment(task, model, SampledStarts(task, 0, device=META), WORLDS))
    found["imagination"] = imagination()
    for name, count in found.items():
        require(not count.copies, f"{name} copies: {count.copies}")
    figures = {f"{name}_launches": float(count.launches) for name, count in found.items()}
    ratios = {f"{name}_vs_before_b{WORLDS}": found[name].launches / before for name, before in BEFORE.items()}
    write_result(arguments.json, "launches", figures, ratios)


if __name__ == "__main__":
    main()
