# SPDX-License-Identifier: Apache-2.0
"""Cost of the guard: roll-outs, frames of a solver and frames of an environment, with and without it.

    OMP_NUM_THREADS=1 python benchmarks/guard.py [--json FILE]

The check: a poisoned world is named. Then times of roll-outs of 100 frames and of single frames, alternating with and
without guard; ratios are with over without. On a loaded machine they scatter by more than the guard's cost, so the
figures also give the time of the guard alone, in per cent of the roll-out.
"""

import math

import torch

import neurodyn
from _common import compare, require, result_parser, single_thread, write_result
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.guard import watching

FRAMES = 100
WORLDS = (1, 64, 512)
MODELS = ("cartpole", "pendulum", "ant")


def states(model, worlds: int) -> State:
    """Return starts of a robot, from its data's sampling ranges."""
    import numpy as np

    from neurodyn.sim.sampling import sample_states

    return State(*sample_states(model.robot, worlds, np.random.default_rng(0), reset=True))


def check(model, start: State, torque: torch.Tensor) -> None:
    """Require that a poisoned world is named."""
    bad = torch.zeros(start.worlds, dtype=torch.bool)
    bad[-1] = True
    with watching() as watch:
        model.rollout(State(start.q.masked_fill(bad[:, None], math.nan), start.qd), torque)
    require([(f.world, f.frame) for f in watch.faults] == [(start.worlds - 1, 0)], "a poisoned world is not named")


def solver_steps(name: str, worlds: int):
    """Return one frame of a solver with and without guard."""
    from neurodyn.sim import build
    from neurodyn.solvers import SolverNeural

    works = {}
    for guard in ("hold", "off"):
        model = build(neurodyn.robots.load(name), worlds=worlds)
        solver = SolverNeural(model, f"pretrained:{name}", on_fault=guard)
        states_, control = [model.state(), model.state()], model.control()
        dt = solver.dynamics.spec.dt

        def step(solver=solver, pair=states_, control=control, dt=dt):
            solver.step(pair[0], pair[1], control, None, dt)
            solver.step(pair[1], pair[0], control, None, dt)

        works[guard] = step
    return works


def main() -> None:
    """Run the benchmark."""
    parser = result_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU time of each piece in each round [s]")
    arguments = parser.parse_args()
    single_thread()
    figures, ratios = {}, {}
    for name in MODELS:
        model = neurodyn.load(f"pretrained:{name}")
        for worlds in WORLDS:
            start, torque = states(model, worlds), torch.zeros(worlds, FRAMES, model.spec.nu)
            check(model, start, torque)
            with torch.no_grad():
                path = model.rollout(start, torque)
                found = compare(
                    {
                        "with": lambda m=model, s=start, u=torque: m.rollout(s, u),
                        "without": lambda m=model, s=start, u=torque: m._rollout(s, u, None),
                        "guard": lambda m=model, p=path, u=torque: m._watch(p, u, None),
                    },
                    seconds=arguments.seconds,
                    rounds=7,
                )
            figures[f"{name}_rollout_b{worlds}_us_per_frame"] = found["with"] / FRAMES * 1e6
            figures[f"{name}_guard_percent_of_rollout_b{worlds}"] = 100 * found["guard"] / found["without"]
            ratios[f"{name}_rollout_vs_unguarded_b{worlds}"] = found["with"] / found["without"]
    for worlds in (1, 512):
        found = compare(solver_steps("cartpole", worlds), seconds=arguments.seconds, rounds=7)
        figures[f"cartpole_solver_b{worlds}_us_per_frame"] = found["hold"] / 2 * 1e6
        ratios[f"cartpole_solver_vs_unguarded_b{worlds}"] = found["hold"] / found["off"]
    write_result(arguments.json, "guard", figures, ratios)


if __name__ == "__main__":
    main()
