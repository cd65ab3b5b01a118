# SPDX-License-Identifier: Apache-2.0
"""Convex MPC of quadrupeds and its imitation: cost of a decision, tracking errors, falls.

Decisions are timed on situations of a trotting A1, one world at a time, on one thread: building the quadratic program,
solving it (with every installed solver), both together, and the network that imitates them. Before timing, every solver
is compared with daqp. Then robots walk on random commands up to 0.6 m/s and 0.8 rad/s, with the quadratic program and
with the network, from the same starts under the same commands.
"""

import importlib.util
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from _common import require, result_parser, single_thread, write_result
from neurodyn import robots
from neurodyn.walking import Commands, MpcSettings, WalkingPlant, walk, walker, walking_plant
from neurodyn.walking.convex_mpc import QP_SOLVERS, RigidBodyPrediction
from neurodyn.walking.state import ForceInputs

SEED = 500
GATHERED = 3.0
"""Duration of the walk that provides situations [s]."""


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--robots", nargs="*", default=["a1"])
    parser.add_argument("--plant", default="hybrid")
    parser.add_argument("--grounds", nargs="*", default=["flat", "steps"])
    parser.add_argument("--gaits", nargs="*", default=["trot"])
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--settings", type=Path, help="settings of the controller that walks; none for the defaults")
    parser.add_argument("--network", type=Path, help="folder of `neurodyn imitate` for an A1, to be compared")
    parser.add_argument("--no-walks", action="store_true", help="time decisions alone")
    asked = parser.parse_args()
    single_thread()
    figures, ratios = timed(asked.network)
    for name in [] if asked.no_walks else asked.robots:
        for ground in asked.grounds:
            plant = walking_plant(robots.load(name), asked.plant, ground)
            for gait in asked.gaits:
                figures |= walked(plant, gait, asked.episodes, asked.seconds, None, asked.settings)
            if asked.network is not None and name == "a1":
                figures |= walked(plant, "trot", asked.episodes, asked.seconds, asked.network)
    write_result(asked.json, "convex_mpc", figures, ratios)


def timed(network: Path | None) -> tuple[dict[str, float], dict[str, float]]:
    """Return decision times of a trotting A1 [ms], medians over situations, and their ratios."""
    plant, settings = walking_plant(robots.load("a1")), MpcSettings()
    situations = gathered(plant)
    prediction = RigidBodyPrediction(plant.quadruped, settings)
    programs = [prediction.programs(here)[0] for here in situations]
    greatest = settings.greatest_force * plant.quadruped.mass * plant.quadruped.gravity
    reference = [QP_SOLVERS["daqp"](p.H, p.g, settings.friction, greatest) for p in programs]
    require(all(x is not None for x in reference), "daqp solves every program")
    figures = {"unknowns": statistics.median(len(p.g) for p in programs)}
    figures["build_ms"] = median(prediction.programs, situations)
    for name in QP_SOLVERS:
        if importlib.util.find_spec(name) is None:
            continue
        solve = QP_SOLVERS[name]
        off = max(
            float(np.abs(p.first(solve(p.H, p.g, settings.friction, greatest)) - p.first(x)).max())
            for p, x in zip(programs, reference, strict=True)
        )
        require(off < 1.0, f"{name} is {off:.3g} N off daqp")
        figures[f"{name}_ms"] = median(lambda p, s=solve: s(p.H, p.g, settings.friction, greatest), programs)
        figures[f"{name}_off_N"] = off
    figures["decision_ms"] = median(walker(plant)[0].law, situations)
    ratios = {}
    if network is not None:
        law = walker(plant, imitation=network)[0].law
        features = [here.features() for here in situations]
        weight = plant.quadruped.mass * plant.quadruped.gravity
        errors = [np.abs(law(here)[0] - p.first(x)) for here, p, x in zip(situations, programs, reference, strict=True)]
        figures["network_error_of_weight"] = float(np.mean(errors)) / weight
        require(figures["network_error_of_weight"] < 0.05, "the network imitates the quadratic program")
        figures["network_ms"] = median(law.network, features)
        figures["network_decision_ms"] = median(law, situations)
        ratios["network_vs_daqp_b1"] = figures["network_ms"] / figures["daqp_ms"]
        ratios["network_decision_vs_mpc_decision_b1"] = figures["network_decision_ms"] / figures["decision_ms"]
    return figures, ratios


def gathered(plant: WalkingPlant) -> list[ForceInputs]:
    """Return the inputs of a trotting robot's decisions."""
    controller, _, _ = walker(plant)
    found: list[ForceInputs] = []

    def watch(standing: np.ndarray, frame: int) -> None:
        if frame * plant.dt > 0.5:
            found.append(controller.decided[0])

    result, _ = walk(plant, controller, Commands.drawn(1, GATHERED, SEED), seconds=GATHERED, seed=SEED, watch=watch)
    require(result.falls == 0 and result.fallbacks == 0, "the robot walks")
    return found


def median(work: Callable[[object], object], given: list) -> float:
    """Return the CPU time of one call [ms]: over the inputs, the median of the minimum of five calls."""
    times = []
    for one in given:
        least = float("inf")
        for _ in range(5):
            began = time.thread_time()
            work(one)
            least = min(least, time.thread_time() - began)
        times.append(1e3 * least)
    return statistics.median(times)


def walked(
    plant: WalkingPlant, gait: str, episodes: int, seconds: float, network: Path | None, settings: Path | None = None
) -> dict[str, float]:
    """Return a robot's tracking errors on random commands."""
    controller, law, gait = walker(plant, gait=gait, settings=settings, imitation=network)
    commands = Commands.drawn(episodes, seconds, SEED)
    result, _ = walk(plant, controller, commands, seconds=seconds, seed=SEED, names=(law, gait))
    key = f"{plant.robot.name}_{plant.ground}_{gait}_{law}"
    return {
        f"{key}_velocity_error": result.velocity_error, f"{key}_worst_velocity_error": result.worst_velocity_error,
        f"{key}_yaw_rate_error": result.yaw_rate_error, f"{key}_falls": result.falls,
        f"{key}_episodes": result.episodes, f"{key}_fallbacks": result.fallbacks,
    }  # fmt: skip


if __name__ == "__main__":
    main()
