# SPDX-License-Identifier: Apache-2.0
"""Ablation of policies trained only in a neural model: its base, its members, its data.

A cell is a task, a base of the model (none, free motion, motion with contacts), a number of members and a source of
data: random motion alone, or the online loop starting from the same model. In each cell a policy is trained in the
model and evaluated without noise there and in the simulator, from the same starts. No ratio of times is claimed: the
figures are returns in both, failures, cost, and the states visited: the fastest joints (99 % of frames are slower) in
the model, in the simulator and in the data, and the fraction of frames in the model faster than all data.

Cells in --keep are read and not recomputed, so that a run can be stopped and continued, cell by cell; --collect only
reads. The whole ablation at the default sizes takes about a day on one core; the default is one small cell.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import torch

from _common import require, result_parser, single_thread, write_result
from cartpole_policies import neurodyn
from neurodyn.control import SampledStarts
from neurodyn.control.resolve import open_dynamics
from neurodyn.core.config import to_yaml
from neurodyn.dynamics import load as load_dynamics
from neurodyn.learn import read_metrics
from neurodyn.learn.neural.settings import load_finetuning, load_settings
from neurodyn.policy import PolicyEnvironment, evaluate, load_policy
from neurodyn.policy.episodes.evaluation import SEED
from neurodyn.robots import load as load_robot
from neurodyn.tasks import Task
from neurodyn.tasks import load as load_task

BASES = {"none": None, "free": "free", "contact": "contact"}
DATA = ("random", "online")
WORLDS = 64
"""Episodes for measuring the states a policy visits."""


class Sizes(msgspec.Struct, frozen=True):
    """Budget of a cell; kept cells must have been made with the same budget.

    Attributes:
        transitions: Random transitions.
        minutes: CPU time for training a model on them [min].
        refit_minutes: CPU time of a refit in the online loop [min].
        iterations: Updates of PPO; None for those of the task's preset.
        rounds: Rounds of the online loop.
        penalty: Weight of the disagreement of several members.
        episodes: Evaluation episodes of a policy.
    """

    transitions: int
    minutes: float
    refit_minutes: float
    iterations: int | None
    rounds: int
    penalty: float
    episodes: int


class Cell(msgspec.Struct, frozen=True):
    """One row of the ablation."""

    task: str
    base: str
    members: int
    data: str
    seed: int

    @property
    def name(self) -> str:
        """Name of its folder, and first part of the keys of its figures."""
        return f"{self.task}-{self.base}-{self.members}-{self.data}-{self.seed}"


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--tasks", nargs="+", default=["ant-run"], choices=["ant-run", "anymal-forward"])
    parser.add_argument("--bases", nargs="+", default=["contact"], choices=list(BASES))
    parser.add_argument("--members", nargs="+", type=int, default=[1])
    parser.add_argument("--data", nargs="+", default=["random"], choices=DATA)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--transitions", type=int, default=300_000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--refit-minutes", type=float, default=2.0)
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--penalty", type=float, default=0.0)
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--keep", type=Path, default=Path("ablation"), help="folder of data, models and cells")
    parser.add_argument("--random", type=Path, nargs="+", default=[], help="stores of random motion, by robot, to use")
    parser.add_argument("--collect", action="store_true", help="read the cells that are there, compute none")
    asked = parser.parse_args()
    single_thread()
    sizes = Sizes(
        asked.transitions, asked.minutes, asked.refit_minutes, asked.iterations, asked.rounds, asked.penalty,
        asked.episodes,
    )  # fmt: skip
    figures: dict[str, float] = {}
    for part in itertools.product(asked.tasks, asked.bases, asked.members, asked.data, asked.seeds):
        cell = Cell(*part)
        kept = asked.keep / cell.name / "cell.json"
        if kept.exists():
            found = read(kept, sizes)
        elif asked.collect:
            continue
        else:
            found = measure(cell, sizes, asked.keep, asked.random)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps({"sizes": msgspec.to_builtins(sizes), "figures": found}, indent=2) + "\n")
        figures |= {f"{cell.name}_{name}": value for name, value in found.items()}
        print(cell.name, {name: round(value, 3) for name, value in found.items()}, flush=True)
    write_result(asked.json, "policy_ablation", figures, {})


def read(path: Path, sizes: Sizes) -> dict[str, float]:
    """Return the figures of a kept cell."""
    kept = json.loads(path.read_text())
    require(kept["sizes"] == msgspec.to_builtins(sizes), f"{path} was made with {kept['sizes']}; give --keep another")
    return kept["figures"]


def measure(cell: Cell, sizes: Sizes, keep: Path, random: list[Path]) -> dict[str, float]:
    """Train the model and the policy of a cell unless they exist, and return the figures."""
    keep.mkdir(parents=True, exist_ok=True)
    task = load_task(cell.task)
    data = random_data(task.robot, sizes, keep, random)
    first = model(task.robot, cell, sizes, keep, data)
    folder = keep / cell.name
    spent: dict[str, float] = {"simulator_frames": sizes.transitions, "model_cpu_s": cpu_seconds(first)}
    penalty = ["--penalty", sizes.penalty] if cell.members > 1 else []
    updates = [] if sizes.iterations is None else ["--iterations", sizes.iterations]
    if cell.data == "random":
        run, policy = first, folder / "policy"
        if not finished(policy):
            going_on = ["--resume"] if (policy / "config.yaml").exists() else []
            neurodyn(
                "policy", "train", cell.task, "--dynamics", run, "--reference", "none", "--seed", cell.seed,
                "--out", policy, *updates, *penalty, *going_on,
            )  # fmt: skip
        spent |= {"policy_frames": read_metrics(policy)[-1]["frames"], "policy_cpu_s": cpu_seconds(policy)}
    else:
        loop = folder / "loop"
        neurodyn(
            "policy", "online", cell.task, "--dynamics", first, "--out", loop, "--rounds", sizes.rounds,
            "--finetune", refit(task.robot, first, sizes), "--seed", cell.seed,
            *updates, *penalty, *(["--resume"] if loop.exists() else []),
        )  # fmt: skip
        rounds = json.loads((loop / "online.json").read_text())
        policy, run = loop / "policy", Path(best_of(rounds)["model"]["run"])
        spent["simulator_frames"] += rounds["frames"]
        spent["model_cpu_s"] += sum(one["model"]["cpu_seconds"] for one in rounds["rounds"])
        spent |= {name: sum(one["policy"][key] for one in rounds["rounds"])
                  for name, key in (("policy_frames", "frames"), ("policy_cpu_s", "cpu_seconds"))}  # fmt: skip
    return {**returns(policy, run, sizes.episodes), **whereabouts(task, policy, run), **spent}


def random_data(robot: str, sizes: Sizes, keep: Path, given: list[Path]) -> Path:
    """Return a store of random motion, generated if missing."""
    for path in given:
        if path.name.startswith(robot):
            return path
    path = keep / f"{robot}.h5"
    if not path.exists():
        neurodyn("generate", robot, "--transitions", sizes.transitions, "--ground", "flat", "--out", path)
    return path


def model(robot: str, cell: Cell, sizes: Sizes, keep: Path, data: Path) -> Path:
    """Return the model of random data, shared by a robot's cells and trained if missing."""
    run = keep / f"{robot}-{cell.base}-{cell.members}"
    if not finished(run):
        small = load_settings(load_robot(robot), "small")
        settings = msgspec.structs.replace(small, base=BASES[cell.base], minutes=sizes.minutes, clock="cpu")
        file = run.with_suffix(".yaml")
        file.write_text(to_yaml(settings))
        members = [] if cell.members == 1 else ["--members", cell.members]
        going_on = ["--resume"] if (run / "config.yaml").exists() else []
        neurodyn("train", robot, "--data", data, "--size", file, "--out", run, *members, *going_on)
    found = load_dynamics(str(run)).encoding.config.base
    require((None if found is None else found.kind) == BASES[cell.base], f"{run} was trained with another base")
    return run


