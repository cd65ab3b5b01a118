# SPDX-License-Identifier: Apache-2.0
"""Reference policies: PPO in the reference simulator (some: in its hybrid model) with the preset of every task.

Each policy is trained with the task's preset and evaluated without noise in 256 episodes from unseen starts. No ratio
of times is claimed: the figures are returns, failures and CPU seconds. --picture plots learning curves. All tasks take
about three hours on one core, so by default one seed of the cartpole is measured; policies in --keep are reused.
"""

from pathlib import Path

from _common import require, result_parser, single_thread, write_result
from cartpole_policies import neurodyn
from neurodyn.core import read_config
from neurodyn.learn import RunRecord, read_metrics
from neurodyn.policy import PolicySettings, evaluate, load_settings

PAPER = {
    "cartpole-swingup": 1212.5, "ant-run": 2541.0, "ant-spin": 2625.0, "ant-spin-track": 1630.0,
    "anymal-forward": 1323.4, "anymal-side": 1360.2, "anymal-velocity": None, "franka-position": 89.3,
    "franka-torque": 94.9,
}  # fmt: skip
"""Returns of NeRD's policies in its own simulator (arXiv 2508.15755); None for tasks not in the paper."""
EPISODES = 256
TRAINED_IN = {"franka-position": "hybrid", "franka-torque": "hybrid", "anymal-velocity": "hybrid"}
"""Training dynamics of policies not trained in the simulator, where training would take half an hour to hours."""


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--tasks", nargs="+", default=["cartpole-swingup"], choices=list(PAPER))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--keep", type=Path, default=Path("policies"), help="folder of the policies: TASK-SEED each")
    parser.add_argument("--picture", type=Path, help="file for the learning curves")
    arguments = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    runs: dict[str, list[Path]] = {}
    for task in arguments.tasks:
        for seed in arguments.seeds:
            out = arguments.keep / f"{task}-{seed}"
            figures |= {f"{task}_{seed}_{name}": value for name, value in measure(task, seed, out).items()}
            runs.setdefault(task, []).append(out)
        if PAPER[task] is not None:
            figures[f"{task}_paper"] = PAPER[task]
    if arguments.picture is not None:
        draw(runs, arguments.picture)
    write_result(arguments.json, "reference_policies", figures, {})


def measure(task: str, seed: int, out: Path) -> dict[str, float]:
    """Train a policy unless it exists, and return its results."""
    if not (out / "policy.safetensors").exists():
        neurodyn("policy", "train", task, "--dynamics", TRAINED_IN.get(task, "analytic"), "--out", out, "--seed", seed)
    record = read_config(out / "config.yaml", RunRecord[PolicySettings])
    require(record.dynamics == TRAINED_IN.get(task, "analytic"), f"{out} was trained in {record.dynamics}")
    preset = load_settings(task)
    for name in ("worlds", "horizon", "network", "rate", "desired_kl", "entropy"):
        mine, theirs = getattr(record.settings, name), getattr(preset, name)
        require(mine == theirs, f"{out} was trained with {name} {mine}, the preset has {theirs}")
    found = evaluate(out, ("analytic",), episodes=EPISODES).results[0]
    last = read_metrics(out)[-1]
    return {
        "return": found.mean, "return_std": found.std, "failed": found.failed, "implausible": found.implausible,
        "frames": last["frames"], "cpu_seconds": last["cpu_seconds"],
    }  # fmt: skip


def draw(runs: dict[str, list[Path]], path: Path) -> None:
    """Plot the return of each task without exploration during training, and the paper's."""
    from matplotlib.figure import Figure

    rows = -(-len(runs) // 3)
    figure = Figure(figsize=(9.0, 2.4 * rows), layout="constrained")
    axes = figure.subplots(rows, min(3, len(runs)), squeeze=False).ravel()
    for plot, (task, folders) in zip(axes, runs.items(), strict=False):
        for folder in folders:
            lines = [line for line in read_metrics(folder) if "return_training" in line]
            minutes = [line["cpu_seconds"] / 60 for line in lines]
            plot.plot(minutes, [line["return_training"] for line in lines], "o-", linewidth=0.9, markersize=2.5)
        paper = PAPER[task]
        if paper is not None:
            plot.axhline(paper, color="0.5", linestyle="--", linewidth=0.9)
        plot.set_title(task, fontsize=9)
        plot.tick_params(labelsize=7)
        plot.grid(alpha=0.3)
    for plot in axes[len(runs) :]:
        plot.axis("off")
    figure.supxlabel("CPU time of one core [min]", fontsize=8)
    figure.supylabel("return of an episode, without exploration", fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
