# SPDX-License-Identifier: Apache-2.0
"""One model of a robot for many uses: tasks, grounds and gains not named in its training data.

Policies of a robot's tasks, trained anywhere, are evaluated without noise in one model and in the simulator from the
same starts: on flat ground, on another one, and, for a robot with joint control, with other gains than in training. No
ratio of times is claimed: the figures are returns and reward errors.
"""

import torch
from torch import Tensor

from _common import result_parser, single_thread, write_result
from neurodyn.control.resolve import ANALYTIC, open_dynamics
from neurodyn.control.returns import EpisodeOutcomes
from neurodyn.control.starts import task_ground
from neurodyn.dynamics import Control
from neurodyn.dynamics.quantities import Quantities
from neurodyn.policy import load_policy
from neurodyn.policy.artifact import PolicyNetwork
from neurodyn.policy.episodes.evaluation import SEED, play, reward_errors
from neurodyn.tasks import Memory, Task, load


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--model", default="pretrained:ant", help="the model: a run, or pretrained:NAME")
    parser.add_argument("--policies", nargs="+", default=["pretrained-policy:ant-run"], help="of the robot's tasks")
    parser.add_argument("--grounds", nargs="+", default=["flat"], help="grounds of the robot")
    parser.add_argument("--gains", nargs="+", default=[], metavar="KP,KD", help="also on flat ground with these gains")
    parser.add_argument("--episodes", type=int, default=64)
    asked = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    for folder in asked.policies:
        config, policy = load_policy(folder)
        task = load(config.task)
        for ground in asked.grounds:
            found = compare(task, policy, asked.model, asked.episodes, ground)
            figures |= {f"{task.name}_{ground}_{name}": value for name, value in found.items()}
        for text in asked.gains:
            kp, kd = (float(part) for part in text.split(","))
            found = compare(with_gains(task, kp, kd), policy, asked.model, asked.episodes, "flat")
            figures |= {f"{task.name}_kp{kp:g}_kd{kd:g}_{name}": value for name, value in found.items()}
    write_result(asked.json, "one_model", figures, {})


def compare(task: Task, policy: PolicyNetwork, model: str, episodes: int, ground: str) -> dict[str, float]:
    """Return a policy's results in the simulator and in a model."""
    environment = None if ground == task.declaration().ground else task_ground(task, ground, episodes, SEED)
    found: dict[str, EpisodeOutcomes] = {}
    for name in (ANALYTIC, model):
        where = open_dynamics(task, name)
        found[name] = play(policy, task, where.dynamics, where.starts(task, SEED), episodes, environment=environment)
    (error,) = reward_errors({name: [one.returns] for name, one in found.items()})
    figures = {"reward_error": error.relative}
    for name, one in zip(("simulator", "model"), found.values(), strict=True):
        figures |= {f"{name}": float(one.returns.mean()), f"{name}_failed": float(one.failed.float().mean())}
    print(task.name, ground, {name: round(value, 3) for name, value in figures.items()}, flush=True)
    return figures


def with_gains(task: Task, kp: float, kd: float) -> Task:
    """Return a task with other gains of its joint controllers [N m/rad, N m s/rad]."""

    class Other(type(task)):
        def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
            given = super().control(action, quantities, memory)
            joints = torch.ones(1, action.shape[-1])
            return Control(target=given.target, kp=kp * joints, kd=kd * joints)

    return Other()


if __name__ == "__main__":
    main()
