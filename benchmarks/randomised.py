# SPDX-License-Identifier: Apache-2.0
"""Returns of policies in randomised ants, in plain MuJoCo: payload, floor and one weak motor vary.

Policies are trained in the compiled hybrid dynamics: in the declared ant, over the stated ranges, or in one of the
robots, which gives its ceiling.

    python benchmarks/randomised.py --train policies --seeds 0 1 2
    python benchmarks/randomised.py --train policies --ceilings 5
    python benchmarks/randomised.py --policies policies/declared-0 policies/ranges-0
    python benchmarks/randomised.py --throughput
"""

import time
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from _common import result_parser, single_thread, write_result
from neurodyn.control import SampledStarts
from neurodyn.core.description.drive import Drive
from neurodyn.dynamics import AnalyticDynamics, declared_hybrid
from neurodyn.multibody import nominal
from neurodyn.policy import PolicyEnvironment
from neurodyn.policy.artifact import load_policy
from neurodyn.policy.episodes.evaluation import play
from neurodyn.policy.learners.training import open_training
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.requests import TrainPolicyRequest
from neurodyn.policy.worlds.randomisation import open_randomisation
from neurodyn.robots import load as load_robot
from neurodyn.sim.draws import SampledDraws
from neurodyn.tasks import load

TASK, ROBOTS, EPISODES, SEED = "ant-run", 20, 16, 77
RANGES = ("root.mass=+0:25", "contact.friction=.3:.9", "actuator.*.gain=.6:1:one")


class InOrder(SampledDraws):
    """Draws the rows in order, each for equally many episodes."""

    def draw(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Return the rows."""
        return self.rows.repeat_interleave(worlds // len(self.rows), 0)


def robots() -> tuple[tuple[str, ...], Tensor]:
    """Return names of quantities and the robots: payload 0-25 kg, friction .3-.9, one motor at 60-100 %."""
    ant, generator = load_robot("ant"), torch.Generator().manual_seed(SEED)
    mass = nominal(declared_hybrid(ant).mechanism, "soft")["root.mass"]
    drawn = torch.rand(ROBOTS, 3, generator=generator)
    weak = torch.randint(len(ant.actuated), (ROBOTS,), generator=generator)
    gains = torch.ones(ROBOTS, len(ant.actuated))
    gains[torch.arange(ROBOTS), weak] = 0.6 + 0.4 * drawn[:, 2]
    names = ("root.mass", "contact.friction", *(f"actuator.{joint}.gain" for joint in ant.actuated))
    return names, torch.cat([mass + 25.0 * drawn[:, :1], 0.3 + 0.6 * drawn[:, 1:2], gains], 1)


def returns(policy: Path) -> Tensor:
    """Return the mean return of a policy in each robot, in plain MuJoCo, shape [robots]."""
    ant, task = load_robot("ant"), load(TASK)
    names, rows = robots()
    plain = AnalyticDynamics(
        msgspec.structs.replace(ant, simulator=msgspec.structs.replace(ant.simulator, solver="mujoco-c"))
    )
    where = open_randomisation(RANGES, plain).dynamics
    _, network = load_policy(policy)
    starts = SampledStarts(task, SEED)
    found = play(network, task, where, starts, ROBOTS * EPISODES, seed=SEED, draws=InOrder(names, rows))
    return found.returns.view(ROBOTS, EPISODES).mean(1)


def fixed(robot: int) -> tuple[str, ...]:
    """Return the draws for a single robot."""
    names, rows = robots()
    return tuple(f"{name}={value}:{value}" for name, value in zip(names, rows[robot].tolist(), strict=True))


def trained(out: Path, seed: int, randomise: tuple[str, ...]) -> Path:
    """Train a policy unless it exists."""
    if not out.exists():
        asked = TrainPolicyRequest(TASK, "hybrid", out, seed=seed, reference="none", randomise=randomise)
        train_policy(open_training(asked))
    return out


def throughput(worlds: int = 256, frames: int = 30, repeats: int = 12) -> dict[str, float]:
    """Return CPU seconds of an environment step with one robot, and with robots that differ in 26 quantities."""
    task, declared = load(TASK), declared_hybrid(load_robot("ant"))
    opened = open_randomisation((*RANGES, "*.damping=x.8:1.2", "*.armature=x.8:1.2"), declared)
    driven = declared.with_drives({name: Drive() for name in declared.spec.controls})
    assert driven is not None
    environments = {
        "one robot": PolicyEnvironment(task, driven, SampledStarts(task, 0), worlds),
        "robots that differ": PolicyEnvironment(
            task, opened.dynamics, SampledStarts(task, 0), worlds, draws=opened.draws
        ),
    }
    actions, times = torch.rand(worlds, len(task.actions)) - 0.5, {name: [] for name in environments}
    for _ in range(repeats):
        for name, environment in environments.items():
            begin = time.process_time()
            for _ in range(frames):
                environment.step(actions)
            times[name].append((time.process_time() - begin) / frames)
    found = {f"{name}: step of {worlds} worlds [CPU-s]": min(times[name][1:]) for name in environments}
    one, many = found.values()
    return {**found, "ratio": many / one}


def main() -> None:
    """Train and evaluate."""
    parser = result_parser(__doc__)
    parser.add_argument("--policies", nargs="*", type=Path, default=[])
    parser.add_argument("--train", type=Path, help="folder to train policies into")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--ceilings", type=int, default=0, help="number of robots whose own policies are trained")
    parser.add_argument("--randomise", nargs="*", default=[], help="also train over these, as a run of `adapt`")
    parser.add_argument("--throughput", action="store_true", help="only time a step with and without differences")
    arguments = parser.parse_args()
    single_thread()
    if arguments.throughput:
        write_result(arguments.json, "randomised", throughput(), {})
        return
    policies, given = list(arguments.policies), tuple(arguments.randomise)
    kinds = {"declared": (), "ranges": RANGES} | ({"given": given} if given else {})
    if arguments.train is not None and not arguments.ceilings:
        wanted = [(arguments.train / f"{kind}-{seed}", seed, kinds[kind]) for seed in arguments.seeds for kind in kinds]
        policies += [trained(*one) for one in wanted]
    figures: dict[str, float] = {}
    for policy in policies:
        found = returns(policy).sort().values
        figures[f"{policy} mean return"] = float(found.mean())
        figures[f"{policy} worst tenth of the robots"] = float(found[: ROBOTS // 10].mean())
    for robot in range(arguments.ceilings):
        policy = trained((arguments.train or Path("policies")) / f"ceiling-{robot}", 0, fixed(robot))
        figures[f"robot {robot}: return of its own policy"] = float(returns(policy)[robot])
    write_result(arguments.json, "randomised", figures, {})


if __name__ == "__main__":
    main()
