# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy import`: a policy that somebody else trained, as one of ours."""

from pathlib import Path


def import_(
    file: Path,
    /,
    *,
    task: str,
    out: Path,
    layout: str = "rl-games",
    activation: str = "elu",
) -> None:
    """Write a policy that somebody else trained as one that `policy play`, `evaluate`, `log` and `export` take.

    Args:
        file: Checkpoint of rl_games (.pth) or rsl_rl (.pt), or its arrays by name (.npz, .safetensors).
        task: Task with the observations and actions that it was trained with; TASK@nerd for the policies of NeRD.
        out: Folder to write.
        layout: Whose layout the file has: rl-games, or rsl-rl (4 or later, as in Isaac Lab and mjlab).
        activation: Activation of its hidden layers, which the file does not say, as elu, relu or tanh.

    Example:
        neurodyn policy import Ant.pth --task ant-run@nerd --out policies/ant
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.interop.policies import import_policy

    with ProgressBar(f"reading {file.name}"):
        config = import_policy(file, task, out, layout=layout, activation=activation)
    widths = "-".join(str(width) for width in config.network.hidden)
    print(
        f"policy for {config.task} with {len(config.observations)} observations, {widths} {activation}, and "
        f"{len(config.actions)} actions: {out}"
    )
    print(f"next: neurodyn policy evaluate {out} --dynamics analytic")
