# SPDX-License-Identifier: Apache-2.0
"""A policy learned in a model: PPO swings up a cartpole that is a network, and the policy then meets the simulator."""

from importlib.util import find_spec
from pathlib import Path

from neurodyn.core.progress import present_work, stage

TASK = "cartpole-swingup"
MODEL = "pretrained:cartpole"
SETTINGS = Path(__file__).with_name("swingup.yaml")


def show_policy(out: Path, seed: int) -> None:
    """Train a policy in the neural cartpole that ships, and play it there and, where it is installed, in Newton.

    Args:
        out: Folder for policy and report.
        seed: Seed of the training.

    Raises:
        InputError: The extra `policy` is not installed.
    """
    from neurodyn.policy.optional_dependencies import require_learner

    require_learner()
    from neurodyn.cli.demos.stages import is_trained, is_unfinished
    from neurodyn.cli.tables.results import print_policy
    from neurodyn.cli.terminal.progress import ProgressBar
    from neurodyn.control.resolve import open_dynamics
    from neurodyn.core.artifacts import write_json
    from neurodyn.policy.evaluation import evaluate_policy
    from neurodyn.policy.report import write_policy_report
    from neurodyn.policy.settings import load_settings, with_flags
    from neurodyn.policy.train import train_policy
    from neurodyn.tasks import load

    task, folder = load(TASK), out / "policy"
    simulated = find_spec("newton") is not None
    with ProgressBar("demo") as bar:
        if is_trained(folder):
            bar.say(f"1/3  training: {folder} is trained already")
        else:
            bar.say(f"1/3  training: PPO for {TASK} in {MODEL}, a network; no simulator runs")
            settings = with_flags(load_settings(TASK, SETTINGS), seed=seed)
            where = open_dynamics(task, MODEL)
            with stage(0.0, 0.8, "training"):
                end = train_policy(task, where, folder, settings, resume=is_unfinished(folder), progress=present_work())
            bar.say(f"     {end.step:,} updates, {end.cpu_seconds:.0f} CPU-s, policy in {folder}")
        beside = "in Newton, where it has never been, and in the network" if simulated else "in the network"
        bar.say(f"2/3  evaluation: 256 episodes {beside}")
        with stage(0.8, 0.9):
            result = evaluate_policy((str(folder),), (*(["analytic"] if simulated else []), MODEL), episodes=256)
        write_json(out / "evaluation.json", result.plain())
        bar.say("3/3  report")
        with stage(0.9, 1.0):
            report = write_policy_report(folder, result)
    print_policy(result)
    print(f"report: {report}")
    print(f"next: neurodyn export {folder}")
    print(f"verdict: {result.verdict}")
