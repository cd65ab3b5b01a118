# SPDX-License-Identifier: Apache-2.0
"""`neurodyn imitate`: a network that walks as convex MPC does."""

from pathlib import Path


def imitate(
    robot: str,
    /,
    *,
    out: Path,
    plant: str = "hybrid",
    ground: str | None = None,
    gait: str = "trot",
    transitions: int | None = None,
    rounds: int | None = None,
    seed: int = 0,
    settings: Path | None = None,
    imitation: Path | None = None,
) -> None:
    """Train a network that decides on the contact forces of a quadruped as convex model-predictive control does.

    Args:
        robot: Name of a quadruped, or the path of a declaration.
        out: Folder for the network; forces.onnx is the same as an ONNX file (needs the extra `export`).
        plant: Where it walks: hybrid, analytic, or a run directory.
        ground: One of the robot's grounds by name, or a file with a scene; by default the one that it declares.
        gait: trot, walk or stand.
        transitions: Decisions of the quadratic program to learn from first; by default 10,000.
        rounds: Rounds of DAgger, in which the network walks and the quadratic program corrects it; by default 4.
        seed: Seed of commands, pushes and weights.
        settings: File with settings of the controller (YAML, TOML or JSON).
        imitation: File with settings of the imitation.

    Example:
        neurodyn imitate a1 --out runs/a1-forces
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.core.artifacts import require_writable
    from neurodyn.core.config import read_config, replaced
    from neurodyn.core.errors import InputError
    from neurodyn.core.locks import exclusive
    from neurodyn.nets.onnx_file import require_onnx
    from neurodyn.robots import load
    from neurodyn.walking.convex_mpc import MpcSettings
    from neurodyn.walking.force_network import save_imitation
    from neurodyn.walking.gait import GAITS
    from neurodyn.walking.imitation import ImitationSettings
    from neurodyn.walking.imitation import imitate as learn
    from neurodyn.walking.plant import walking_plant

    if out.exists():
        raise InputError(f"{out}: is there already; valid: another folder")
    require_writable(out / "forces.json")
    require_onnx()
    GAITS.require(gait)
    how = ImitationSettings() if imitation is None else read_config(imitation, ImitationSettings)
    given = {key: value for key, value in (("transitions", transitions), ("rounds", rounds)) if value is not None}
    try:
        how = replaced(how, **given)
    except InputError as error:
        raise InputError(f"--{error}") from None
    mpc = MpcSettings() if settings is None else read_config(settings, MpcSettings)
    with exclusive(out):
        where = walking_plant(load(robot), plant, ground)
        with ProgressBar(f"{robot}: imitating the quadratic program"):
            network, law = learn(where, gait, mpc, how, seed=seed)
        save_imitation(out, network, law.config)
    print(f"{out} written; next: neurodyn control {robot} --planner imitation --model {out} --plant {plant}")
