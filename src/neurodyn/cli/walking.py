# SPDX-License-Identifier: Apache-2.0
"""`neurodyn control ROBOT --planner mpc|imitation` and `neurodyn imitate ROBOT`: quadrupeds that walk as commanded."""

from pathlib import Path
from typing import Annotated

import tyro


def walk_robot(
    name: str,
    *,
    planner: str,
    model: str | None,
    plant: str,
    episodes: int,
    seconds: float,
    seed: int,
    settings: Path | None,
    gait: str | None,
    command: tuple[float, float, float] | None,
    ground: str | None,
    out: Path | None,
    json: Path | None,
) -> None:
    """Let a quadruped walk; arguments as of `neurodyn control`."""
    from neurodyn.cli.console import TrainingBar
    from neurodyn.cli.tables.results import print_tables
    from neurodyn.control.mpc.commands import Commands
    from neurodyn.control.mpc.plant import walking_plant
    from neurodyn.control.mpc.report import walk_headline, walk_tables, write_walk_report
    from neurodyn.control.mpc.walk import walk
    from neurodyn.control.mpc.walker import IMITATION, walker
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.core.errors import InputError
    from neurodyn.robots import load

    if (planner == IMITATION) != (model is not None):
        raise InputError(
            "--planner imitation needs --model FOLDER, made by `neurodyn imitate`"
            if model is None
            else "--planner mpc takes no --model: its model is a single rigid body with the robot's mass"
        )
    if not 0 < seconds < float("inf"):
        raise InputError(f"--seconds is {seconds:g}; valid: above 0")
    require_writable(json, None if out is None else out / "report.html", text=True)
    where = walking_plant(load(name), plant, ground)
    controller, law, chosen = walker(where, gait=gait, settings=settings, imitation=model)
    commands = Commands.drawn(episodes, seconds, seed) if command is None else Commands.steady(command, episodes)
    with TrainingBar(f"{name} walks in {plant}") as bar:
        result, path = walk(
            where, controller, commands, seconds=seconds, seed=seed, names=(law, chosen),
            progress=lambda share: bar.update(share, ""),
        )  # fmt: skip
    print_tables(walk_headline(result), walk_tables(result))
    if json is not None:
        write_json(json, result.plain())
        print(f"figures: {json}")
    if out is not None:
        write_json(out / "result.json", result.plain())
        write_walk_report(out / "report.html", where, result, path)
        print(f"report: {out / 'report.html'}")
    if result.verdict.grade == "fails":
        raise InputError(f"verdict: {result.verdict}")
    print(f"verdict: {result.verdict}")


def imitate(
    robot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ROBOT")],
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
    """
    import msgspec

    from neurodyn.cli.console import TrainingBar
    from neurodyn.control.mpc.gait import GAITS
    from neurodyn.control.mpc.imitate import ImitationSettings
    from neurodyn.control.mpc.imitate import imitate as learn
    from neurodyn.control.mpc.imitation import save_imitation
    from neurodyn.control.mpc.plant import walking_plant
    from neurodyn.control.mpc.settings import MpcSettings
    from neurodyn.core.artifacts import require_writable
    from neurodyn.core.config import read_config
    from neurodyn.core.errors import InputError
    from neurodyn.nets.onnx_file import require_onnx
    from neurodyn.robots import load

    if out.exists():
        raise InputError(f"{out}: is there already; valid: another folder")
    require_writable(out / "forces.json")
    require_onnx()
    GAITS.require(gait)
    how = ImitationSettings() if imitation is None else read_config(imitation, ImitationSettings)
    given = {key: value for key, value in (("transitions", transitions), ("rounds", rounds)) if value is not None}
    try:
        how = msgspec.structs.replace(how, **given)
        ImitationSettings(**{name: getattr(how, name) for name in how.__struct_fields__})
    except ValueError as error:
        raise InputError(f"--{error}") from None
    mpc = MpcSettings() if settings is None else read_config(settings, MpcSettings)
    where = walking_plant(load(robot), plant, ground)
    with TrainingBar(f"{robot}: imitating the quadratic program") as bar:
        network, law = learn(where, gait, mpc, how, seed=seed, progress=bar.update)
    save_imitation(out, network, law.config)
    print(f"{out} written; next: neurodyn control {robot} --planner imitation --model {out} --plant {plant}")
