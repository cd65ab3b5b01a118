# SPDX-License-Identifier: Apache-2.0
"""Cartpole swing-up: policies trained in the simulator, in the neural dynamics, and in a world model of a log.

Each policy is trained with the default settings, from three seeds, and evaluated without noise in the simulator, in
1024 episodes from the same starts, and in its training dynamics. The world model is trained only on 200,000 logged
transitions. No ratio of times is claimed: the figures are returns, whose scale is the paper's 1212 (NeRD, arXiv
2508.15755), and errors of the reward between dynamics.
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _common import require, result_parser, single_thread, write_result
from neurodyn.core import read_config
from neurodyn.learn import RunRecord, read_metrics
from neurodyn.policy import PolicySettings, evaluate

TASK = "cartpole-swingup"
PAPER = 1212.5
PRETRAINED = "pretrained:cartpole"


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--kinds", nargs="+", default=["analytic", "neural", "world_model"])
    parser.add_argument("--episodes", type=int, default=1024)
    parser.add_argument("--minutes", type=float, default=8.0, help="time budget of the world model")
    parser.add_argument("--keep", type=Path, help="folder in which log, model and policies are kept and found again")
    arguments = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {"paper_return": PAPER}
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch)
        for kind in arguments.kinds:
            dynamics = where(kind, folder, arguments.minutes)
            found = [measure(kind, dynamics, folder, seed, arguments.episodes) for seed in arguments.seeds]
            figures |= {f"{kind}_{seed}_{name}": value for seed, one in zip(arguments.seeds, found, strict=True)
                        for name, value in one.items()}  # fmt: skip
            for name in found[0]:
                figures[f"{kind}_mean_{name}"] = statistics.fmean(one[name] for one in found)
    real = figures.get("analytic_mean_return")
    for kind in arguments.kinds:
        if real is not None and kind != "analytic":
            figures[f"{kind}_share_of_analytic"] = figures[f"{kind}_mean_return"] / real
    write_result(arguments.json, "cartpole_policies", figures, {})


def where(kind: str, folder: Path, minutes: float) -> str:
    """Return the training dynamics, trained from a log if missing."""
    if kind != "world_model":
        return {"analytic": "analytic", "neural": PRETRAINED}[kind]
    log, run = folder / "log.h5", folder / "world-model"
    if not log.exists():
        neurodyn("generate", "cartpole", "--transitions", "200000", "--out", log, "--seed", "3")
    if not (run / "model" / "spec.json").exists():
        neurodyn("train", "cartpole", "--kind", "world-model", "--data", log, "--out", run, "--minutes", minutes)
    return str(run)


def measure(kind: str, dynamics: str, folder: Path, seed: int, episodes: int) -> dict[str, float]:
    """Train a policy unless it exists, and return its returns."""
    out = folder / f"{kind}-{seed}"
    if not (out / "policy.safetensors").exists():
        flags: list[object] = ["--reference", "none", "--seed", seed]
        if kind == "world_model":  # it has no memory, and starts like the others
            flags += ["--starts", "task"]
        neurodyn("policy", "train", TASK, "--dynamics", dynamics, "--out", out, *flags)
    trained = read_config(out / "config.yaml", RunRecord[PolicySettings]).dynamics
    require(trained == dynamics, f"{out} was trained in {trained}, not in {dynamics}")
    starts = "task" if kind == "world_model" else None
    names = tuple(dict.fromkeys(("analytic", dynamics)))
    result = evaluate(out, names, episodes=episodes, starts=starts).plain()
    by_name = {one["dynamics"]: one for one in result["results"]}
    real = by_name["analytic"]
    end = next(line for line in reversed(read_metrics(out)) if line.get("finished"))
    figures = {"return": real["return"], "success": real["success"], "cpu_s": end["cpu_seconds"]}
    for error in result["reward_error"]:
        figures |= {"return_where_trained": by_name[dynamics]["return"], "reward_error": error["relative"]}
    print(kind, seed, figures, flush=True)
    return figures


def neurodyn(*arguments: object) -> None:
    """Run a command as a user would."""
    command = "from neurodyn.cli.main import main; main()"
    subprocess.run([sys.executable, "-c", command, *map(str, arguments)], check=True)


if __name__ == "__main__":
    main()
