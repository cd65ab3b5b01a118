# SPDX-License-Identifier: Apache-2.0
"""Planners against a trained policy: cartpole swing-up with plans in a neural model, on plants it was not made for.

Every planner acts from the same starts on the compiled plant, which is equivalent to the simulator, and on one with 20
% greater masses and inertias. Its return is compared with that of the policy there, which was trained in the same
model. Times are CPU times of a decision for one world at a time, on one thread. `--horizons` sets the lengths of plans,
and `--value POLICY` adds planners that use a trained policy's critic at the end of the plan.
"""

import itertools
from typing import Any

from _common import require, result_parser, single_thread, write_result
from neurodyn.control.planning.closed_loop import run
from neurodyn.control.planning.planner import Planner
from neurodyn.control.resolve import ResolvedDynamics, open_dynamics
from neurodyn.control.starts import SampledStarts
from neurodyn.dynamics.hybrid.declared import declared_hybrid, declared_mechanism
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.policy import load_policy
from neurodyn.policy.artifact import load_critic
from neurodyn.policy.episodes.evaluation import SEED, play
from neurodyn.robots import load as load_robot
from neurodyn.tasks import Task, load

TASK, MODEL, POLICY = "cartpole-swingup", "pretrained:cartpole", "pretrained-policy:cartpole"
MORE = 1.2
"""Masses and inertias of the heavy plant, as multiples of the model's."""
TIMED = 60
"""Frames of a single-world episode in which decisions are timed."""


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--planners", nargs="+", default=["mppi", "cem", "annealed", "gradient"])
    parser.add_argument("--plants", nargs="+", default=["same", "heavy"], choices=["same", "heavy"])
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--horizons", nargs="+", type=int, help="frames of a plan; none for the planner's settings")
    parser.add_argument("--value", help="folder of `neurodyn policy train`: plan with and without its critic")
    asked = parser.parse_args()
    single_thread()
    task = load(TASK)
    model = open_dynamics(task, MODEL)
    _, policy = load_policy(POLICY)
    critics = {"": None} if asked.value is None else {"": None, "_value": load_critic(asked.value, task)}
    figures: dict[str, float] = {}
    for name in asked.plants:
        plant = ResolvedDynamics(name, heavy() if name == "heavy" else open_dynamics(task, "hybrid").dynamics)
        starts = SampledStarts(task, SEED)
        best = float(play(policy, task, plant.dynamics, starts, asked.episodes, seed=SEED).returns.mean())
        figures[f"policy_{name}_return"] = best
        for planner, horizon, critic in itertools.product(asked.planners, asked.horizons or [None], critics):
            suffix = ("" if horizon is None else f"_{horizon}") + critic
            flags = {"horizon": horizon, "value": critics[critic]}
            found = measured(task, planner, model, plant, asked.episodes, best, suffix, flags)
            print(found, flush=True)
            figures |= found
    write_result(asked.json, "planning", figures, {})


def heavy() -> HybridDynamics:
    """Return the cartpole with greater masses and inertias."""
    mechanism, _, _ = declared_mechanism(load_robot("cartpole"), "soft")
    more = [
        f"{name}={MORE * value!r}"
        for name, value in mechanism.quantities().items()
        if value and (name.endswith(".mass") or ".inertia." in name)
    ]
    return declared_hybrid("cartpole", parameters=more)


def measured(
    task: Task,
    name: str,
    model: ResolvedDynamics,
    plant: ResolvedDynamics,
    episodes: int,
    best: float,
    suffix: str,
    flags: dict[str, Any],
) -> dict[str, float]:
    """Return a planner's results on a plant, and the cost of a decision."""
    planner = Planner(model.dynamics, task, name, **flags)
    found, _ = run(planner, name, model, plant, episodes=episodes, seed=SEED)
    require(found.result.episodes == episodes and found.fallbacks == 0, f"{name}: not every plan was finite")
    alone = Planner(model.dynamics, task, name, **flags)
    single, _ = run(alone, name, model, plant, episodes=1, seed=SEED, frames=TIMED)
    key = f"{name}{suffix}_{plant.name}"
    return {
        f"{key}_return": found.result.mean, f"{key}_of_policy": found.result.mean / best,
        f"{key}_failed": found.result.failed, f"{key}_decision_ms": single.decision_ms,
        f"{key}_decision_ms_95": single.decision_ms_95, f"{key}_model_frames": found.model_frames,
    }  # fmt: skip


if __name__ == "__main__":
    main()