def refit(robot: str, run: Path, sizes: Sizes) -> Path:
    """Write the online loop's refit settings, in CPU time, so that the machine's load does not matter."""
    trained = load_settings(load_robot(robot), str(run.with_suffix(".yaml")))
    usual = load_finetuning("finetune", trained.net, load_robot(robot), trained.members)
    file = run.with_name(f"{run.name}-refit.yaml")
    file.write_text(to_yaml(msgspec.structs.replace(usual, minutes=sizes.refit_minutes, clock="cpu")))
    return file


def finished(folder: Path) -> bool:
    """Return whether a training has finished."""
    return (folder / "metrics.jsonl").exists() and any(line.get("finished") for line in read_metrics(folder))


def cpu_seconds(folder: Path) -> float:
    """Return the processor time of a training."""
    return float(next(line["cpu_seconds"] for line in reversed(read_metrics(folder)) if "cpu_seconds" in line))


def best_of(result: dict[str, Any]) -> dict[str, Any]:
    """Return the round of an online loop whose policy is kept."""
    return next(one for one in result["rounds"] if one["number"] == result["best"])


def returns(policy: Path, run: Path, episodes: int) -> dict[str, float]:
    """Return a policy's results in its model and in the simulator."""
    found = evaluate(policy, ("analytic", str(run)), episodes=episodes)
    real, imagined = found.results
    (error,) = found.reward_error
    return {
        "imagined": imagined.mean, "real": real.mean, "reward_error": error.relative,
        "imagined_failed": imagined.failed, "real_failed": real.failed, "imagined_implausible": imagined.implausible,
    }  # fmt: skip


@torch.no_grad()
def whereabouts(task: Task, policy: Path, run: Path) -> dict[str, float]:
    """Return the speeds of a policy in its model and in the simulator, and those of the data."""
    known = load_dynamics(str(run)).training_range
    require(known is not None, f"{run} does not say what its data hold")
    assert known is not None
    least, most = torch.tensor(known.qd).T
    joints = task.declaration().spec.joint_qd
    speeds = {name: visited(task, policy, str(run) if name == "imagined" else "analytic")
              for name in ("imagined", "real")}  # fmt: skip
    beyond = ((speeds["imagined"] < least) | (speeds["imagined"] > most)).any(-1).float().mean()
    fastest = {f"{name}_joint_speed": float(qd[:, joints].abs().amax(-1).quantile(0.99)) for name, qd in speeds.items()}
    in_data = float(torch.maximum(most[joints], -least[joints]).max())
    return {**fastest, "data_joint_speed": in_data, "imagined_beyond_data": float(beyond)}


def visited(task: Task, folder: Path, name: str) -> torch.Tensor:
    """Return the velocities of the first episodes of a policy, shape [frames, nv]."""
    _, policy = load_policy(folder)
    where = open_dynamics(task, name)
    world = PolicyEnvironment(task, where.dynamics, SampledStarts(task, SEED), WORLDS, seed=SEED)
    running, found = torch.ones(WORLDS, dtype=torch.bool), []
    for _ in range(task.frames):
        _, _, done, extras = world.step(policy(task.observe(world.now, world.memory)))
        found.append(extras["state"].qd[running & ~extras["implausible"]])
        running &= ~done
        if not bool(running.any()):
            break
    return torch.cat(found)[:1_000_000]


if __name__ == "__main__":
    main()
